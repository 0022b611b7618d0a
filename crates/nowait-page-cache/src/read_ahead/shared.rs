//! The state that the thread which reads shares with those that ask for a report.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::files::{Files, Piece};
use crate::prefetch::Allowed;
use crate::stop::Stop;
use crate::unknown::Unknowns;

/// The limits of the work, and the work so far.
#[derive(Debug)]
pub struct Shared {
    pub budget: Allowed,
    pub stop: Stop,
    work: Mutex<Work>,
    /// True after the end. It is apart from the work: a thread that waits for the end does not wait for
    /// a server that the thread which reads asks about a file.
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl Shared {
    pub fn new(budget: Allowed, stop: Stop) -> Shared {
        let now = Instant::now();
        Shared {
            budget,
            stop,
            work: Mutex::new(Work {
                files: Files::default(),
                begin: now,
                last: now,
                read_bytes: 0,
                wasted_bytes: None,
                is_full: false,
                budget: String::new(),
            }),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// The state is consistent after each change.
    pub fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for the end.
    pub fn end(&self) {
        *self
            .has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    /// Waits for the end, at most this long. Returns false after that.
    pub fn wait(&self, time: Duration) -> bool {
        let has_ended = self
            .has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .ended
            .wait_timeout_while(has_ended, time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The work so far.
#[derive(Debug)]
pub struct Work {
    pub files: Files,
    pub begin: Instant,
    /// The end of the last read.
    pub last: Instant,
    /// The bytes that were read, without cached ones between them.
    pub read_bytes: u64,
    /// The bytes that were wasted before the eviction at the end; `None` before it.
    pub wasted_bytes: Option<u64>,
    /// True if the budget did not hold all bytes to be read, and what the budget was then.
    pub is_full: bool,
    pub budget: String,
}

/// The work of a [`ReadAhead`](super::ReadAhead), in bytes.
#[derive(Debug, Default)]
pub struct Report {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were cached when their file was examined.
    pub was_resident_bytes: u64,
    /// Bytes that were read and left the page cache again, and that the program was not seen to use. Bytes
    /// of unknown residency are not among them, nor those that [`evict`](super::ReadAhead::evict) evicts.
    pub wasted_bytes: u64,
    /// The bytes that were read per second, from the beginning to the end of the last read.
    pub bytes_per_s: u64,
    /// Missing bytes that were neither read nor used, because the budget does not hold all missing
    /// bytes.
    pub not_read_bytes: u64,
    /// The reason; `None` if the budget holds all missing bytes.
    pub not_read_reason: Option<String>,
    /// The files of unknown residency, and the sizes of what was to be read. It is read, is not wasted,
    /// and is not evicted.
    pub unknown: Unknowns,
}

impl Work {
    /// Counts the first `n` bytes of a piece.
    pub fn read(&mut self, piece: &Piece, n: u64) {
        let start = piece.range.start;
        self.files.read(piece.file, start..start + n);
        self.read_bytes += piece.missing.min(n);
        self.last = Instant::now();
    }

    /// The numbers that need no query.
    pub fn report(&self) -> Report {
        let seconds = (self.last - self.begin).as_secs_f64();
        let not_read_bytes = if self.is_full {
            self.files.unread_bytes()
        } else {
            0
        };
        Report {
            read_bytes: self.read_bytes,
            bytes_per_s: if seconds > 0.0 {
                (self.read_bytes as f64 / seconds) as u64
            } else {
                0
            },
            not_read_bytes,
            not_read_reason: (not_read_bytes > 0)
                .then(|| format!("{} does not hold all missing data", self.budget)),
            ..Report::default()
        }
    }
}
