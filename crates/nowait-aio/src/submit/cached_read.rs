//! Reads of cached data, completed within aio_read(3).
//!
//! One preadv2(2) with RWF_NOWAIT on the program's own descriptor. Where the file does not support
//! it, it fails and has no effect. Block devices and some other devices support it. Each descriptor number has a history of these reads
//! (`nowait::read::History`). If few of them succeed, most reads are not tried. Before a read is
//! left out for that reason, fstat(2) tells whether the number has been given to another file. Its
//! history then starts anew.
//!
//! All other rules are those of an engine's reads (`nowait::read::Rules`).

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// The same hash of the file that has refused RWF_NOWAIT, or 0.
    refused: AtomicU64,
}

static DESCRIPTOR_HISTORIES: [DescriptorHistory; HISTORIES] = [const {
    DescriptorHistory {
        history: History::new(),
        file: AtomicU64::new(0),
        refused: AtomicU64::new(0),
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
        decide: || descriptor.decide(fd),
        is_direct: file_flags.contains(OFlags::DIRECT),
        is_refused: descriptor.is_refused(fd),
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
            descriptor.refused.store(hash_of(fd).0, Relaxed);
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
    /// Returns true if the file has refused RWF_NOWAIT. Asks fstat(2) only if one with this number has.
    fn is_refused(&self, fd: BorrowedFd<'_>) -> bool {
        let refused = self.refused.load(Relaxed);
        refused != 0 && hash_of(fd).0 == refused
    }

    /// The decision of the history. Before a read is left out, the file is compared.
    fn decide(&self, fd: BorrowedFd<'_>) -> CacheDecision {
        let decision = self.history.decide(NowaitPolicy::Adaptive, Costs::default);
        if decision != CacheDecision::Skip {
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
        let (file, kind) = hash_of(fd);
        if self.file.swap(file, Relaxed) != file {
            self.history.forget();
            Comparison::OtherFile
        } else if kind == Some(FileType::RegularFile) {
            Comparison::SameRegularFile
        } else {
            Comparison::SameOther
        }
    }
}

/// A hash of the device and the inode of a file, which is not 0, and its type. If fstat(2) fails: 0.
fn hash_of(fd: BorrowedFd<'_>) -> (u64, Option<FileType>) {
    let stat = rustix::fs::fstat(fd).ok();
    let file = stat.as_ref().map_or(0, |stat| {
        (stat.st_ino ^ stat.st_dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    });
    (file, stat.map(|stat| FileType::from_raw_mode(stat.st_mode)))
}
