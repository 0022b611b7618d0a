//! Reads files into the page cache while the program loads them.
//!
//! ```text
//!  run, in a thread: visit ─► Reader: examine, read ahead of the program's position ─► ended
//!  report: what was read, and was evicted before its use        evict: what was read
//! ```

mod depth;
mod examined;
mod files;
mod follower;
mod reader;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::{Files, Piece};
use reader::Reader;

use crate::file_ref::FileRef;
use crate::prefetch::Allowed;
use crate::ranges::Ranges;
use crate::reporter::Reporter;
use crate::stop::Stop;
use crate::visit::{Given, Kinds, given, visit};

/// A file or directory, and the ranges to be read, in any order; `None` for all.
pub type Chosen = (PathBuf, Option<Vec<Range<u64>>>);

/// Reads files ahead of the program, in their order.
#[derive(Debug)]
pub struct ReadAhead {
    chosen: Vec<Chosen>,
    budget: Allowed,
    stop: Stop,
    work: Mutex<Work>,
    ended: Condvar,
}

/// The work so far.
#[derive(Debug)]
struct Work {
    files: Files,
    begin: Instant,
    /// The end of the last read.
    last: Instant,
    /// The missing bytes that were read.
    read_bytes: u64,
    /// True if the budget did not hold all missing bytes, and what the budget is.
    is_full: bool,
    budget: String,
    has_ended: bool,
}

/// The work of a [`ReadAhead`], in bytes.
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

impl ReadAhead {
    /// Nothing is read before [`run`](ReadAhead::run). The stop ends it.
    pub fn new(chosen: Vec<Chosen>, budget: Allowed, stop: Stop) -> ReadAhead {
        let now = Instant::now();
        ReadAhead {
            chosen,
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

    /// The stop that ends the work.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Looks at each path, and reports those that are neither a regular file nor a directory.
    pub fn look(&self, reporter: &dyn Reporter) {
        for (path, _) in self.chosen.iter().take_while(|_| !self.stop.asked()) {
            let _: Option<Given> = given(path, Kinds::Regular, reporter);
        }
    }

    /// Reads until all is read or the stop is requested, and until the reads in flight have ended.
    /// If the budget does not hold all, it continues until the stop.
    ///
    /// # Errors
    /// If no engine can be made, for example for lack of memory or threads.
    pub fn run(&self, reporter: &dyn Reporter) -> nowait::Result<()> {
        self.lock().begin = Instant::now();
        let read = Reader::new(self, reporter).map(|reader| self.read(reader, reporter));
        self.lock().has_ended = true;
        self.ended.notify_all();
        read
    }

    fn read(&self, mut reader: Reader<'_>, reporter: &dyn Reporter) {
        for (path, ranges) in &self.chosen {
            let bytes = ranges
                .as_ref()
                .map(|ranges| ranges.iter().cloned().collect());
            let bytes: Option<Arc<Ranges>> = bytes.map(Arc::new);
            let mut each = |file: FileRef| reader.add(file, bytes.clone());
            let walking = nowait::walk::Options::new();
            let visited = visit(
                path,
                Kinds::Regular,
                walking,
                reporter,
                &self.stop,
                &mut each,
            );
            if self.stop.asked() || visited.is_err() {
                break;
            }
        }
        reader.finish();
    }

    /// Waits until [`run`](ReadAhead::run) has ended, at most this long. Returns false after that.
    pub fn wait(&self, time: Duration) -> bool {
        let work = self.lock();
        let running = |work: &mut Work| !work.has_ended;
        let waited = self.ended.wait_timeout_while(work, time, running);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The work so far. Counts the pages that are cached now, until a stop is requested.
    pub fn report(&self, stop: &Stop) -> Report {
        let (mut report, files) = {
            let work = self.lock();
            let files = work.files.iter().map(|(_, file)| file.clone());
            (work.report(), files.collect::<Vec<_>>())
        };
        for file in files.iter().take_while(|_| !stop.asked()) {
            report.was_resident_bytes += file.examined.cached_bytes;
            let unused = file.examined.missing.both(&file.read).without(&file.used);
            let cached = file.examined.cached_now(&unused);
            report.wasted_bytes += unused.bytes().saturating_sub(cached);
        }
        report
    }

    /// Evicts what was read, until a stop is requested. What was cached before stays.
    pub fn evict(&self, stop: &Stop) {
        let files: Vec<_> = self
            .lock()
            .files
            .iter()
            .map(|(_, file)| file.clone())
            .collect();
        for file in files.iter().take_while(|_| !stop.asked()) {
            file.examined.evict(&file.read);
        }
    }

    /// The state is consistent after each change.
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Counts the first `n` bytes of a piece.
    fn read(&mut self, piece: &Piece, n: u64) {
        let start = piece.range.start;
        self.files.read(piece.file, start..start + n);
        self.read_bytes += piece.missing.min(n);
        self.last = Instant::now();
    }

    /// The numbers that need no query.
    fn report(&self) -> Report {
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

#[cfg(test)]
mod tests {
    use std::fmt::Display;
    use std::fs::{self, File};
    use std::path::Path;

    use nowait::residency::residency;
    use rustix::fs::Advice;
    use rustix::io::Errno;

    use super::*;

    /// Waits in the report of a failure until a file is cached.
    struct Waits(File);

    impl Reporter for Waits {
        fn failure(&self, _: &Path, _: Option<Errno>, _: &dyn Display) {
            for _ in 0..6000 {
                let cached = residency(&self.0, 0..u64::MAX).unwrap().known().unwrap();
                if cached.cached == cached.pages {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("the first file is not read while the next one is looked for");
        }

        fn note(&self, _: &Path, _: &dyn Display) {}
    }

    #[test]
    fn the_first_file_is_read_before_the_others_are_found() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("first");
        fs::write(&path, vec![7; 4 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let missing = directory.path().join("missing");
        let chosen = vec![(path, None), (missing, None)];
        let ahead = ReadAhead::new(chosen, Allowed::Percent(75), Stop::default());
        ahead.run(&Waits(file)).unwrap();
        let report = ahead.report(&Stop::default());
        assert_eq!(report.read_bytes + report.was_resident_bytes, 4 << 20);
        assert_eq!((report.wasted_bytes, report.not_read_bytes), (0, 0));
    }
}
