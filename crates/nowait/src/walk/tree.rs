//! The tree of a walk: open directories, directories that wait to be opened, and results.
//!
//! ```text
//!  waiting (paths) ─► open ─► small: listed and asked about by that worker, in one piece
//!                             large: one of the open directories, whose pieces all workers share
//! ```
//!
//! The subdirectories of a directory are opened in the order of its batches, before those of other directories. In
//! inode order they lead forwards on the device, and programs often go the same way.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metadata::FileType;

use super::beneath::{beneath, following};
use super::config::Config;
use super::entry::Found;
use super::place::Place;
use super::waiting::{Waiting, WaitingList};
use crate::error::{Error, ErrorKind, Result};
use crate::scan::{self, Batch, Counts, Directory, FLAGS, Leave, Progress};
use crate::sys::Errno;
use crate::sys::retry;
use crate::task_group::Job;

/// The maximum number of entries of a directory that one worker scans alone. Fewer are not worth sharing.
const SMALL: usize = 512;
/// The maximum time for which it does so. If each entry waits for the device, few are worth sharing.
const ALONE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Tree {
    config: Arc<Config>,
    /// `None` when no directory below it remains to be opened.
    root: Option<Arc<Directory>>,
    workers: usize,
    /// Directories that have been found and not yet opened.
    waiting: WaitingList,
    open: Vec<Branch>,
    /// The number of workers that are opening a directory.
    opening: usize,
    /// The id of the next open directory.
    next: u64,
    /// The maximum number of open descriptors. It is lowered if the process has no more, and raised again with each
    /// directory that is opened.
    descriptors: usize,
    ready: VecDeque<Result<Found>>,
    ready_entries: usize,
    tally: Tally,
}

/// The work that a walk has done so far, including finished directories.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) directories: u64,
    pub(super) vanished: u64,
}

/// An open directory.
#[derive(Debug)]
struct Branch {
    id: u64,
    place: Arc<Place>,
    progress: Progress,
}

#[derive(Debug)]
pub(super) enum Piece {
    Open {
        waiting: Waiting,
        root: Arc<Directory>,
        config: Arc<Config>,
        /// No other directory of the walk is open meanwhile.
        alone: bool,
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
    place: Arc<Place>,
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
        let path = root.path().cloned().unwrap_or_else(|| Path::new("").into());
        let branch = Branch {
            id: 0,
            place: Arc::new(Place::root(path, root)),
            progress: config.scan.progress(root),
        };
        Tree {
            workers: branch.progress.plan().workers,
            descriptors: config.descriptors,
            config: Arc::new(config),
            root: Some(root.clone()),
            waiting: WaitingList::default(),
            open: vec![branch],
            opening: 0,
            next: 1,
            ready: VecDeque::new(),
            ready_entries: 0,
            tally: Tally {
                directories: 1,
                ..Tally::default()
            },
        }
    }

    /// The work done so far.
    pub(super) fn tally(&self) -> Tally {
        let open = self.open.iter().map(|branch| branch.progress.counts());
        Tally {
            counts: open.fold(self.tally.counts, Counts::plus),
            ..self.tally
        }
    }

    fn entries(&self) -> usize {
        let open = self.open.iter().map(|branch| branch.progress.entries());
        self.ready_entries + open.sum::<usize>()
    }

    /// The number of descriptors that are open or about to be.
    fn descriptors(&self) -> usize {
        let open = self.open.iter().map(|branch| branch.progress.descriptors());
        1 + self.opening + open.sum::<usize>()
    }

    /// The permissions that follow from the walk's window and descriptors.
    fn leave(&self) -> Leave {
        let entries = self.entries();
        Leave {
            list: entries == 0
                || entries + SMALL * (1 + self.opening) <= self.config.scan.entries(),
            cut: self.descriptors() < self.descriptors,
        }
    }

    /// Passes the current permissions to every open directory.
    fn give_leave(&mut self) {
        let leave = self.leave();
        for branch in &mut self.open {
            branch.progress.give_leave(leave);
        }
    }

