//! The tree of a walk: open directories, directories that wait to be opened, and results.
//!
//! ```text
//!  waiting (names) ─► open ─► small: listed and queried by that worker, in one piece
//!                             large: one of the open directories, whose pieces all workers share
//! ```
//!
//! A directory with subdirectories that wait is kept open by the [`Opener`], which opens them. Those
//! take at most a quarter of the descriptors.
//!
//! The subdirectories of a directory are opened in the order of its batches, before those of other
//! directories. Directories created in sequence usually have ascending disk addresses, and programs
//! often read them in that order.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metadata::FileType;

use super::config::Config;
use super::opener::{KEPT, KEPT_PER_THREAD, Opener};
use super::stats::Stats;
use super::waiting::{Waiting, WaitingList};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::{self, Allowed, Batch, Dir, Directory, FLAGS, Progress};
use crate::sys::Errno;
use crate::sys::retry;
use crate::task_group::Job;

/// The maximum number of entries of a directory that one worker scans alone. Fewer are not worth
/// sharing.
const SMALL: usize = 512;
/// The maximum time for which one worker scans a directory alone. If each entry waits for the
/// device, few are worth sharing.
const ALONE: Duration = Duration::from_millis(1);
/// The time for which a worker waits for a descriptor that the rest of the process gives back.
const SHORTAGE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Tree {
    config: Arc<Config>,
    /// `None` when no directory remains to be opened.
    opener: Option<Arc<Opener>>,
    workers: usize,
    /// The number of directories that may be opened.
    max_directories: u64,
    /// Directories that have been found and not yet opened.
    waiting: WaitingList,
    open: Vec<Branch>,
    /// The number of workers that are opening a directory.
    opening: usize,
    /// The id of the next open directory.
    next: u64,
    /// The maximum number of open descriptors. It is lowered if the process has no more, and raised
    /// again with each directory that is opened.
    descriptors: usize,
    /// False since a worker has waited for a descriptor in vain, until another directory is opened.
    may_wait: bool,
    ready: VecDeque<Result<Batch>>,
    ready_entries: usize,
    /// The work done so far, without that in the open directories.
    stats: Stats,
}

/// An open directory.
#[derive(Debug)]
struct Branch {
    id: u64,
    directory: Arc<Directory>,
    progress: Progress,
}

#[derive(Debug)]
pub(super) enum Piece {
    Open {
        waiting: Waiting,
        opener: Arc<Opener>,
        config: Arc<Config>,
        /// No other directory of the walk is open meanwhile.
        alone: bool,
        /// If there is no descriptor, the worker waits for one.
        may_wait: bool,
    },
    Of(u64, scan::Piece),
}

pub(super) enum Done {
    Opened {
        waiting: Waiting,
        alone: bool,
        opened: Result<Box<Opened>, Refused>,
    },
    Of(u64, Box<scan::Done>),
}

/// A directory that was opened, and the progress of the worker that opened it.
pub(super) struct Opened {
    directory: Arc<Directory>,
    progress: Progress,
    ready: Vec<Result<Batch>>,
}

/// The reason why a directory was not entered.
pub(super) enum Refused {
    Os(Errno),
    Cycle,
    OtherFilesystem,
    /// By the filter of the program.
    Filtered,
    Error(Error),
}

impl Tree {
    pub(super) fn new(root: &Arc<Directory>, config: Config) -> Tree {
        let branch = Branch {
            id: 0,
            directory: root.clone(),
            progress: config.scan.progress(root, Arc::new(Dir::root(root))),
        };
        Tree {
            workers: branch.progress.max_workers(),
            descriptors: config.descriptors,
            max_directories: u64::MAX,
            may_wait: true,
            opener: Some(Arc::new(Opener::of(root.clone(), config.scan.follows()))),
            config: Arc::new(config),
            waiting: WaitingList::default(),
            open: vec![branch],
            opening: 0,
            next: 1,
            ready: VecDeque::new(),
            ready_entries: 0,
            stats: Stats {
                directories: 1,
                ..Stats::default()
            },
        }
    }

    /// The work done so far.
    pub(super) fn stats(&self) -> Stats {
        let open = self.open.iter().map(|branch| branch.progress.stats());
        Stats {
            scan: open.fold(self.stats.scan, scan::Stats::plus),
            waiting: (self.waiting.len() + self.opening) as u64,
            ..self.stats
        }
    }

    fn entries(&self) -> usize {
        let open = self.open.iter().map(|branch| branch.progress.entries());
        self.ready_entries + open.sum::<usize>()
    }

    /// The number of descriptors that are open or about to be.
    fn descriptors(&self) -> usize {
        let open = self.open.iter().map(|branch| branch.progress.descriptors());
        let kept = self.opener.as_ref().map_or(0, |opener| opener.kept());
        1 + self.opening + open.sum::<usize>() + kept
    }

    /// The permissions that follow from the walk's limits of entries and descriptors.
    fn allowed(&self) -> Allowed {
        let entries = self.entries();
        Allowed {
            list: entries == 0
                || entries + SMALL * (1 + self.opening) <= self.config.scan.buffered_entries(),
            split: self.descriptors() < self.descriptors,
        }
    }

