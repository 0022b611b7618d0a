//! Scan: one directory, its entries with metadata and extended attributes, at the speed of its device.
//!
//! ```text
//!  list (getdents64, in parallel) ─► gathered ─► sorted by inode ─► asked (statx, xattrs) ─► batches
//!  └─────────────────────────────── at most a window of them ──────────────────────────────┘
//! ```
//!
//! A directory that is not cached costs one wait after the other when it is listed by one thread and
//! asked about name by name. A [`Scan`] lists several parts of it at once where the filesystem's
//! directory positions can be cut (ext4, xfs, btrfs), sorts what it has listed by inode number, and
//! asks from many of the engine's workers, so that the device's queue is full and its blocks are read
//! once. A small directory that is cached is scanned by the caller alone, without any handoff.
//!
//! ```
//! use nowait::scan::{self, StatxFlags};
//!
//! let scan = scan::Options::new().metadata(StatxFlags::BASIC_STATS).blocking_open("src")?;
//! let mut bytes = 0;
//! for entry in scan {
//!     let entry = entry?;
//!     if let Some(Ok(stat)) = entry.metadata() {
//!         bytes += stat.stx_size;
//!     }
//! }
//! assert!(bytes > 0);
//! # Ok::<(), nowait::Error>(())
//! ```
//!
//! # What comes, under change
//! A name that is in the directory from before the scan is opened until it is over comes exactly once.
//! One that is created, removed or renamed meanwhile comes once or not at all, as for readdir(3); a
//! renamed file may come under both names.
//!
//! # Errors
//! An entry whose metadata can't be had carries its own error, and the scan goes on. When a part of
//! the directory can't be listed, the scan brings everything else, and an error among the batches says
//! that it is not whole.
//!
//! # Stalled devices
//! [`Scan::cancel`] and [`Canceller::cancel`] return at once, and so does whoever waits for a batch:
//! workers stay with the device. One exception: for its first millisecond (three while everything is
//! cached), and until the system call that it is in comes back, a blocking scan works in the caller.
//! [`Options::caller`] turns that off.

mod crew;
mod directory;
mod entry;
mod list;
mod metadata;
mod order;
mod plan;
mod progress;
mod readahead;

use std::future::Future;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

pub use entry::{Batch, Entry, Xattrs as EntryXattrs};
pub use metadata::Xattrs;
pub use order::{Order, Sweep};
pub use plan::Plan;
pub use readahead::{Limits, Readahead, readahead, readahead_of};
pub use rustix::fs::{FileType, Statx, StatxFlags};

pub(crate) use crew::{Crew, Job, Tally};
pub(crate) use directory::{Directory, FLAGS, OpenDirectory};
#[cfg(fuzzing)]
pub use list::fuzzing::exactly_once;
use metadata::Questions;
use plan::Insisted;
use progress::Wish;
pub(crate) use progress::{Counts, Done, Leave, Piece, Progress};

use crate::engine::Engine;
use crate::error::Result;

