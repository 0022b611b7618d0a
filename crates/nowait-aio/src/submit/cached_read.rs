//! Reads of cached data, completed within aio_read(3).
//!
//! One preadv2(2) with RWF_NOWAIT on the program's own descriptor. It fails on anything but a
//! regular file, and then has no effect. Each descriptor number has a history of these reads
//! (`nowait::read::History`). If few of them succeed, most reads are not tried. Before a read is
//! left out, fstat(2) tells whether the number has been given to another file. Its history then
//! starts anew.
//!
//! # Single reads
//! A try that fails starts the device (Linux since about 6.12), and the driver wakes up meanwhile. A
//! read of a regular file is therefore tried as well while no other request is in flight. If other
//! programs fill the device's queue, such a try waits for a place in it. After one that has waited,
//! there are none for a second.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nowait::buffer::IoBufMut;
use nowait::cost::Costs;
use nowait::read::{CacheDecision, Cached, History, NowaitPolicy, cached_by_nowait};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::counters::{RequestCounters, increment};
use crate::request::{Outcome, Request};
use crate::sys::clock;

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedRead {
    /// The read is done.
    Done(Outcome),
    /// The driver has to read it: not all data is cached, or the read was not tried.
    NotCached,
}

/// The largest read that is copied in the caller, in bytes. A worker copies a larger one.
const MAX_CACHED_READ_LEN: usize = 256 << 10;

/// The number of histories. Descriptor numbers that are this far apart share one.
const HISTORIES: usize = 1024;

struct DescriptorHistory {
    history: History,
    /// A hash of the file's device and inode at the last comparison, or 0.
    file: AtomicU64,
    /// True if the kernel or the filesystem has refused RWF_NOWAIT for this file.
    is_refused: AtomicBool,
}

static DESCRIPTOR_HISTORIES: [DescriptorHistory; HISTORIES] = [const {
    DescriptorHistory {
        history: History::new(),
        file: AtomicU64::new(0),
        is_refused: AtomicBool::new(false),
    }
}; HISTORIES];

/// A try that takes this long has waited for the device's queue.
const WAITED: Duration = Duration::from_millis(1);

/// The second of the monotonic clock in which a single read last waited for the device's queue.
static LAST_WAIT: AtomicI64 = AtomicI64::new(i64::MIN);

/// Reads the data if all of it is cached, and a try pays: by the file's history, or because no other
/// request is in flight.
pub fn try_cached_read(
    fd: BorrowedFd<'_>,
    file_flags: OFlags,
    request: &Request,
    counters: &RequestCounters,
    is_alone: bool,
) -> CachedRead {
    // With O_DIRECT the read would wait for the device.
    if file_flags.contains(OFlags::DIRECT) || request.buf.len() > MAX_CACHED_READ_LEN {
        return CachedRead::NotCached;
    }
    let descriptor = &DESCRIPTOR_HISTORIES[request.fildes as usize % HISTORIES];
    let decision = descriptor
        .history
        .decide(NowaitPolicy::Adaptive, Costs::default);
    if decision != CacheDecision::Skip {
        return try_read(fd, request, counters, descriptor);
    }
    match descriptor.compare(fd) {
        Comparison::OtherFile => try_read(fd, request, counters, descriptor),
        Comparison::SameRegularFile if is_alone && may_start_device(descriptor) => {
            let begun = Instant::now();
            let read = try_read(fd, request, counters, descriptor);
            if begun.elapsed() >= WAITED {
                LAST_WAIT.store(clock::monotonic().tv_sec, Relaxed);
            }
            read
        }
        Comparison::SameRegularFile | Comparison::SameOther => CachedRead::NotCached,
    }
}

/// Returns true if a try that fails starts the device, without a wait for the device's queue.
fn may_start_device(descriptor: &DescriptorHistory) -> bool {
    let since = clock::monotonic()
        .tv_sec
        .saturating_sub(LAST_WAIT.load(Relaxed));
    !descriptor.is_refused.load(Relaxed) && since > 1
}

fn try_read(
    fd: BorrowedFd<'_>,
    request: &Request,
    counters: &RequestCounters,
    descriptor: &DescriptorHistory,
) -> CachedRead {
    let mut buf = request.buf;
    match cached_by_nowait(fd, buf.as_uninit(), request.offset) {
        Ok(Cached::All(n)) => {
            descriptor.history.hit();
            increment(&counters.hits);
            CachedRead::Done(Ok(n))
        }
        Ok(Cached::Prefix(_) | Cached::Nothing) => {
            descriptor.history.miss();
            increment(&counters.misses);
            CachedRead::NotCached
        }
        Ok(Cached::Unsupported(_)) => {
            descriptor.is_refused.store(true, Relaxed);
            descriptor.history.miss();
            CachedRead::NotCached
        }
        Err(error) => {
            let errno = error.errno().map_or(Errno::INVAL, Errno::from_raw_os_error);
            CachedRead::Done(Err(errno))
        }
    }
}

/// The file of a descriptor number, compared with the one at the last comparison.
enum Comparison {
    OtherFile,
    SameRegularFile,
    SameOther,
}

impl DescriptorHistory {
    /// Compares the file with that of the last comparison. If it is another one, the history starts
    /// anew.
    fn compare(&self, fd: BorrowedFd<'_>) -> Comparison {
        let stat = rustix::fs::fstat(fd).ok();
        let file = stat.as_ref().map_or(0, |stat| {
            (stat.st_ino ^ stat.st_dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
        });
        let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
        if self.file.swap(file, Relaxed) != file {
            self.history.forget();
            self.is_refused.store(false, Relaxed);
            Comparison::OtherFile
        } else if kind == Some(FileType::RegularFile) {
            Comparison::SameRegularFile
        } else {
            Comparison::SameOther
        }
    }
}
