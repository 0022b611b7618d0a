//! Reads of cached data, completed within aio_read(3).
//!
//! One preadv2(2) with RWF_NOWAIT on the program's own descriptor. It fails on anything but a
//! regular file, and then has no effect. Each descriptor number has a history of these reads, so
//! that reads of a file that is not cached are rarely tried (`nowait::read::History`). When reads
//! of a number are no longer tried, fstat(2) tells whether the number has been given to another
//! file. Its history then starts anew.
//!
//! A read is tried in any case while no other request is in flight. A try that fails starts the
//! device (Linux since about 6.12), and the driver takes the request over meanwhile.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nowait::buffer::IoBufMut;
use nowait::cost::Costs;
use nowait::read::{CacheDecision, Cached, History, NowaitPolicy, cached_by_nowait};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::counters::{RequestCounters, increment};
use crate::request::{Outcome, Request};

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
}

static DESCRIPTOR_HISTORIES: [DescriptorHistory; HISTORIES] = [const {
    DescriptorHistory {
        history: History::new(),
        file: AtomicU64::new(0),
    }
}; HISTORIES];

/// Reads the data if all of it is cached, and the file's history is in favour of a try or no other
/// request is in flight.
pub fn try_cached_read(
    fd: BorrowedFd<'_>,
    file_flags: OFlags,
    request: &Request,
    counters: &RequestCounters,
    is_alone: bool,
) -> CachedRead {
    let mut buf = request.buf;
    // With O_DIRECT the read would wait for the device.
    if file_flags.contains(OFlags::DIRECT) || buf.len() > MAX_CACHED_READ_LEN {
        return CachedRead::NotCached;
    }
    let descriptor = &DESCRIPTOR_HISTORIES[request.fildes as usize % HISTORIES];
    let decision = descriptor
        .history
        .decide(NowaitPolicy::Adaptive, Costs::default);
    let skips = decision == CacheDecision::Skip && !is_alone;
    if skips && !descriptor.restart_if_other_file(fd) {
        return CachedRead::NotCached;
    }
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
            descriptor.history.miss();
            CachedRead::NotCached
        }
        Err(error) => {
            let errno = error.errno().map_or(Errno::INVAL, Errno::from_raw_os_error);
            CachedRead::Done(Err(errno))
        }
    }
}

impl DescriptorHistory {
    /// Starts the history anew if the number belongs to another file than at the last comparison.
    /// Returns true if it does.
    fn restart_if_other_file(&self, fd: BorrowedFd<'_>) -> bool {
        let file = rustix::fs::fstat(fd).map_or(0, |stat| {
            (stat.st_ino ^ stat.st_dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
        });
        let is_other = self.file.swap(file, Relaxed) != file;
        if is_other {
            self.history.forget();
        }
        is_other
    }
}
