//! The files that are taken from the paths and not yet returned.
//!
//! ```text
//!  untried ─► cached: in the page cache ───────────────────────────────► ready ─► returned
//!                 └─► deferred (by number) ─► read: waits for the device ──┘
//!                         └◄── needs more memory than was reserved ──┘
//!  └───────────────── at most so many files and bytes of their contents ─────────────────┘
//! ```
//!
//! All of these files are tried in the page cache first. Files that are not cached do not
//! delay cached files: one of the workers and a quarter of the memory are reserved for files that
//! were not tried. Memory is reserved before a file is read. If a file needs more, it is read again
//! later, with more.
//!
//! If the process has no descriptor or no memory for a file, the file is read again later, while
//! fewer others are read, and at last alone. The error is final if that read fails too.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use super::contents::{self, FileContents, Outcome};
use super::stats::Stats;
use crate::error::Result;
use crate::sys::reopen::Descriptors;
use crate::task_group::Job;

/// Files of a piece. The cost of passing a piece to a worker is then small compared with that of
/// its files.
const BATCH: usize = 32;
/// Files of a piece if each file may wait for the device.
const SLOW_BATCH: usize = 4;
/// The memory that is reserved for a piece of files that are tried in the page cache.
const TRY_BYTES: u64 = 1 << 20;
/// The memory that is reserved for a file of unknown size.
const GUESS: u64 = 64 << 10;

/// The limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) in_order: bool,
    pub(super) keep_cache: bool,
    pub(super) workers: usize,
}

/// A file that has not been read.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The index of the path among all paths.
    number: u64,
    path: PathBuf,
    /// The memory that the file needs, if it is known.
    needs: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Queue {
    config: Config,
    untried: VecDeque<Waiting>,
    deferred: BTreeMap<u64, Waiting>,
    /// The number of pieces that wait for the device.
    reading: usize,
    /// The number of pieces in progress, of both kinds.
    busy: usize,
    /// The maximum number of pieces in progress. It is halved if the process has no descriptors or
    /// no memory for a file, and raised again with each piece that has.
    most_busy: usize,
    /// Files that were read, by their number, or else in the order in which they were read.
    ready: BTreeMap<u64, Result<FileContents>>,
    /// The number of paths so far.
    added: u64,
    returned: u64,
    /// The bytes that are reserved or ready, of files from the page cache and of others.
    cached: u64,
    uncached: u64,
    stats: Stats,
}

/// Files for one worker.
#[derive(Debug)]
pub(super) struct Piece {
    /// Each file, and the memory that it may take.
    files: Vec<(Waiting, u64)>,
    how: How,
    /// The memory that is reserved for all of them.
    reserved: u64,
    /// No other piece is in progress meanwhile.
    alone: bool,
    keep_cache: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Try,
    Read,
}

/// The result of a piece.
pub(super) struct Done {
    how: How,
    reserved: u64,
    /// A file was not read because descriptors or memory were short.
    is_short: bool,
    read: Vec<(u64, Result<FileContents>)>,
    not_read: Vec<Waiting>,
    /// The files that no attempt was made to read.
    left: Vec<Waiting>,
}

impl Queue {
    pub(super) fn new(config: Config) -> Queue {
        Queue {
            config,
            untried: VecDeque::new(),
            deferred: BTreeMap::new(),
            reading: 0,
            busy: 0,
            most_busy: usize::MAX,
            ready: BTreeMap::new(),
            added: 0,
            returned: 0,
            cached: 0,
            uncached: 0,
            stats: Stats::default(),
        }
    }

    /// The work done so far, without the counters of the threads.
    pub(super) fn stats(&self) -> Stats {
        self.stats
    }

