//! The caller's part of a read: what the page cache has is read within aio_read(3).
//!
//! One preadv2(2) with RWF_NOWAIT, on the program's own descriptor. On anything but a regular file it
//! fails without harm. Each descriptor number has a history of what such reads found, so that a file
//! that is not cached is not tried for nothing (`nowait::read::History`); when a number that has
//! stopped trying turns out to be another file's by now, its history begins anew.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nowait::buffer::IoBufMut;
use nowait::cost::Costs;
use nowait::read::{Advice, Cached, History, Trying, cached};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::counters::{RequestCounters, increment};
use crate::request::Request;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The read is done, with this result.
    Done(Result<usize, Errno>),
    /// It is the engine's.
    NotHere,
}

/// The largest read that is copied in the caller, in bytes; a larger one is copied by a worker.
const MOST: usize = 256 << 10;

/// Numbers that are this far apart share a history.
const NUMBERS: usize = 1024;

struct Known {
    history: History,
    /// Which file it is the history of, as far as anybody has asked.
    file: AtomicU64,
}

static KNOWN: [Known; NUMBERS] = [const {
    Known {
        history: History::new(),
        file: AtomicU64::new(0),
    }
}; NUMBERS];

/// Reads what the page cache has, if that is worth a try and has all of it.
pub fn attempt(
    fd: BorrowedFd<'_>,
    flags: OFlags,
    request: &Request,
    counters: &RequestCounters,
) -> Attempt {
    let mut buf = request.buf;
    // With O_DIRECT a try would be device I/O in the caller.
    if flags.contains(OFlags::DIRECT) || buf.len > MOST {
        return Attempt::NotHere;
    }
    let known = &KNOWN[request.fildes as usize % NUMBERS];
    let advice = known.history.advise(Trying::Adaptive, Costs::default);
    if advice == Advice::Skip && !known.is_another(fd) {
        return Attempt::NotHere;
    }
    match cached(fd, buf.space(), request.offset) {
        Ok(Cached::All(n)) => {
            known.history.hit();
            increment(&counters.hits);
            Attempt::Done(Ok(n))
        }
        Ok(Cached::Prefix(_) | Cached::Nothing) => {
            known.history.miss();
            increment(&counters.misses);
            Attempt::NotHere
        }
        Ok(Cached::Unsupported(_)) => {
            known.history.miss();
            Attempt::NotHere
        }
        Err(error) => {
            let errno = error.errno().map_or(Errno::INVAL, Errno::from_raw_os_error);
            Attempt::Done(Err(errno))
        }
    }
}

impl Known {
    /// Whether the number is another file's than the one that it has the history of; then that begins
    /// anew.
    fn is_another(&self, fd: BorrowedFd<'_>) -> bool {
        let file = rustix::fs::fstat(fd).map_or(0, |stat| {
            (stat.st_ino ^ stat.st_dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
        });
        let another = self.file.swap(file, Relaxed) != file;
        if another {
            self.history.forget();
        }
        another
    }
}
