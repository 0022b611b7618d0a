//! The options of a scan.

use std::sync::Arc;

use super::dir::Dir;
use super::directory::Directory;
use super::entries::{Entries, Open};
use super::metadata::{Query, Xattrs};
use super::order::Order;
use super::plan::Plan;
use super::progress::{Config, Progress};
use crate::engine::Engine;
use crate::error::Result;
use crate::metadata::StatxMask;
use crate::task_group::{Job, TaskGroup};

/// Options for a scan.
///
/// ```
/// use nowait::StatxMask;
/// use nowait::scan::{Options, Order, Xattrs};
/// let scan = Options::new()
///     .metadata(StatxMask::BASIC_STATS)
///     .xattrs(Xattrs::Names)
///     .order(Order::Name)
///     .blocking_open("src")?;
/// let names: Vec<_> = scan.map(|e| Ok(e?.file_name().to_owned())).collect::<nowait::Result<_>>()?;
/// assert!(names.is_sorted());
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    config: Arc<Config>,
    workers: Option<usize>,
    engine: Option<Engine>,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// Names only, unordered, at most 65,536 entries and 32 MiB in memory, on the process's engine.
    pub fn new() -> Options {
        Options {
            config: Arc::new(Config {
                query: Query {
                    fields: None,
                    follow: false,
                    dont_sync: false,
                    xattrs: Xattrs::None,
                },
                order: Order::Unordered,
                buffered_entries: 65_536,
                buffered_bytes: 32 << 20,
                max_entries: u64::MAX,
                drop: false,
            }),
            workers: None,
            engine: None,
        }
    }

    pub(super) fn config(&mut self) -> &mut Config {
        Arc::make_mut(&mut self.config)
    }

    /// Asks for these fields of each entry: statx(2). Symbolic links are not followed.
    #[must_use]
    pub fn metadata(mut self, fields: StatxMask) -> Options {
        self.config().query.fields = Some(fields);
        self
    }

    /// Follows symbolic links: asks for the metadata of their targets. The entry's
    /// [`ino`](crate::scan::DirEntry::ino) and [`file_type`](crate::scan::DirEntry::file_type) are
    /// then those of the target, if they are among the [`metadata`](Options::metadata) and the
    /// target exists.
    #[must_use]
    pub fn follow(mut self, yes: bool) -> Options {
        self.config().query.follow = yes;
        self
    }

    /// Accepts the cached attributes of a network filesystem, however old they are
    /// (`AT_STATX_DONT_SYNC`).
    #[must_use]
    pub fn dont_sync(mut self, yes: bool) -> Options {
        self.config().query.dont_sync = yes;
        self
    }

    /// Reads extended attributes.
    #[must_use]
    pub fn xattrs(mut self, which: Xattrs) -> Options {
        self.config().query.xattrs = which;
        self
    }

    /// Sets the order of the entries.
    #[must_use]
    pub fn order(mut self, order: Order) -> Options {
        self.config().order = order;
        self
    }

    /// Sets the limits for entries, and for bytes of names, metadata and attributes, that are
    /// listed and not yet returned. Listing waits when a limit is reached. The limits are at least
    /// the entries of one system call. A scan by name ignores them.
    #[must_use]
    pub fn max_buffered(mut self, entries: usize, bytes: usize) -> Options {
        self.config().buffered_entries = entries.max(1);
        self.config().buffered_bytes = bytes.max(1);
        self
    }

    /// Ends the scan after this number of entries, the first ones in the directory's order. The
    /// directory is then not listed in parallel parts.
    #[must_use]
    pub fn max_entries(mut self, entries: u64) -> Options {
        self.config().max_entries = entries;
        self
    }

    /// Sets the maximum number of workers. It is never more than half of the engine's.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Options {
        self.workers = Some(workers);
        self
    }

    /// Uses this engine's workers instead of those of the process's engine.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> Options {
        self.engine = Some(engine.clone());
        self
    }

    /// The future of a scan or a walk that `open` begins in a worker.
    pub(crate) fn open_in_worker<S: 'static>(
        &self,
        open: impl FnOnce() -> Result<Entries<S>> + Send + 'static,
    ) -> Open<S> {
        Open::new(self.engine.clone(), open)
    }

    pub(super) fn group(&self, directory: Arc<Directory>) -> Arc<TaskGroup<Progress>> {
        let dir = Arc::new(Dir::root(&directory));
        self.group_for("scan", self.progress(&directory, dir), &directory)
    }

    /// A task group for another job.
    pub(crate) fn group_for<J: Job>(
        &self,
        name: &'static str,
        job: J,
        of: &Directory,
    ) -> Arc<TaskGroup<J>> {
        TaskGroup::new(name, job, of.subject(), self.engine.clone())
    }

    /// The options of a readahead: every inode is read, and the results are dropped.
    pub(super) fn dropping(&self) -> Options {
        let mut options = self.clone();
        let config = options.config();
        config.query.fields.get_or_insert(StatxMask::BASIC_STATS);
        config.query.dont_sync = true;
        config.order = Order::Unordered;
        config.drop = true;
        options
    }

    /// The number of entries after which the listing ends.
    pub(super) fn get_max_entries(&self) -> u64 {
        self.config.max_entries
    }

    /// The maximum number of entries that are listed and not yet returned.
    pub(crate) fn buffered_entries(&self) -> usize {
        self.config.buffered_entries
    }

    /// Returns true if symbolic links are followed.
    pub(crate) fn follows(&self) -> bool {
        self.config.query.follow
    }

    /// The decision how this directory is scanned.
    pub(crate) fn progress(&self, directory: &Arc<Directory>, dir: Arc<Dir>) -> Progress {
        let Config { order, query, .. } = &*self.config;
        let plan = Plan::new(
            directory.filesystem(),
            *order,
            query.is_none(),
            self.workers,
        );
        Progress::new(directory.clone(), dir, self.config.clone(), plan)
    }
}
