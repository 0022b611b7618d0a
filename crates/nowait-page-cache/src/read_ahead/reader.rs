//! Reads the missing bytes of files, ahead of the program that uses them.
//!
//! ```text
//!  add(file) ─► examine: workers ─► Files: unread ─► next_place ─► read ─┐
//!                                     ▲ position        depth ◄──────────┘
//!                                  Follower
//! ```
//! `next_place` decides what is read. The reads of the first file begin while other files are
//! examined.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use nowait::Handle;
use nowait::op::Op;
use nowait::residency::residency;
use rustix::fs::Advice;
use rustix::io::Errno;

use super::depth::{self, Depth};
use super::examined::Examined;
use super::files::{Files, MAX_READ, Piece, Place};
use super::follower::Follower;
use super::shared::{Shared, Work};
use crate::file_ref::{FileRef, OpenError};
use crate::operations::{Answer, OpenLimit, Operations, call, descriptors};
use crate::populate::{begin_to_read, null, populate};
use crate::prefetch::{Budget, Limits, Stopped, engine};
use crate::reporter::Reporter;
use crate::stop::LOOK;
use nowait_residency::ranges::Ranges;

/// The maximum number of files that are being examined.
const MAX_EXAMINED: usize = 32;
/// The maximum number of files that wait to be examined.
const MAX_WAITING: usize = 1024;
/// The maximum number of open files.
const MAX_OPEN: usize = 256;
/// The process may have this many times more descriptors than operations are in flight. Each read has
/// a thread with a pipe.
const DESCRIPTORS: u64 = 10;
/// The number of bytes after which the available memory is queried again.
const CHECK_INTERVAL: u64 = 64 << 20;
/// The kernel may read ahead in a file that the budget cannot hold if the budget is at least this
/// large. It reads some MiB beyond the budget then, in large folios, which cost less.
const LARGE: u64 = 128 << 20;
/// The shortest distance that is read ahead of the program's position.
const WINDOW: u64 = 8 << 20;

/// Reads files ahead.
pub struct Reader<'a> {
    shared: &'a Shared,
    reporter: &'a dyn Reporter,
    operations: Operations<Operation>,
    budget: Budget,
    depth: Depth,
    follower: Follower,
    /// The files to be examined, in order.
    unexamined: VecDeque<Unexamined>,
    /// The number of files that were added.
    added: usize,
    /// The number of files that are being examined.
    examining: usize,
    /// The number of files that may be open or being examined.
    open_limit: OpenLimit,
    /// The open files that have unread bytes or reads in flight.
    open: HashMap<usize, Open>,
    reads: usize,
    /// /dev/null.
    null: Option<Arc<File>>,
    /// The number of missing bytes for which reads were started.
    started: u64,
    checked: u64,
}

/// A file that was not yet examined.
struct Unexamined {
    number: usize,
    file: FileRef,
    bytes: Option<Arc<Ranges>>,
}

struct Open {
    handle: Handle,
    file: FileRef,
    /// True if the kernel does not read ahead.
    is_random: bool,
    reads: usize,
    has_failed: bool,
}

type Examination = Result<(Examined, Handle), OpenError>;

/// The purpose of an operation.
enum Operation {
    Examine(Unexamined, Answer<Examination>),
    /// The number of bytes that were read; `None` if the program has read them itself.
    Read(Piece, Answer<Result<Option<u64>, Errno>>),
}

