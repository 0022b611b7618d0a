//! The state that the thread which reads shares with those that ask for a report.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::files::{Files, Piece};
use crate::prefetch::Allowed;
use crate::stop::Stop;

/// The limits of the work, and the work so far.
#[derive(Debug)]
pub struct Shared {
    pub budget: Allowed,
    pub stop: Stop,
    work: Mutex<Work>,
    pub ended: Condvar,
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
                is_full: false,
                budget: String::new(),
                has_ended: false,
            }),
            ended: Condvar::new(),
        }
    }

    /// The state is consistent after each change.
    pub fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work so far.
#[derive(Debug)]
pub struct Work {
    pub files: Files,
    pub begin: Instant,
    /// The end of the last read.
    pub last: Instant,
    /// The missing bytes that were read.
    pub read_bytes: u64,
    /// True if the budget did not hold all missing bytes, and what the budget is.
    pub is_full: bool,
    pub budget: String,
    pub has_ended: bool,
}

/// The work of a [`ReadAhead`](super::ReadAhead), in bytes.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were cached when their file was examined.
    pub was_resident_bytes: u64,
    /// Bytes that were read and left the page cache again, and that the program was not seen to use.
    pub wasted_bytes: u64,
    /// The bytes that were read per second, from the beginning to the end of the last read.
    pub bytes_per_s: u64,
    /// Missing bytes that were neither read nor used, because the budget does not hold all missing
    /// bytes.
    pub not_read_bytes: u64,
    /// The reason; `None` if the budget holds all missing bytes.
    pub not_read_reason: Option<String>,
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