    /// Adds files to be read.
    pub(super) fn add(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            self.untried.push_back(Waiting {
                number: self.added,
                path,
                needs: None,
            });
            self.added += 1;
        }
    }

    /// The bytes that files from the page cache may take.
    fn cached_limit(&self) -> u64 {
        (self.config.bytes / 4).max(1)
    }

    /// The bytes that other files may take.
    fn uncached_limit(&self) -> u64 {
        self.config.bytes - self.cached_limit()
    }

    /// The memory to reserve for a file.
    fn need(&self, file: &Waiting) -> u64 {
        file.needs.unwrap_or(GUESS.min(self.uncached_limit()))
    }

    /// Returns true if a file may be read now. A file that exceeds the limit alone is read when no
    /// other file is. The file that is to be returned next must not wait for those that come
    /// after it.
    fn fits(&self, file: &Waiting) -> bool {
        let with = self.uncached.saturating_add(self.need(file));
        let next = self.config.in_order && file.number == self.returned;
        with <= self.uncached_limit() || self.uncached == 0 || next
    }

    fn may_try(&self) -> bool {
        let room = self.cached < self.cached_limit() && self.busy < self.most_busy;
        !self.untried.is_empty() && room
    }

    /// If the first deferred file waits for memory, no other file is read until it has begun.
    /// Otherwise it might wait without end.
    fn may_read(&self) -> bool {
        let workers = self.config.workers.saturating_sub(1).max(1);
        let first = self.deferred.first_key_value();
        let room = self.reading < workers && self.busy < self.most_busy;
        room && first.is_some_and(|(_, file)| self.fits(file))
    }

    /// The bytes that are reserved or ready, of files that are read in this way.
    fn held(&mut self, how: How) -> &mut u64 {
        match how {
            How::Try => &mut self.cached,
            How::Read => &mut self.uncached,
        }
    }

    fn reserve(&mut self, how: How, bytes: u64) {
        *self.held(how) += bytes;
        let held = self.cached + self.uncached;
        self.stats.max_held = self.stats.max_held.max(held);
    }

    fn piece_to_try(&mut self) -> Piece {
        let reserved = TRY_BYTES.min(self.cached_limit() - self.cached);
        self.reserve(How::Try, reserved);
        let files = self.untried.drain(..BATCH.min(self.untried.len()));
        Piece {
            files: files.map(|file| (file, reserved)).collect(),
            how: How::Try,
            reserved,
            alone: self.begins_alone(),
            keep_cache: self.config.keep_cache,
        }
    }

    fn piece_to_read(&mut self, most: usize) -> Piece {
        let mut files = Vec::new();
        let mut reserved: u64 = 0;
        while files.len() < most
            && let Some(entry) = self.deferred.first_entry()
        {
            let file = entry.remove();
            if !self.fits(&file) {
                self.deferred.insert(file.number, file);
                break;
            }
            let need = self.need(&file);
            let alone = need > self.uncached_limit();
            self.reserve(How::Read, need);
            reserved = reserved.saturating_add(need);
            // A file that is read alone may grow.
            files.push((file, if alone { u64::MAX } else { need }));
        }
        self.reading += 1;
        Piece {
            files,
            how: How::Read,
            reserved,
            alone: self.begins_alone(),
            keep_cache: self.config.keep_cache,
        }
    }

    /// Counts a piece that begins. Returns true if no other piece is in progress until it has
    /// ended.
    fn begins_alone(&mut self) -> bool {
        self.busy += 1;
        self.most_busy == 1
    }

    /// Counts a piece that ends.
    fn ends(&mut self, is_short: bool) {
        self.most_busy = match is_short {
            true => (self.busy / 2).max(1),
            false => self.most_busy.saturating_add(1),
        };
        self.busy -= 1;
    }

    fn is_ready(&self) -> bool {
        match self.ready.first_key_value() {
            Some((number, _)) => !self.config.in_order || *number == self.returned,
            None => false,
        }
    }
}

impl Job for Queue {
    type Piece = Piece;
    type Done = Done;
    type Out = FileContents;

    fn pick(&mut self, slow: bool) -> Option<Piece> {
        if self.may_try() {
            Some(self.piece_to_try())
        } else if self.may_read() {
            Some(self.piece_to_read(if slow { SLOW_BATCH } else { BATCH }))
        } else {
            None
        }
    }