    fn may_open(&self) -> bool {
        let leave = self.leave();
        let room = leave.list && leave.cut;
        !self.waiting.is_empty()
            && (room || (self.open.is_empty() && self.opening == 0 && leave.list))
    }

    /// Takes the results of a directory, and closes it if those were the last.
    fn harvest(&mut self, at: usize) {
        let branch = &mut self.open[at];
        let place = branch.place.clone();
        let mut ready = Vec::new();
        while let Some(batch) = branch.progress.hand_out() {
            ready.push(batch);
        }
        if branch.progress.is_over() {
            let counts = self.open.swap_remove(at).progress.counts();
            self.tally.counts = self.tally.counts.plus(counts);
        }
        self.bring(&place, ready);
    }

    /// Stores the results of a directory. Its subdirectories are added to the waiting ones.
    fn bring(&mut self, place: &Arc<Place>, batches: Vec<Result<Batch>>) {
        for batch in batches {
            let found = batch.map(|batch| {
                self.ready_entries += batch.len();
                if place.depth() < self.config.depth {
                    self.note_directories(place, &batch);
                }
                Found::new(place.clone(), batch)
            });
            self.ready.push_back(found);
        }
    }

    fn note_directories(&mut self, place: &Arc<Place>, batch: &Batch) {
        for (name, kind, sure) in batch.kinds() {
            let perhaps = match kind {
                FileType::Dir => !sure,
                FileType::Unknown => true,
                FileType::Symlink if self.config.scan.follows() => true,
                _ => continue,
            };
            self.waiting.push(Waiting {
                parent: place.clone(),
                path: place.path().join(OsStr::from_bytes(name)).into(),
                perhaps,
            });
        }
    }

    fn take_opened(&mut self, waiting: Waiting, alone: bool, opened: Result<Box<Opened>, Refused>) {
        self.opening -= 1;
        let error = match opened {
            Ok(opened) => {
                let Opened {
                    place,
                    progress,
                    ready,
                } = *opened;
                self.tally.directories += 1;
                self.descriptors = self.config.descriptors.min(self.descriptors + 1);
                self.bring(&place, ready);
                let (id, at) = (self.next, self.open.len());
                self.next += 1;
                self.open.push(Branch {
                    id,
                    place,
                    progress,
                });
                return self.harvest(at);
            }
            Err(Refused::OtherFilesystem | Refused::Filtered) => return,
            Err(Refused::Os(Errno::NOENT)) => {
                self.tally.vanished += 1;
                return;
            }
            Err(Refused::Os(Errno::NOTDIR | Errno::LOOP)) if waiting.perhaps => return,
            // The directory was replaced by another file.
            Err(Refused::Os(Errno::NOTDIR)) => {
                self.tally.vanished += 1;
                return;
            }
            Err(Refused::Os(errno)) if retry::is_shortage(errno) && !alone => {
                // Continue with fewer descriptors. This directory waits until some are closed. Others may have been
                // closed since it failed.
                self.descriptors = self.descriptors();
                self.waiting.put_back(waiting);
                return;
            }
            Err(Refused::Os(errno)) => Error::os("open", errno).on(Some(&waiting.path)),
            Err(Refused::Cycle) => Error::new("walk", ErrorKind::Cycle).on(Some(&waiting.path)),
            Err(Refused::Error(error)) => error,
        };
        self.ready.push_back(Err(error));
    }
}

