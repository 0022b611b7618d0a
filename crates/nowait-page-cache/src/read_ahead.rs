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
mod shared;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reader::Reader;
pub use shared::Report;
use shared::Shared;

use crate::file_ref::FileRef;
use crate::prefetch::Allowed;
use crate::reporter::Reporter;
use crate::stop::Stop;
use crate::visit::{Given, Kinds, given, visit};
use nowait_residency::ranges::Ranges;

/// A file or directory, and the ranges to be read, in any order; `None` for all.
pub type Chosen = (PathBuf, Option<Vec<Range<u64>>>);

/// Reads files ahead of the program, in their order.
#[derive(Debug)]
pub struct ReadAhead {
    chosen: Vec<Chosen>,
    shared: Shared,
}

impl ReadAhead {
    /// Nothing is read before [`run`](ReadAhead::run). The stop ends it.
    pub fn new(chosen: Vec<Chosen>, budget: Allowed, stop: Stop) -> ReadAhead {
        ReadAhead {
            chosen,
            shared: Shared::new(budget, stop),
        }
    }

    /// The stop that ends the work.
    pub fn stop(&self) -> &Stop {
        &self.shared.stop
    }

    /// Looks at each path, and reports those that are neither a regular file nor a directory.
    pub fn look(&self, reporter: &dyn Reporter) {
        for (path, _) in self.chosen.iter().take_while(|_| !self.shared.stop.asked()) {
            let _: Option<Given> = given(path, Kinds::Regular, reporter);
        }
    }

    /// Reads until all is read or the stop is requested, and until the reads in flight have ended.
    /// If the budget does not hold all, it continues until the stop.
    ///
    /// # Errors
    /// If no engine can be made, for example for lack of memory or threads.
    pub fn run(&self, reporter: &dyn Reporter) -> nowait::Result<()> {
        // Also after a panic, a thread that waits for the end is woken.
        struct End<'a>(&'a Shared);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.end();
            }
        }
        let _end = End(&self.shared);
        self.shared.lock().begin = Instant::now();
        let reader = Reader::new(&self.shared, reporter)?;
        self.read(reader, reporter);
        Ok(())
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
                &self.shared.stop,
                &mut each,
            );
            if self.shared.stop.asked() || visited.is_err() {
                break;
            }
        }
        reader.finish();
    }

    /// Waits until [`run`](ReadAhead::run) has ended, at most this long. Returns false after that.
    pub fn wait(&self, time: Duration) -> bool {
        self.shared.wait(time)
    }

    /// The work so far. Counts the pages that are cached now, or that were before [`evict`](Self::evict),
    /// until a stop is requested.
    pub fn report(&self, stop: &Stop) -> Report {
        let (mut report, wasted_bytes, files) = {
            let work = self.shared.lock();
            let files = work.files.iter().cloned().collect::<Vec<_>>();
            (work.report(), work.wasted_bytes, files)
        };
        for file in files.iter().take_while(|_| !stop.asked()) {
            let examined = &file.examined;
            report.was_resident_bytes += examined.cached.bytes();
            if wasted_bytes.is_none() {
                let unused = examined.missing.both(&file.read).without(&file.used);
                let wasted = |cached| unused.bytes().saturating_sub(cached);
                report.wasted_bytes += examined.cached_now(&unused).map_or(0, wasted);
            }
            if let Some(reason) = examined.reason {
                report.unknown.add(reason, examined.unknown.bytes());
            }
        }
        report.wasted_bytes += wasted_bytes.unwrap_or(0);
        report
    }

    /// Evicts what was read, until a stop is requested. What was cached before, or may have been, stays.
    pub fn evict(&self, stop: &Stop) {
        // Bytes that are evicted here are not wasted.
        let wasted_bytes = self.report(stop).wasted_bytes;
        self.shared.lock().wasted_bytes = Some(wasted_bytes);
        let files: Vec<_> = self.shared.lock().files.iter().cloned().collect();
        for file in files.iter().take_while(|_| !stop.asked()) {
            file.examined.evict(&file.read);
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
    fn a_thread_that_waits_for_the_end_does_not_wait_for_the_reader() {
        let ahead = ReadAhead::new(Vec::new(), Allowed::Percent(75), Stop::default());
        // The reader has the lock while it asks a server about a file.
        let _asks = ahead.shared.lock();
        assert!(!ahead.wait(Duration::from_millis(1)));
        ahead.shared.end();
        assert!(ahead.wait(Duration::ZERO));
    }

    #[test]
    fn the_first_file_is_read_before_the_others_are_found() {
        test_support::repeat::unless_reclaimed(|| {
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
        });
    }
}