    /// The maximum number of directories that are kept open.
    fn most_kept(&self) -> usize {
        let quarter = self.descriptors / 4;
        (KEPT_PER_THREAD * self.workers).min(KEPT).min(quarter)
    }

    /// Passes the current permissions to every open directory.
    fn update_allowed(&mut self) {
        if let Some(opener) = &self.opener {
            opener.set_limit(self.most_kept());
        }
        let allowed = self.allowed();
        for branch in &mut self.open {
            branch.progress.allow(allowed);
        }
    }

    /// Sets the number of directories that may be opened.
    pub(super) fn set_max_directories(&mut self, most: u64) {
        self.max_directories = most;
    }

    fn may_open(&self) -> bool {
        let allowed = self.allowed();
        let room = allowed.list && allowed.split;
        !self.waiting.is_empty()
            && self.stats.directories + (self.opening as u64) < self.max_directories
            && (room || (self.open.is_empty() && self.opening == 0 && allowed.list))
    }

    /// Takes the results of a directory, and closes it if those were the last.
    fn collect_results(&mut self, at: usize) {
        let branch = &mut self.open[at];
        let mut ready = Vec::new();
        while let Some(batch) = branch.progress.pop_ready() {
            ready.push(batch);
        }
        let directory = branch.directory.clone();
        if branch.progress.is_over() {
            let stats = self.open.swap_remove(at).progress.stats();
            self.stats.scan = self.stats.scan.plus(stats);
        }
        self.add_results(ready, &directory);
    }

    /// Stores the results of a directory. Its subdirectories are added to the waiting ones.
    fn add_results(&mut self, batches: Vec<Result<Batch>>, directory: &Arc<Directory>) {
        for batch in batches {
            if let Ok(batch) = &batch {
                self.ready_entries += batch.len();
                if batch.dir().depth() < self.config.depth {
                    self.add_subdirectories(batch, directory);
                }
            }
            self.ready.push_back(batch);
        }
    }

    fn add_subdirectories(&mut self, batch: &Batch, directory: &Arc<Directory>) {
        let before = self.waiting.len();
        for (name, kind, sure) in batch.kinds() {
            let is_uncertain = match kind {
                FileType::Dir => !sure,
                FileType::Unknown => true,
                FileType::Symlink if self.config.scan.follows() => true,
                _ => continue,
            };
            self.waiting.push(Waiting {
                parent: batch.dir().clone(),
                name: name.into(),
                is_uncertain,
            });
        }
        if self.waiting.len() > before
            && let Some(opener) = &self.opener
        {
            opener.keep(batch.dir(), directory);
        }
    }

    fn add_opened(&mut self, waiting: Waiting, alone: bool, opened: Result<Box<Opened>, Refused>) {
        self.opening -= 1;
        let error = match opened {
            Ok(opened) => {
                let Opened {
                    directory,
                    progress,
                    ready,
                } = *opened;
                self.stats.directories += 1;
                self.descriptors = self.config.descriptors.min(self.descriptors + 1);
                self.may_wait = true;
                self.add_results(ready, &directory);
                let (id, at) = (self.next, self.open.len());
                self.next += 1;
                self.open.push(Branch {
                    id,
                    directory,
                    progress,
                });
                return self.collect_results(at);
            }
            Err(Refused::OtherFilesystem | Refused::Filtered) => return,
            Err(Refused::Os(Errno::NOENT)) => {
                self.stats.vanished += 1;
                return;
            }
            Err(Refused::Os(Errno::NOTDIR | Errno::LOOP)) if waiting.is_uncertain => return,
            // The directory was replaced by another file.
            Err(Refused::Os(Errno::NOTDIR)) => {
                self.stats.vanished += 1;
                return;
            }
            Err(Refused::Os(errno)) if retry::is_shortage(errno) && !alone => {
                // Continue with fewer descriptors. This directory waits until some are closed.
                // Others may have been closed since it failed.
                self.descriptors = self.descriptors();
                self.waiting.put_back(waiting);
                return;
            }
            Err(Refused::Os(errno)) => {
                self.may_wait &= !retry::is_shortage(errno);
                Error::os("open", errno).on(Some(&waiting.path()))
            }
            Err(Refused::Cycle) => Error::new("walk", ErrorKind::Cycle).on(Some(&waiting.path())),
            Err(Refused::Error(error)) => error,
        };
        self.ready.push_back(Err(error));
    }
}

