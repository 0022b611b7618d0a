//! Makes a ring with the given options, as far as the kernel supports them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};

use io_uring::{IoUring, Parameters};

use super::options::{Polled, RingOptions};
use crate::engine::features::{Feature, Features};
use crate::kernel::support::Support;
use crate::sys::{self, Errno};

/// The maximum number of entries in the submission queue. Longer batches are submitted in parts.
pub(in crate::engine) const ENTRIES: usize = 4096;

/// A ring and its properties.
pub(super) struct NewRing {
    pub(super) ring: IoUring,
    /// Completions are delivered only when the thread waits for them (DEFER_TASKRUN).
    pub(super) deferred: bool,
    /// The registered number of the ring, valid in its thread.
    pub(super) number: Option<u32>,
    pub(super) features: Features,
}

/// The setup flags that decide which thread submits and when completions are processed.
#[derive(Clone, Copy)]
struct SetupFlags {
    single_issuer: bool,
    defer_taskrun: bool,
}

/// Makes a ring with `entries` submission queue entries. It must be called on the thread that will
/// drive the ring.
pub(super) fn make(entries: u32, completions: u32, options: &RingOptions) -> io::Result<NewRing> {
    let mut features = Features::all(Support::Untried);
    // Linux 6.1 has both flags, 6.0 only the first. Older kernels return EINVAL. With SQPOLL the
    // kernel thread processes completions, and there is nothing to defer.
    let choices = [(true, true), (true, false), (false, false)].map(|(single, defer)| SetupFlags {
        single_issuer: single,
        defer_taskrun: defer,
    });
    let choices = match options.sqpoll {
        Some(_) => &choices[1..],
        None => &choices[..],
    };
    let hybrid = match options.polled {
        Some(Polled::Hybrid) => {
            let made = first(choices, |flags| {
                hybrid(entries, completions, options, flags)
            });
            features.tried(Feature::HybridPolled, made)
        }
        _ => None,
    };
    let (ring, flags) = match hybrid {
        Some(made) => made,
        None => first(choices, |flags| build(entries, completions, options, flags))?,
    };
    let params = ring.params();
    if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
        // Linux before 5.11 has no wait with a timeout. Engines do not use such rings.
        return Err(Errno::NOSYS.into());
    }
    if options.polled.is_some() {
        features.set(Feature::Polled, Support::Yes);
    }
    if options.sqpoll.is_some() {
        features.set(Feature::Sqpoll, Support::Yes);
    }
    let min_wait = match params.is_feature_min_timeout() {
        true => Support::Yes,
        false => Support::No(libc::EOPNOTSUPP),
    };
    features.set(Feature::MinWait, min_wait);
    if let Some(mut most) = options.workers {
        let limited = ring.submitter().register_iowq_max_workers(&mut most);
        features.tried(Feature::RingWorkers, limited);
    }
    let number = sys::ring::register_ring(descriptor(&ring));
    let number = features.tried(Feature::RegisteredRing, number.map_err(io::Error::from));
    Ok(NewRing {
        deferred: flags.defer_taskrun,
        ring,
        number,
        features,
    })
}

/// The ring's descriptor.
pub(super) fn descriptor(ring: &IoUring) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the ring exists.
    unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }
}

/// Tries each shape. Returns the last error if none works.
fn first(
    choices: &[SetupFlags],
    make: impl Fn(SetupFlags) -> io::Result<IoUring>,
) -> io::Result<(IoUring, SetupFlags)> {
    let mut made = Err(io::Error::from(Errno::INVAL));
    for flags in choices {
        made = made.or_else(|_| make(*flags).map(|ring| (ring, *flags)));
    }
    made
}

/// The time after which the kernel thread sleeps, in milliseconds. It is not 0, which would select
/// the kernel's default.
fn idle(options: &RingOptions) -> Option<u32> {
    let idle = options.sqpoll?.as_millis();
    Some(u32::try_from(idle).unwrap_or(u32::MAX).max(1))
}

fn build(
    entries: u32,
    completions: u32,
    options: &RingOptions,
    flags: SetupFlags,
) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_cqsize(completions.max(2 * entries));
    if flags.single_issuer {
        builder.setup_single_issuer();
    }
    if flags.defer_taskrun {
        builder.setup_defer_taskrun().setup_taskrun_flag();
    }
    if options.polled.is_some() {
        builder.setup_iopoll();
    }
    if let Some(idle) = idle(options) {
        builder.setup_sqpoll(idle);
    }
    sys::ring::build(&builder, entries)
}

/// Like `build`, with hybrid polling, for which the builder has no method. A forked child has the
/// memory of this ring mapped, unlike with `dontfork`. It does not access that memory.
fn hybrid(
    entries: u32,
    completions: u32,
    options: &RingOptions,
    flags: SetupFlags,
) -> io::Result<IoUring> {
    use sys::ring::flag;
    let mut params = sys::ring::Params::default();
    params.flags = flag::IOPOLL | flag::HYBRID_IOPOLL | flag::CLAMP | flag::CQSIZE;
    params.cq_entries = completions.max(2 * entries);
    if flags.single_issuer {
        params.flags |= flag::SINGLE_ISSUER;
    }
    if flags.defer_taskrun {
        params.flags |= flag::DEFER_TASKRUN | flag::TASKRUN_FLAG;
    }
    if let Some(idle) = idle(options) {
        params.flags |= flag::SQPOLL;
        params.sq_thread_idle = idle;
    }
    let fd = sys::ring::setup(entries, &mut params)?;
    // SAFETY: Assumption: both types are the kernel's `struct io_uring_params` (a test compares
    // their sizes) and consist of integers. The kernel has just filled it for this descriptor.
    unsafe {
        let params = std::mem::transmute::<sys::ring::Params, Parameters>(params);
        IoUring::from_fd(fd.into_raw_fd(), params)
    }
}