/// How a directory is to be scanned.
///
/// ```
/// use nowait::scan::{Options, Order, StatxFlags, Xattrs};
/// let scan = Options::new()
///     .metadata(StatxFlags::BASIC_STATS)
///     .xattrs(Xattrs::Names)
///     .order(Order::Name)
///     .blocking_open("src")?;
/// let names: Vec<_> = scan.map(|e| Ok(e?.name().to_owned())).collect::<nowait::Result<_>>()?;
/// assert!(names.is_sorted());
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    wish: Arc<Wish>,
    insisted: Insisted,
    engine: Option<Engine>,
    caller: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// Names only, unordered, a window of 65,536 entries or 32 MiB, on the process's engine.
    pub fn new() -> Options {
        Options {
            wish: Arc::new(Wish {
                questions: Questions {
                    fields: None,
                    follow: false,
                    dont_sync: false,
                    xattrs: Xattrs::None,
                },
                order: Order::Unordered,
                entries: 65_536,
                bytes: 32 << 20,
                at_most: u64::MAX,
                drop: false,
            }),
            insisted: Insisted::default(),
            engine: None,
            caller: true,
        }
    }

    fn wish(&mut self) -> &mut Wish {
        Arc::make_mut(&mut self.wish)
    }

    /// Asks for these fields of each entry: statx(2), of a symbolic link itself.
    #[must_use]
    pub fn metadata(mut self, fields: StatxFlags) -> Options {
        self.wish().questions.fields = Some(fields);
        self
    }

    /// Asks what a symbolic link leads to, instead of the link itself.
    #[must_use]
    pub fn follow(mut self, yes: bool) -> Options {
        self.wish().questions.follow = yes;
        self
    }

    /// Takes what a network filesystem has cached, however old (`AT_STATX_DONT_SYNC`).
    #[must_use]
    pub fn dont_sync(mut self, yes: bool) -> Options {
        self.wish().questions.dont_sync = yes;
        self
    }

    /// Brings extended attributes.
    #[must_use]
    pub fn xattrs(mut self, which: Xattrs) -> Options {
        self.wish().questions.xattrs = which;
        self
    }

    /// In which order entries come.
    #[must_use]
    pub fn order(mut self, order: Order) -> Options {
        self.wish().order = order;
        self
    }

    /// How many entries, and bytes of names, metadata and attributes, may be between being listed and
    /// being handed out. Listing waits when there is no more room. Raised to what one system call
    /// brings; a scan by name ignores it.
    #[must_use]
    pub fn window(mut self, entries: usize, bytes: usize) -> Options {
        self.wish().entries = entries.max(1);
        self.wish().bytes = bytes.max(1);
        self
    }

    /// Ends after so many entries.
    #[must_use]
    pub fn at_most(mut self, entries: u64) -> Options {
        self.wish().at_most = entries;
        self
    }

    /// Insists on the number of parts that are listed at the same time. Where positions can't be cut
    /// it stays 1.
    #[must_use]
    pub fn parts(mut self, parts: usize) -> Options {
        self.insisted.parts = Some(parts);
        self
    }

    /// Insists on the order in which metadata is asked for.
    #[must_use]
    pub fn sweep(mut self, sweep: Sweep) -> Options {
        self.insisted.sweep = Some(sweep);
        self
    }

    /// Insists on how many workers at most help; never more than half of the engine's.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Options {
        self.insisted.workers = Some(workers);
        self
    }

    /// On this engine's workers, instead of the process's engine's.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> Options {
        self.engine = Some(engine.clone());
        self
    }

    /// Whether a blocking scan begins in the caller (it does if this is not set): a small directory
    /// that is cached is done there before a worker could begin. Without it nothing but the opening
    /// is done in the caller, which therefore is never held by a device.
    #[must_use]
    pub fn caller(mut self, yes: bool) -> Options {
        self.caller = yes;
        self
    }

    /// Opens the directory and begins; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<Scan> {
        Ok(self.start(Directory::blocking_open(path.as_ref())?))
    }

    /// Opens the directory on the engine and begins.
    pub fn open(&self, path: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            open: self.open_directory(path.as_ref()),
        }
    }

    pub(crate) fn open_directory(&self, path: &Path) -> OpenDirectory {
        OpenDirectory::new(path, self.engine.as_ref())
    }

    /// Begins on an open directory, from its first entry on. Its own position moves, also that of
    /// other descriptors of the same open file.
    ///
    /// # Errors
    /// ENOTDIR if it is none; what fstat(2), fstatfs(2) and lseek(2) say.
    pub fn on(&self, fd: impl Into<OwnedFd>) -> Result<Scan> {
        Ok(self.start(Directory::rewound(fd.into())?))
    }

    pub(crate) fn start(&self, directory: impl Into<Arc<Directory>>) -> Scan {
        let (crew, plan) = self.crew(directory.into());
        let batch = None;
        Scan { crew, plan, batch }
    }

    fn crew(&self, directory: Arc<Directory>) -> (Arc<Crew<Progress>>, Plan) {
        let progress = self.progress(&directory);
        let plan = *progress.plan();
        (self.crew_for("scan", progress, &directory), plan)
    }

    /// A crew of its own for another job.
    pub(crate) fn crew_for<J: Job>(
        &self,
        name: &'static str,
        job: J,
        of: &Directory,
    ) -> Arc<Crew<J>> {
        Crew::new(name, job, of.subject(), self.engine.clone(), self.caller)
    }

    /// Entries that may be between being listed and being handed out.
    pub(crate) fn entries(&self) -> usize {
        self.wish.entries
    }

    /// Whether links are followed.
    pub(crate) fn follows(&self) -> bool {
        self.wish.questions.follow
    }

    /// The decision: how this directory is scanned.
    pub(crate) fn progress(&self, directory: &Arc<Directory>) -> Progress {
        let mut plan = plan::choose(directory.filesystem(), self.insisted);
        if self.wish.order == Order::Inode {
            plan.sweep = Sweep::Inode;
        } else if self.wish.questions.is_none() {
            plan.sweep = Sweep::Listed;
        }
        Progress::new(directory.clone(), self.wish.clone(), plan)
    }
}