impl<'a> Reader<'a> {
    /// Nothing to read so far.
    ///
    /// # Errors
    /// If no engine can be made, for example for lack of memory or threads.
    pub fn new(shared: &'a Shared, reporter: &'a dyn Reporter) -> nowait::Result<Reader<'a>> {
        let operations = (depth::LARGEST + MAX_EXAMINED) as u64;
        let limits = Limits {
            depth: (descriptors() / DESCRIPTORS).clamp(1, operations) as u32,
            budget: shared.budget,
            ..Limits::default()
        };
        let engine = engine(&limits)?;
        let now = Instant::now();
        Ok(Reader {
            shared,
            reporter,
            operations: Operations::new(engine),
            budget: Budget::new(limits.budget),
            depth: Depth::new(now),
            follower: Follower::new(now),
            unexamined: VecDeque::new(),
            added: 0,
            examining: 0,
            open_limit: OpenLimit::new(MAX_OPEN),
            open: HashMap::new(),
            reads: 0,
            null: null().map(Arc::new),
            started: 0,
            checked: 0,
        })
    }

    /// Adds a file, or bytes of it. Reads files that were added before, meanwhile.
    pub fn add(&mut self, file: FileRef, bytes: Option<Arc<Ranges>>) -> Result<(), Stopped> {
        self.unexamined.push_back(Unexamined {
            number: self.added,
            file,
            bytes,
        });
        self.added += 1;
        self.step(Duration::ZERO);
        // The reads of the first file are in flight while others are looked for.
        while self.added == 1 && self.examining > 0 && !self.shared.stop.asked() {
            self.step(LOOK);
            self.submit();
        }
        while self.unexamined.len() >= MAX_WAITING && !self.shared.stop.asked() {
            self.step(LOOK);
        }
        match self.shared.stop.asked() {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    /// Reads until nothing is left, or a stop is requested. Waits for the reads in flight.
    pub fn finish(mut self) {
        while self.is_busy() && !self.shared.stop.asked() {
            self.step(LOOK);
        }
        while self.operations.in_flight() > 0 {
            for (operation, _) in self.operations.reap_one() {
                self.done(operation);
            }
        }
    }

    fn files(&self) -> MutexGuard<'a, Work> {
        self.shared.lock()
    }

    fn is_busy(&self) -> bool {
        let work = self.files();
        // Data that the program uses later is not wasted.
        let follows = !self.fits(&work.files) && self.started > 0;
        !self.unexamined.is_empty()
            || self.operations.in_flight() > 0
            || work.files.has_unread()
            || follows
    }

    /// One round: submits what may be in flight, and waits at most this long for a completion.
    fn step(&mut self, wait: Duration) {
        self.submit();
        let now = Instant::now();
        let wait = wait.min(self.follower.wait(now));
        for (operation, _) in self.operations.reap(wait) {
            self.done(operation);
        }
        let mut work = self.files();
        if self.started - self.checked >= CHECK_INTERVAL {
            self.checked = self.started;
            self.budget.update();
            self.note_budget(&mut work);
        }
        self.follower.look(&mut work.files, Instant::now());
    }

    /// Stores if the budget holds all bytes to be read.
    fn note_budget(&self, work: &mut Work) {
        if !self.fits(&work.files) {
            work.is_full = true;
            work.budget = self.budget.to_string();
        }
    }

    fn submit(&mut self) {
        while self.operations.have_room()
            && let Some((op, operation)) = self.next_examination()
        {
            self.operations.push(op, operation);
        }
        while self.operations.have_room() && self.reads < self.depth.get() {
            let Some((op, operation)) = self.next_read() else {
                self.depth.restart(Instant::now());
                break;
            };
            self.operations.push(op, operation);
        }
        self.operations.submit();
    }

    /// Examines the next file, which may wait for a device or a server.
    fn next_examination(&mut self) -> Option<(Op, Operation)> {
        let is_full =
            |reader: &Self| reader.open.len() + reader.examining >= reader.open_limit.get();
        if self.unexamined.is_empty()
            || self.examining >= MAX_EXAMINED
            || is_full(self) && !self.leave_one()
        {
            return None;
        }
        let next = self.unexamined.pop_front()?;
        let (op, examined) = call(self.examination(&next));
        self.examining += 1;
        Some((op, Operation::Examine(next, examined)))
    }

    /// The call that examines a file.
    fn examination(&self, of: &Unexamined) -> impl FnOnce() -> Examination + Send + use<> {
        let (file, bytes) = (of.file.clone(), of.bytes.clone());
        let stop = self.shared.stop.clone();
        move || Examined::of(file, bytes.as_deref(), &stop)
    }

    /// Closes a file whose rest is not read, because the budget does not hold it and the program is in
    /// a later file. Returns true if there is one.
    fn leave_one(&mut self) -> bool {
        let mut work = self.files();
        if self.fits(&work.files) {
            return false;
        }
        let program = work.files.position.unwrap_or_default().file;
        let left = |(&number, open): (&usize, &Open)| {
            (number < program && open.reads == 0).then_some(number)
        };
        let Some(number) = self.open.iter().filter_map(left).min() else {
            return false;
        };
        self.open.remove(&number);
        work.files.leave(number);
        true
    }

    /// Reads the next piece.
    fn next_read(&mut self) -> Option<(Op, Operation)> {
        let mut work = self.files();
        let place = self.next_place(&work.files)?;
        let piece = work.files.take(place)?;
        drop(work);
        let open = self.open.get_mut(&piece.file)?;
        open.reads += 1;
        self.reads += 1;
        self.started += piece.missing;
        let (op, read) = call(reading(open, self.null.clone(), &piece));
        Some((op, Operation::Read(piece, read)))
    }

    /// The place to be read next, or `None` while nothing may be read.
    ///
    /// The program's position comes first. If the budget holds all missing bytes, what is before the
    /// position is read last. Otherwise a window ahead of the position is read, so that pages are
    /// used before the kernel evicts them. Until the `Follower` has seen the
    /// program use a file, the window is as long as the budget.
    fn next_place(&self, files: &Files) -> Option<Place> {
        let position = files.position.unwrap_or_default();
        let ahead = files.unread_from(position);
        if self.fits(files) {
            return ahead.or_else(|| files.unread_from(Place::default()));
        }
        ahead.filter(|&place| match self.follower.sees() {
            true => files.distance(position, place) < self.window(),
            false => self.started < self.budget.max(),
        })
    }

    /// Returns true if the budget holds all missing bytes.
    fn fits(&self, files: &Files) -> bool {
        files.missing_bytes <= self.budget.max()
    }

    /// The distance that is read ahead of the program's position.
    fn window(&self) -> u64 {
        let in_flight = self.depth.get() as u64 * MAX_READ;
        (2 * in_flight).max(WINDOW).min(self.budget.max() / 4)
    }

    /// Processes a completed operation.
    fn done(&mut self, operation: Operation) {
        match operation {
            Operation::Examine(file, examined) => {
                self.examining -= 1;
                let here = self.examination(&file);
                let examined = examined.take(here);
                self.examined(file, examined);
            }
            Operation::Read(piece, read) => {
                self.reads -= 1;
                let Some(open) = self.open.get_mut(&piece.file) else {
                    return;
                };
                open.reads -= 1;
                let here = reading(open, self.null.clone(), &piece);
                let read = read.take(here);
                self.arrived(&piece, read);
            }
        }
    }

    /// Processes an examined file.
    fn examined(&mut self, file: Unexamined, examined: Examination) {
        let (examined, handle) = match examined {
            Ok(examined) => examined,
            // It is examined when fewer files are open.
            Err(why) if why.is_shortage() && self.open.len() + self.examining > 0 => {
                self.open_limit.shortage(self.open.len() + self.examining);
                return self.unexamined.push_front(file);
            }
            Err(why) => return file.file.failed(self.reporter, why),
        };
        let budget = self.budget.max();
        let is_random = !examined.is_unread_wholly() || examined.size > budget && budget < LARGE;
        if is_random {
            // A filesystem may ignore the advice. Nothing else disables readahead.
            let _ = rustix::fs::fadvise(&handle, 0, None, Advice::Random);
        }
        let mut work = self.files();
        let number = work.files.add(file.number, examined);
        self.note_budget(&mut work);
        if !work.files.is_unread(number) {
            return;
        }
        self.open.entry(number).or_insert(Open {
            handle,
            file: file.file,
            is_random,
            reads: 0,
            has_failed: false,
        });
        if self.open.len() == 1 {
            // The program may use it already.
            self.follower.hurry(Instant::now());
        }
    }

    /// Processes the result of reading a piece.
    fn arrived(&mut self, piece: &Piece, result: Result<Option<u64>, Errno>) {
        let Some(open) = self.open.get_mut(&piece.file) else {
            return;
        };
        let start = piece.range.start;
        let mut work = self.shared.lock();
        match result {
            Ok(Some(n)) => {
                work.read(piece, n);
                self.depth.ended(n, Instant::now());
                if n < piece.range.end - start {
                    work.files.abandon(piece.file);
                }
            }
            Ok(None) => {}
            Err(_) => work.files.abandon(piece.file),
        }
        let is_read = !work.files.is_unread(piece.file) && open.reads == 0;
        drop(work);
        if let Err(errno) = result
            && !open.has_failed
        {
            open.has_failed = true;
            let why = format_args!("read at byte {start}: {errno}; the rest is not read");
            self.reporter.failure(&open.file.path(), Some(errno), &why);
        }
        if is_read {
            self.open.remove(&piece.file);
            self.open_limit.closed();
        }
    }
}

/// The call that reads a piece. Without `null`, the data is copied.
fn reading(
    open: &Open,
    null: Option<Arc<File>>,
    piece: &Piece,
) -> impl FnOnce() -> Result<Option<u64>, Errno> + Send + use<> {
    let (handle, is_random) = (open.handle.clone(), open.is_random);
    let (range, is_used) = (piece.range.clone(), piece.is_used);
    move || {
        let is_cached = || {
            let known = residency(&handle, range.clone()).ok()?.known()?;
            Some(known.cached == known.pages)
        };
        if is_used && is_cached() == Some(true) {
            return Ok(None);
        }
        if is_random {
            // All of it is in flight at once. Where the kernel reads ahead, this would take single pages
            // in place of large folios.
            begin_to_read(&handle, &range);
        }
        populate(&handle, null.as_deref(), range.clone()).map(Some)
    }
}
