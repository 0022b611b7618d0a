//! The options for reading many files.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::queue::{Config, Queue};
use crate::engine::Engine;
use crate::task_group::TaskGroup;

/// Options for reading many files.
///
/// ```
/// let files = nowait::read_files::Options::new()
///     .max_buffered(64, 1 << 20)
///     .in_order(true)
///     .read(["Cargo.toml", "src/lib.rs"]);
/// let first = files.into_iter().next().expect("two paths")?;
/// assert!(first.path().ends_with("Cargo.toml"));
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    config: Config,
    engine: Option<Engine>,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// At most 1,024 files and 32 MiB in memory, in the order in which they are read, by at most
    /// 32 workers of the process's engine.
    pub fn new() -> Options {
        Options {
            config: Config {
                files: 1024,
                bytes: 32 << 20,
                in_order: false,
                keep_cache: false,
                workers: 32,
            },
            engine: None,
        }
    }

    /// Sets the limits for files that are taken from the paths, and for bytes of their contents
    /// that are held or about to be read, and that are not yet returned. A quarter of the bytes is
    /// for files in the page cache. A file that is larger than the other three quarters is read
    /// alone, while no other file of theirs is held.
    #[must_use]
    pub fn max_buffered(mut self, files: usize, bytes: u64) -> Options {
        self.config.files = files.max(1);
        self.config.bytes = bytes.max(1);
        self
    }

    /// Returns the files in the order of the paths. A file that is slow delays all files after it.
    /// The limit for bytes may be exceeded by the file that is to be returned next.
    #[must_use]
    pub fn in_order(mut self, yes: bool) -> Options {
        self.config.in_order = yes;
        self
    }

    /// Leaves the page cache as it was: the pages of a file that were not resident before are
    /// evicted when the file was read. See [`OpenOptions::keep_cache`](crate::OpenOptions::keep_cache).
    #[must_use]
    pub fn keep_cache(mut self, yes: bool) -> Options {
        self.config.keep_cache = yes;
        self
    }

    /// Sets the maximum number of workers. It is never more than half of the engine's. A worker has
    /// at most two descriptors open. One of the workers does not wait for the device, if there are
    /// several.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Options {
        self.config.workers = workers.max(1);
        self
    }

    /// Uses this engine's workers instead of those of the process's engine.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> Options {
        self.engine = Some(engine.clone());
        self
    }

    pub(super) fn group(&self) -> Arc<TaskGroup<Queue>> {
        let queue = Queue::new(self.config);
        let engine = self.engine.clone();
        TaskGroup::new("read_files", queue, subject(), engine)
    }

    /// The maximum number of files that are taken from the paths and not yet returned.
    pub(super) fn files(&self) -> usize {
        self.config.files
    }
}

/// The file and device whose shares of an engine's workers the reads count against. The files may
/// be on any device: all streams of files together count as one.
fn subject() -> (i32, u64) {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    // No descriptor is negative.
    (NEXT.fetch_add(1, Relaxed) | i32::MIN, u64::MAX)
}