impl Job for Progress {
    type Piece = Piece;
    type Done = Done;
    type Out = Batch;

    fn pick(&mut self, slow: bool) -> Option<Piece> {
        self.pick(slow)
    }

    fn carry_out(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        Progress::carry_out(piece, until, over)
    }

    fn tells(piece: &Piece) -> bool {
        Progress::tells(piece)
    }

    fn take_in(&mut self, done: Done) {
        self.take_in(done);
    }

    fn waiting(&self) -> usize {
        self.waiting()
    }

    fn hand_out(&mut self) -> Option<Result<Batch>> {
        self.hand_out()
    }

    fn has_out(&self) -> bool {
        self.has_out()
    }

    fn close(&mut self) {
        self.close();
    }

    fn give_up(&mut self) {
        self.give_up();
    }

    fn most(&self) -> usize {
        self.plan().workers
    }
}

/// A scan that is going on. Dropping it cancels it.
///
/// Blocking it is an iterator of entries; as a future see [`batch`](Scan::batch).
#[derive(Debug)]
pub struct Scan {
    crew: Arc<Crew<Progress>>,
    plan: Plan,
    /// The batch that the iterator is in, and how far.
    batch: Option<(Batch, usize)>,
}

impl Scan {
    /// Opens a directory and lists it, names only; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path.
    pub fn blocking_open(path: impl AsRef<Path>) -> Result<Scan> {
        Options::new().blocking_open(path)
    }

    /// Opens a directory and lists it, names only.
    pub fn open(path: impl AsRef<Path>) -> Open {
        Options::new().open(path)
    }

    /// How it is done.
    ///
    /// ```
    /// let scan = nowait::Scan::blocking_open("src")?;
    /// println!("{:?}", scan.plan());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// What was done so far; nothing in a forked child.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.crew)
    }

    /// The next entries; `None` at the end. Blocks.
    ///
    /// # Errors
    /// Why a part of the directory is missing (more may come after it), or that it was cancelled.
    pub fn blocking_batch(&mut self) -> Option<Result<Batch>> {
        self.crew.next()
    }

    /// The next entries, as a future; `None` at the end. It can be dropped and asked for again.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let mut scan = nowait::Scan::open("src").await?;
    /// let mut entries = 0;
    /// while let Some(batch) = scan.batch().await {
    ///     entries += batch?.len();
    /// }
    /// assert!(entries > 10);
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn batch(&mut self) -> NextBatch<'_> {
        NextBatch { scan: self }
    }

    /// The next entries, as a stream's `poll_next` gives them.
    ///
    /// ```
    /// # use futures_util::StreamExt;
    /// # pollster::block_on(async {
    /// let mut scan = nowait::Scan::open("src").await?;
    /// let mut batches = futures_util::stream::poll_fn(move |cx| scan.poll_batch(cx));
    /// while let Some(batch) = batches.next().await {
    ///     assert!(batch?.len() > 0);
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Batch>>> {
        self.crew.poll(cx)
    }

    /// Calls `each` with every batch until it breaks off or all have come; blocks.
    ///
    /// # Errors
    /// The first reason why a part of the directory is missing, after all that is there has come; or
    /// that the scan was cancelled.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let mut names = 0;
    /// nowait::Scan::blocking_open("src")?.blocking_each(|batch| {
    ///     names += batch.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn blocking_each(mut self, mut each: impl FnMut(Batch) -> ControlFlow<()>) -> Result<()> {
        let mut whole = Ok(());
        while let Some(batch) = self.blocking_batch() {
            match batch {
                Ok(batch) => {
                    if each(batch).is_break() {
                        break;
                    }
                }
                Err(error) => whole = whole.and(Err(error)),
            }
        }
        whole
    }

    /// Ends it: whoever waits for a batch is told [`Cancelled`](crate::ErrorKind::Cancelled), and
    /// nothing comes any more. Returns at once; a worker that a device holds stays with it.
    pub fn cancel(&self) {
        self.crew.cancel();
    }

    /// Something to cancel it with from elsewhere, while a thread waits for its next batch.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(&self.crew)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.crew.cancel();
    }
}

