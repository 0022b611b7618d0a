//! Reads of cached data, completed within aio_read(3).
//!
//! One preadv2(2) with RWF_NOWAIT on the program's own descriptor. It fails on anything but a
//! regular file, and then has no effect. Each descriptor number has a history of these reads
//! (`nowait::read::History`). If few of them succeed, most reads are not tried. Before a read is
//! left out, fstat(2) tells whether the number has been given to another file. Its history then
//! starts anew.
//!
//! All other rules are those of an engine's reads (`nowait::read::Rules`).

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nowait::buffer::IoBufMut;
use nowait::cost::Costs;
use nowait::read::{BareFile, CacheDecision, Cached, History, NowaitPolicy, Rules};
use rustix::fs::{FileType, OFlags};
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

static RULES: Rules = Rules::new();

/// Reads the data if all of it is cached, and the rules are in favour of a try. `in_flight` is the number
/// of other requests that are in flight.
pub fn try_cached_read(
    fd: BorrowedFd<'_>,
    file_flags: OFlags,
    request: &Request,
    counters: &RequestCounters,
    in_flight: usize,
) -> CachedRead {
    let descriptor = &DESCRIPTOR_HISTORIES[request.fildes as usize % HISTORIES];
    let file = BareFile {
        history: &descriptor.history,
        decision: descriptor.decide(fd),
        is_direct: file_flags.contains(OFlags::DIRECT),
        is_refused: descriptor.is_refused.load(Relaxed),
        in_flight,
    };
    let mut buf = request.buf;
    match RULES.try_cached(fd, file, buf.as_uninit(), request.offset) {
        Ok(Some(Cached::All(n))) => {
            increment(&counters.hits);
            CachedRead::Done(Ok(n))
        }
        Ok(Some(Cached::Prefix(_) | Cached::Nothing)) => {
            increment(&counters.misses);
            CachedRead::NotCached
        }
        Ok(Some(Cached::Unsupported(_))) => {
            descriptor.is_refused.store(true, Relaxed);
            CachedRead::NotCached
        }
        Ok(None) => CachedRead::NotCached,
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
    /// The decision of the history. Before a read is left out, the file is compared.
    fn decide(&self, fd: BorrowedFd<'_>) -> CacheDecision {
        let decision = self.history.decide(NowaitPolicy::Adaptive, Costs::default);
        if decision != CacheDecision::Skip && !self.is_refused.load(Relaxed) {
            return decision;
        }
        match self.compare(fd) {
            Comparison::OtherFile => CacheDecision::Try,
            Comparison::SameRegularFile => decision,
            Comparison::SameOther => CacheDecision::Never,
        }
    }

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
