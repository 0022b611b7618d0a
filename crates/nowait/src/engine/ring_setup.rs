//! Making a ring as the options say, with what the kernel has of it.

use std::io;
use std::os::fd::IntoRawFd;

use io_uring::{IoUring, Parameters};

use super::features::{Availability, Feature, Features};
use super::ring_options::{Polled, RingOptions};
use crate::sys::{self, Errno};

/// A ring, and what it is.
pub(super) struct Made {
    pub(super) ring: IoUring,
    /// Completions come only when they are waited for (DEFER_TASKRUN).
    pub(super) deferred: bool,
    /// Its registered number, for its thread.
    pub(super) number: Option<u32>,
    pub(super) features: Features,
}

/// Who submits, and when completions are worked on.
#[derive(Clone, Copy)]
struct Shape {
    single_issuer: bool,
    defer_taskrun: bool,
}

/// Makes a ring with so many entries. Must be called on the thread that will drive it.
pub(super) fn make(entries: u32, completions: u32, options: &RingOptions) -> io::Result<Made> {
    let mut features = Features::none();
    // 6.1 has both, 6.0 the first; older kernels say EINVAL. With SQPOLL the work is the kernel
    // thread's, and there is nothing to defer.
    let shapes = [(true, true), (true, false), (false, false)].map(|(single, defer)| Shape {
        single_issuer: single,
        defer_taskrun: defer,
    });
    let shapes = match options.sqpoll {
        Some(_) => &shapes[1..],
        None => &shapes[..],
    };
    let hybrid = match options.polled {
        Some(Polled::Hybrid) => {
            let made = first(shapes, |shape| hybrid(entries, completions, options, shape));
            features.tried(Feature::HybridPolled, made)
        }
        _ => None,
    };
    let (ring, shape) = match hybrid {
        Some(made) => made,
        None => first(shapes, |shape| build(entries, completions, options, shape))?,
    };
    let params = ring.params();
    if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
        // Before 5.11 there is no wait with a timeout: such rings are left alone.
        return Err(Errno::NOSYS.into());
    }
    if options.polled.is_some() {
        features.set(Feature::Polled, Availability::Had);
    }
    if options.sqpoll.is_some() {
        features.set(Feature::Sqpoll, Availability::Had);
    }
    let min_wait = params.is_feature_min_timeout();
    let min_wait = min_wait.then_some(()).ok_or("this kernel has none (6.12)");
    features.tried(Feature::MinWait, min_wait);
    features.set(Feature::Links, Availability::Had);
    if let Some(mut most) = options.workers {
        let limited = ring.submitter().register_iowq_max_workers(&mut most);
        features.tried(Feature::RingWorkers, limited);
    }
    let number = sys::ring::register_ring(super::uring::descriptor(&ring));
    let number = features.tried(Feature::RegisteredRing, number);
    Ok(Made {
        deferred: shape.defer_taskrun,
        ring,
        number,
        features,
    })
}

/// Tries each shape; only the last answer counts.
fn first(
    shapes: &[Shape],
    make: impl Fn(Shape) -> io::Result<IoUring>,
) -> io::Result<(IoUring, Shape)> {
    let mut made = Err(io::Error::from(Errno::INVAL));
    for shape in shapes {
        made = made.or_else(|_| make(*shape).map(|ring| (ring, *shape)));
    }
    made
}

/// The thread's time without work, in milliseconds; 0 would be the kernel's default.
fn idle(options: &RingOptions) -> Option<u32> {
    let idle = options.sqpoll?.as_millis();
    Some(u32::try_from(idle).unwrap_or(u32::MAX).max(1))
}

fn build(
    entries: u32,
    completions: u32,
    options: &RingOptions,
    shape: Shape,
) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_cqsize(completions.max(2 * entries));
    if shape.single_issuer {
        builder.setup_single_issuer();
    }
    if shape.defer_taskrun {
        builder.setup_defer_taskrun().setup_taskrun_flag();
    }
    if options.polled.is_some() {
        builder.setup_iopoll();
    }
    if let Some(idle) = idle(options) {
        builder.setup_sqpoll(idle);
    }
    if let Some(cpu) = options.sqpoll_cpu {
        builder.setup_sqpoll_cpu(cpu);
    }
    sys::ring::build(&builder, entries)
}

/// As `build`, with hybrid polling, for which the builder has no setter. A forked child has this
/// ring's memory mapped, which it does not with `dontfork`; it touches it as little.
fn hybrid(
    entries: u32,
    completions: u32,
    options: &RingOptions,
    shape: Shape,
) -> io::Result<IoUring> {
    use sys::ring::flag;
    let mut params = sys::ring::Params::default();
    params.flags = flag::IOPOLL | flag::HYBRID_IOPOLL | flag::CLAMP | flag::CQSIZE;
    params.cq_entries = completions.max(2 * entries);
    if shape.single_issuer {
        params.flags |= flag::SINGLE_ISSUER;
    }
    if shape.defer_taskrun {
        params.flags |= flag::DEFER_TASKRUN | flag::TASKRUN_FLAG;
    }
    if let Some(idle) = idle(options) {
        params.flags |= flag::SQPOLL;
        params.sq_thread_idle = idle;
    }
    if let Some(cpu) = options.sqpoll_cpu {
        params.flags |= flag::SQ_AFF;
        params.sq_thread_cpu = cpu;
    }
    let fd = sys::ring::setup(entries, &mut params)?;
    // SAFETY: Assumption: both are `struct io_uring_params` as the kernel has it (a test compares
    // their sizes), of plain numbers, and the kernel has just filled it for this descriptor.
    unsafe {
        let params = std::mem::transmute::<sys::ring::Params, Parameters>(params);
        IoUring::from_fd(fd.into_raw_fd(), params)
    }
}