    fn run(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        let Piece {
            files,
            how,
            reserved,
            alone,
            keep_cache,
        } = piece;
        let mut done = Done {
            how,
            reserved,
            is_short: false,
            read: Vec::with_capacity(files.len()),
            not_read: Vec::new(),
            left: Vec::new(),
        };
        let descriptors = Descriptors::open();
        // The files of a piece to try share its memory.
        let mut used = 0;
        for (file, room) in files {
            let attempted = done.read.len() + done.not_read.len() > 0;
            if over() || (attempted && until.is_some_and(|until| Instant::now() >= until)) {
                done.left.push(file);
                continue;
            }
            let outcome = match how {
                How::Try => contents::cached(file.path, room - used, &descriptors, keep_cache),
                How::Read => contents::read(file.path, room, &descriptors, keep_cache),
            };
            match outcome {
                Outcome::Read(result) => {
                    used += result.as_ref().map_or(0, |file| file.bytes().len() as u64);
                    done.read.push((file.number, result));
                }
                // No other file is being read that will give back what is short.
                Outcome::Short(_, error) if alone => done.read.push((file.number, Err(error))),
                Outcome::Short(path, _) => {
                    done.is_short = true;
                    done.not_read.push(Waiting { path, ..file });
                }
                Outcome::Not(path, needs) => done.not_read.push(Waiting {
                    path,
                    needs,
                    ..file
                }),
            }
        }
        done
    }

    /// Files that are tried do not reach the device.
    fn is_timed(piece: &Piece) -> bool {
        piece.how == How::Read
    }

    fn finish_piece(&mut self, done: Done) {
        self.ends(done.is_short);
        *self.held(done.how) -= done.reserved;
        match done.how {
            How::Try => done.left.into_iter().rev().for_each(|file| {
                self.untried.push_front(file);
            }),
            How::Read => {
                self.reading -= 1;
                let left = done.left.into_iter();
                self.deferred.extend(left.map(|file| (file.number, file)));
            }
        }
        let not_read = done.not_read.into_iter();
        let not_read = not_read.map(|file| (file.number, file));
        self.deferred.extend(not_read);
        for (number, result) in done.read {
            match &result {
                Ok(file) => {
                    let bytes = file.bytes().len() as u64;
                    self.reserve(done.how, bytes);
                    self.stats.bytes += bytes;
                    self.stats.cached += u64::from(file.is_cached());
                }
                Err(_) => self.stats.failed += 1,
            }
            let key = if self.config.in_order {
                number
            } else {
                self.stats.files
            };
            self.stats.files += 1;
            self.ready.insert(key, result);
        }
    }

    fn runnable(&self) -> usize {
        let to_try = if self.may_try() {
            self.untried.len().div_ceil(BATCH)
        } else {
            0
        };
        let to_read = if self.may_read() {
            self.deferred.len().div_ceil(SLOW_BATCH)
        } else {
            0
        };
        to_try + to_read
    }

    fn pop_ready(&mut self) -> Option<Result<FileContents>> {
        if !self.is_ready() {
            return None;
        }
        let (_, result) = self.ready.pop_first()?;
        self.returned += 1;
        if let Ok(file) = &result {
            let how = if file.is_cached() {
                How::Try
            } else {
                How::Read
            };
            *self.held(how) -= file.bytes().len() as u64;
        }
        Some(result)
    }

    fn has_ready(&self) -> bool {
        self.is_ready()
    }

    /// Files hold no descriptors while they wait.
    fn close(&mut self) {}

    fn clear(&mut self) {
        self.untried.clear();
        self.deferred.clear();
        self.ready.clear();
    }

    fn max_workers(&self) -> usize {
        self.config.workers
    }

    fn grant(&mut self, workers: usize) {
        self.config.workers = workers;
    }

    fn is_held_up(&self) -> bool {
        self.reading > 0 && self.may_try()
    }
}