impl Iterator for Scan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            if let Some((batch, at)) = &mut self.batch {
                if let Some(entry) = batch.get(*at) {
                    *at += 1;
                    return Some(Ok(entry));
                }
                self.batch = None;
            }
            match self.crew.next()? {
                Ok(batch) => self.batch = Some((batch, 0)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Cancels a [`Scan`] or a [`Walk`](crate::Walk), from any thread.
#[derive(Clone)]
pub struct Canceller(Weak<dyn Cancel>);

/// What can be cancelled.
pub(crate) trait Cancel: Send + Sync {
    fn cancel(&self);
}

impl<J: Job> Cancel for Crew<J> {
    fn cancel(&self) {
        self.cancel();
    }
}

impl Canceller {
    pub(crate) fn new<J: Job>(crew: &Arc<Crew<J>>) -> Canceller {
        let crew: Arc<dyn Cancel> = crew.clone();
        Canceller(Arc::downgrade(&crew))
    }

    /// Ends it; see [`Scan::cancel`]. One that is over, or dropped, is left alone.
    pub fn cancel(&self) {
        if let Some(crew) = self.0.upgrade() {
            crew.cancel();
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}

/// The future of [`Scan::open`] and [`Options::open`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open {
    options: Options,
    open: OpenDirectory,
}

impl Future for Open {
    type Output = Result<Scan>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Scan>> {
        let opened = Pin::new(&mut self.open).poll(cx);
        opened.map(|directory| Ok(self.options.start(directory?)))
    }
}

/// The future of [`Scan::batch`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct NextBatch<'a> {
    scan: &'a mut Scan,
}

impl Future for NextBatch<'_> {
    type Output = Option<Result<Batch>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.scan.poll_batch(cx)
    }
}

/// What a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Names that were listed.
    pub listed: u64,
    /// Entries that nothing more is asked about.
    pub done: u64,
    /// Of those, entries whose metadata could not be had.
    pub failed: u64,
    /// Parts in which the directory was listed.
    pub parts: u64,
    /// Pieces of it (a system call's worth of names, a batch of questions) that the caller did.
    pub by_caller: u64,
    /// Pieces that workers did.
    pub by_workers: u64,
    /// Pieces during which the device, or another thread, had to be waited for.
    pub waited: u64,
    /// The most workers that helped at the same time.
    pub workers: usize,
}

impl Stats {
    fn of(crew: &Crew<Progress>) -> Stats {
        let stats = crew.look(|progress, tally| Stats::new(progress.counts(), tally));
        stats.unwrap_or_default()
    }

    pub(crate) fn new(counts: Counts, tally: Tally) -> Stats {
        Stats {
            listed: counts.listed,
            done: counts.done,
            failed: counts.failed,
            parts: counts.cuts + 1,
            by_caller: tally.by_caller,
            by_workers: tally.by_workers,
            waited: tally.slept,
            workers: tally.most_workers,
        }
    }
}