/// Opens a directory, and scans it completely if it is small.
fn open(
    waiting: &Waiting,
    root: &Directory,
    config: &Config,
    until: Option<Instant>,
    over: &dyn Fn() -> bool,
) -> Result<Opened, Refused> {
    let parent = &waiting.parent;
    if let Some(filter) = &config.filter {
        match filter.enters(&waiting.path, parent.depth() + 1) {
            Some(true) => {}
            Some(false) => return Err(Refused::Filtered),
            None => {
                let error = Error::os("filter_dirs", Errno::IO);
                return Err(Refused::Error(error.on(Some(&waiting.path))));
            }
        }
    }
    let relative = parent.relative(&waiting.path);
    let fd = if config.scan.follows() {
        following(root.as_fd(), relative, FLAGS)
    } else {
        beneath(root.as_fd(), relative, FLAGS)
    };
    let fd = fd.map_err(Refused::Os)?;
    let path = Some(waiting.path.clone());
    let directory = Directory::new(fd, path, Some(root)).map_err(Refused::Error)?;
    if config.one_filesystem && directory.device() != root.device() {
        return Err(Refused::OtherFilesystem);
    }
    if parent.is_within(&directory) {
        return Err(Refused::Cycle);
    }
    let place = Arc::new(Place::below(parent, waiting.path.clone(), &directory));
    let mut progress = config.scan.progress(&Arc::new(directory));
    progress.give_leave(Leave {
        list: true,
        cut: false,
    });
    let (mut ready, mut entries) = (Vec::new(), 0);
    let until = until.unwrap_or_else(|| Instant::now() + ALONE);
    while entries < SMALL
        && Instant::now() < until
        && let Some(piece) = progress.pick(false)
    {
        let done = Progress::carry_out(piece, Some(until), over);
        progress.take_in(done);
        while let Some(batch) = progress.hand_out() {
            entries += batch.as_ref().map_or(0, Batch::len);
            ready.push(batch);
        }
    }
    Ok(Opened {
        place,
        progress,
        ready,
    })
}

impl Job for Tree {
    type Piece = Piece;
    type Done = Done;
    type Out = Found;

    /// Takes a piece of an open directory, or else opens another directory.
    fn pick(&mut self, slow: bool) -> Option<Piece> {
        let of_open = self.open.iter_mut().find_map(|branch| {
            let piece = branch.progress.pick(slow)?;
            Some(Piece::Of(branch.id, piece))
        });
        if of_open.is_some() || !self.may_open() {
            self.give_leave();
            return of_open;
        }
        let root = self.root.clone()?;
        let waiting = self.waiting.pop()?;
        let alone = !self.leave().cut;
        self.opening += 1;
        self.give_leave();
        Some(Piece::Open {
            waiting,
            root,
            config: self.config.clone(),
            alone,
        })
    }

    fn carry_out(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        match piece {
            Piece::Of(id, piece) => Done::Of(id, Box::new(Progress::carry_out(piece, until, over))),
            Piece::Open {
                waiting,
                root,
                config,
                alone,
            } => {
                let opened = open(&waiting, &root, &config, until, over);
                Done::Opened {
                    waiting,
                    alone,
                    opened: opened.map(Box::new),
                }
            }
        }
    }

    fn tells(piece: &Piece) -> bool {
        match piece {
            Piece::Of(_, piece) => Progress::tells(piece),
            Piece::Open { .. } => true,
        }
    }

    fn take_in(&mut self, done: Done) {
        match done {
            Done::Opened {
                waiting,
                alone,
                opened,
            } => self.take_opened(waiting, alone, opened),
            Done::Of(id, done) => {
                if let Some(at) = self.open.iter().position(|branch| branch.id == id) {
                    self.open[at].progress.take_in(*done);
                    self.harvest(at);
                }
            }
        }
        self.give_leave();
    }

    fn waiting(&self) -> usize {
        let open = self.open.iter().map(|branch| branch.progress.waiting());
        let more = if self.may_open() {
            self.waiting.len()
        } else {
            0
        };
        open.sum::<usize>() + more
    }

    fn hand_out(&mut self) -> Option<Result<Found>> {
        let found = self.ready.pop_front()?;
        if let Ok(found) = &found {
            self.ready_entries -= found.batch().len();
        }
        self.give_leave();
        Some(found)
    }

    fn has_out(&self) -> bool {
        !self.ready.is_empty()
    }

    fn close(&mut self) {
        if self.waiting.is_empty() && self.open.is_empty() && self.opening == 0 {
            self.root = None;
        }
    }

    fn give_up(&mut self) {
        self.root = None;
        self.waiting.clear();
        self.open.clear();
        self.ready.clear();
        self.ready_entries = 0;
    }

    fn most(&self) -> usize {
        self.workers
    }
}