/// Opens a directory, unless it is not to be entered.
fn enter(
    waiting: &Waiting,
    opener: &Opener,
    config: &Config,
    may_wait: bool,
    over: &dyn Fn() -> bool,
) -> Result<Opened, Refused> {
    let parent = &waiting.parent;
    if let Some(filter) = &config.filter {
        let path = waiting.path();
        match filter.enters(&path, parent.depth() + 1) {
            Some(true) => {}
            Some(false) => return Err(Refused::Filtered),
            None => {
                let error = Error::os("filter_dirs", Errno::IO);
                return Err(Refused::Error(error.on(Some(&path))));
            }
        }
    }
    let root = opener.root();
    let open = || opener.open_in(parent, &waiting.name, FLAGS);
    let fd = match open() {
        Err(errno) if retry::is_shortage(errno) && may_wait => open_later(open, over),
        opened => opened,
    };
    let fd = fd.map_err(Refused::Os)?;
    let failed = |error: Error| Refused::Error(error.on(Some(&waiting.path())));
    let directory = Directory::new(fd, None, Some(root)).map_err(failed)?;
    if config.one_filesystem && directory.device() != root.device() {
        return Err(Refused::OtherFilesystem);
    }
    if parent.is_within(directory.id()) {
        return Err(Refused::Cycle);
    }
    let dir = Arc::new(Dir::below(parent, &waiting.name, &directory));
    let directory = Arc::new(directory);
    let mut progress = config.scan.progress(&directory, dir);
    progress.allow(Allowed {
        list: true,
        split: false,
    });
    Ok(Opened {
        directory,
        progress,
        ready: Vec::new(),
    })
}

/// Repeats an open that found no descriptor or no memory, until it succeeds or a time has passed.
fn open_later(
    open: impl Fn() -> Result<OwnedFd, Errno>,
    over: &dyn Fn() -> bool,
) -> Result<OwnedFd, Errno> {
    let end = Instant::now() + SHORTAGE;
    loop {
        std::thread::sleep(Duration::from_millis(1));
        match open() {
            Err(errno) if retry::is_shortage(errno) && Instant::now() < end && !over() => {}
            opened => return opened,
        }
    }
}

/// Scans a directory completely if it is small.
fn scan_small(mut opened: Opened, until: Option<Instant>, over: &dyn Fn() -> bool) -> Opened {
    let mut entries = 0;
    let until = until.unwrap_or_else(|| Instant::now() + ALONE);
    while entries < SMALL
        && Instant::now() < until
        && let Some(piece) = opened.progress.pick(false)
    {
        let done = Progress::run(piece, Some(until), over);
        opened.progress.finish_piece(done);
        while let Some(batch) = opened.progress.pop_ready() {
            entries += batch.as_ref().map_or(0, Batch::len);
            opened.ready.push(batch);
        }
    }
    opened
}

impl Job for Tree {
    type Piece = Piece;
    type Done = Done;
    type Out = Batch;

    /// Takes a piece of an open directory, or else opens another directory.
    fn pick(&mut self, slow: bool) -> Option<Piece> {
        let of_open = self.open.iter_mut().find_map(|branch| {
            let piece = branch.progress.pick(slow)?;
            Some(Piece::Of(branch.id, piece))
        });
        if of_open.is_some() || !self.may_open() {
            self.update_allowed();
            return of_open;
        }
        let opener = self.opener.clone()?;
        let waiting = self.waiting.pop()?;
        let alone = !self.allowed().split;
        let may_wait = alone && self.may_wait;
        self.opening += 1;
        self.update_allowed();
        Some(Piece::Open {
            waiting,
            opener,
            config: self.config.clone(),
            alone,
            may_wait,
        })
    }

    fn run(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        match piece {
            Piece::Of(id, piece) => Done::Of(id, Box::new(Progress::run(piece, until, over))),
            Piece::Open {
                waiting,
                opener,
                config,
                alone,
                may_wait,
            } => {
                let opened = enter(&waiting, &opener, &config, may_wait, over);
                let opened = opened.map(|opened| scan_small(opened, until, over));
                Done::Opened {
                    waiting,
                    alone,
                    opened: opened.map(Box::new),
                }
            }
        }
    }

    fn is_timed(piece: &Piece) -> bool {
        match piece {
            Piece::Of(_, piece) => Progress::is_timed(piece),
            Piece::Open { .. } => true,
        }
    }

    fn finish_piece(&mut self, done: Done) {
        match done {
            Done::Opened {
                waiting,
                alone,
                opened,
            } => self.add_opened(waiting, alone, opened),
            Done::Of(id, done) => {
                if let Some(at) = self.open.iter().position(|branch| branch.id == id) {
                    self.open[at].progress.finish_piece(*done);
                    self.collect_results(at);
                }
            }
        }
        self.update_allowed();
    }

    fn runnable(&self) -> usize {
        let open = self.open.iter().map(|branch| branch.progress.runnable());
        let more = if self.may_open() {
            self.waiting.len()
        } else {
            0
        };
        open.sum::<usize>() + more
    }

    fn pop_ready(&mut self) -> Option<Result<Batch>> {
        let batch = self.ready.pop_front()?;
        if let Ok(batch) = &batch {
            self.ready_entries -= batch.len();
        }
        self.update_allowed();
        Some(batch)
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn close(&mut self) {
        if self.waiting.is_empty() && self.open.is_empty() && self.opening == 0 {
            self.opener = None;
        }
    }

    fn clear(&mut self) {
        self.opener = None;
        self.waiting.clear();
        self.open.clear();
        self.ready.clear();
        self.ready_entries = 0;
    }

    fn max_workers(&self) -> usize {
        self.workers
    }
}
