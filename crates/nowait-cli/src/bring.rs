//! Reads files or ranges of files into the page cache. `warm` and `cache restore` share this code.
//!
//! ```text
//!  take(wish) ─► gathered, in inode order ─► open ─► query missing ranges ─► read ─► query again
//!                                             └────── one local engine ───────┘
//! ```
//! The data is read into buffers that are reused. A page whose data was copied is known to have been in
//! the page cache, and read errors of the device are reported. Opening files, which may wait for inodes,
//! overlaps with the reads.
//!
//! Whole files are read sequentially with many reads in flight, and the kernel may read ahead. It then
//! uses large folios, which cost a fraction of what single pages cost to read in, to count and to read
//! later. Readahead could read unwanted data for ranges, for files with holes, near the end of the budget,
//! and with a rate limit. In these cases FADV_RANDOM makes the kernel read exactly the requested pages.

mod budget;
mod job;
mod limits;
mod pace;
mod summary;
mod wish;
mod wished;
mod witness;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nowait::buffer::{Buffer, Limit, downcast};
use nowait::engine::{LocalEngine, Options, Wait};
use nowait::op::{Call, Kind, Op, Read};
use nowait::read::NowaitPolicy;
use nowait::residency::page_size;
use nowait::{Completion, Handle, IoBufExt};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;

pub use limits::Limits;
pub use summary::{SHAPE, Summary};
pub use wish::{Only, Stamp, Wish};

use budget::Budget;
use job::{Job, Piece};
use pace::Pace;
use wished::Wished;
use witness::Witnesses;

use crate::met::Met;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::stop::Stop;
use crate::tree::{Found, Unopened};

/// The largest read in bytes. Larger reads are not faster, and they need more memory and processor cache.
const PIECE: u64 = 256 << 10;
/// The number of files that are collected and sorted by inode number.
const GATHERED: usize = 8192;
/// The maximum number of files that one operation opens. The number is doubled after an operation that
/// took less than [`QUICK`], and set to 1 after one that took longer than [`SLOW`]. Handing an operation
/// to a worker costs as much as opening two cached files.
const AT_ONCE: usize = 16;
const QUICK: Duration = Duration::from_micros(200);
const SLOW: Duration = Duration::from_millis(1);
/// After this many bytes the program checks if they are still cached, and how much memory is available.
const CHECK: u64 = 64 << 20;
/// The longest wait for a completion before the program checks for a stop request.
const TICK: Duration = Duration::from_millis(100);
/// The time that an interrupted run waits for operations in flight.
const GRACE: Duration = Duration::from_secs(1);

/// A stop was requested.
#[derive(Debug)]
pub struct Stopped;

/// Reads wanted files and ranges into the page cache.
pub struct Bringer<'a> {
    limits: Limits,
    met: Option<Met>,
    wished: Wished,
    remarks: &'a Remarks,
    progress: &'a mut Progress,
    stop: &'a Stop,
    engine: LocalEngine,
    budget: Budget,
    pace: Pace,
    gathered: Vec<Wish>,
    /// The files to be opened, in order.
    wishes: VecDeque<Wish>,
    jobs: HashMap<u64, Job>,
    /// The numbers of jobs that may have pieces to be read.
    ready: VecDeque<u64>,
    numbers: u64,
    /// The purpose of each operation in flight, by its user data.
    places: Vec<Option<Work>>,
    free: Vec<usize>,
    /// The number of files that are being opened.
    opening: usize,
    /// The number of files that the next operation opens; see [`AT_ONCE`].
    at_once: usize,
    buffers: Vec<Vec<u8>>,
    ops: Vec<Op>,
    /// The number of missing bytes for which reads were started.
    spent: u64,
    checked: u64,
    witnesses: Witnesses,
    summary: Summary,
    begun: Instant,
}

/// The files that a worker has opened or the errors, and the time it took.
type Opened = (Vec<Result<(File, Stat), Unopened>>, Duration);

/// The purpose of an operation.
#[derive(Debug)]
enum Work {
    /// Opens several files, one after the other.
    Open(Vec<Wish>, Receiver<Opened>),
    Read {
        job: u64,
        piece: Piece,
    },
}

impl<'a> Bringer<'a> {
    /// Creates the engine and an empty queue. Files that `met` contains are not read again.
    pub fn new(
        limits: Limits,
        met: Option<Met>,
        remarks: &'a Remarks,
        progress: &'a mut Progress,
        stop: &'a Stop,
    ) -> Result<Bringer<'a>, Problem> {
        let depth = limits.depth as usize;
        // All reads are expected to be misses, so none is tried on this thread.
        let engine = Options::new()
            .depth(depth)
            .workers(depth.min(64))
            .nowait_policy(NowaitPolicy::Never)
            .build_local()?;
        let budget = Budget::new(limits.budget);
        Ok(Bringer {
            summary: Summary::new(&engine, &limits),
            pace: Pace::new(limits.rate.map(|Size(rate)| rate)),
            budget,
            limits,
            met,
            wished: Wished::default(),
            remarks,
            progress,
            stop,
            engine,
            gathered: Vec::new(),
            wishes: VecDeque::new(),
            jobs: HashMap::new(),
            ready: VecDeque::new(),
            numbers: 0,
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            opening: 0,
            at_once: 1,
            buffers: Vec::new(),
            ops: Vec::with_capacity(depth),
            spent: 0,
            checked: 0,
            witnesses: Witnesses::default(),
            begun: Instant::now(),
        })
    }

    /// Takes one wish. Processes the collected wishes when there are [`GATHERED`] of them.
    pub fn take(&mut self, wish: Wish) -> Result<(), Stopped> {
        self.gathered.push(wish);
        if self.gathered.len() == GATHERED {
            self.begin_gathered();
            while !self.wishes.is_empty() && !self.stop.asked() {
                self.turn();
            }
        }
        if self.stop.asked() {
            return Err(Stopped);
        }
        Ok(())
    }

    /// Counts a wish that cannot be taken because its entry is not valid.
    pub fn skip(&mut self) {
        self.summary.skipped += 1;
    }

    /// Processes all wishes, unless a stop is requested, and returns the summary.
    pub fn finish(mut self) -> Summary {
        self.begin_gathered();
        while self.is_busy() && !self.stop.asked() {
            self.turn();
        }
        if self.stop.asked() {
            self.abandon();
        }
        self.summary.seconds = self.begun.elapsed().as_secs_f64();
        if !self.limits.dry_run {
            self.summary.stayed = self.witnesses.all();
        }
        self.summary
    }

    fn is_busy(&self) -> bool {
        !self.wishes.is_empty() || !self.jobs.is_empty() || self.engine.in_flight() > 0
    }

    /// Queues the collected wishes by inode number, which is roughly the order on the device.
    fn begin_gathered(&mut self) {
        self.wished.forget_ordinary();
        self.gathered.sort_by_key(|wish| wish.found.inode);
        self.wishes.extend(self.gathered.drain(..));
    }

    /// One round: submits as many operations as there are free places, and processes completions.
    fn turn(&mut self) {
        while !self.free.is_empty() {
            let Some((op, work)) = self.next() else { break };
            if let Some(place) = self.free.pop() {
                self.places[place] = Some(work);
                self.ops.push(op.user_data(place as u64));
            }
        }
        self.engine.submit_batch(&mut self.ops);
        let mut done = Vec::new();
        let wait = self.pace.wait();
        if self.engine.in_flight() > 0 {
            let wait = if wait.is_zero() { TICK } else { wait.min(TICK) };
            // Fails only in a forked child. This program does not fork.
            let _ = self.engine.reap(&mut done, Wait::UpTo(wait));
        } else {
            std::thread::sleep(wait.min(TICK));
        }
        for completion in done {
            self.done(completion);
        }
        self.check();
        self.show();
    }

    /// The next operation: a piece of an open file, otherwise the opening of further files.
    fn next(&mut self) -> Option<(Op, Work)> {
        if let Some(read) = self.next_read() {
            return Some(read);
        }
        // The number of open files is bounded, and so are descriptors and memory.
        if self.jobs.len() + self.opening >= self.places.len() {
            return None;
        }
        let room = self.places.len() - self.jobs.len() - self.opening;
        let count = self.wishes.len().min(self.at_once).min(room);
        let wishes: Vec<Wish> = self.wishes.drain(..count).collect();
        if wishes.is_empty() {
            return None;
        }
        let (tell, told) = mpsc::sync_channel(1);
        let files: Vec<Found> = wishes.iter().map(|wish| wish.found.clone()).collect();
        // Several calls, each of which may wait for the device or a server.
        let call = Call::new(move || {
            let begin = Instant::now();
            let opened = files.iter().map(Found::open).collect();
            drop(tell.send((opened, begin.elapsed())));
        });
        self.opening += count;
        Some((call.into(), Work::Open(wishes, told)))
    }

    /// The next piece that the rate and the budget allow.
    fn next_read(&mut self) -> Option<(Op, Work)> {
        while let Some(&number) = self.ready.front() {
            let room = self.room();
            let page = page_size();
            let most = self.pace.piece(PIECE, page).min(room.max(page));
            let job = self.jobs.get_mut(&number)?;
            let piece = match job.next(most, PIECE) {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    self.ready.pop_front();
                    self.end(number);
                    continue;
                }
                Err(e) => {
                    self.remarks.failure(&job.wish.found.path, e);
                    job.over = true;
                    continue;
                }
            };
            if piece.missing > room {
                job.sums.left_out += piece.missing;
                self.summary
                    .left_out_because(|| format!("{} is used up", self.budget));
                continue;
            }
            if self.limits.dry_run {
                self.spent += piece.missing;
                job.sums.brought += piece.missing;
                continue;
            }
            if !self.pace.wait().is_zero() {
                job.give_back(piece);
                return None;
            }
            self.spent += piece.missing;
            self.pace.goes(piece.missing);
            job.in_flight += 1;
            let buffer = self.buffers.pop().unwrap_or_default();
            let op = read(&job.handle, buffer, &piece.range);
            return Some((op, Work::Read { job: number, piece }));
        }
        None
    }

    /// The number of bytes that may still be read.
    fn room(&self) -> u64 {
        if self.summary.is_full() {
            return 0;
        }
        self.budget.most().saturating_sub(self.spent)
    }

    /// Processes one completion.
    fn done(&mut self, completion: Completion) {
        let place = completion.op.get_user_data() as usize;
        let Some(work) = self.places.get_mut(place).and_then(Option::take) else {
            return;
        };
        self.free.push(place);
        let errno = |e: nowait::Error| e.errno().map_or(Errno::IO, Errno::from_raw_os_error);
        let result = completion.result.map_err(errno);
        match (work, completion.op.into_kind()) {
            (Work::Open(wishes, told), _) => {
                self.opening -= wishes.len();
                // The channel is empty if the call was not made.
                let (opened, took) = told.try_recv().unwrap_or_default();
                if took < QUICK {
                    self.at_once = (wishes.len() * 2).clamp(self.at_once, AT_ONCE);
                } else if took > SLOW {
                    self.at_once = 1;
                }
                let nothing = std::iter::repeat_with(|| Err(Errno::CANCELED.into()));
                for (wish, opened) in wishes.into_iter().zip(opened.into_iter().chain(nothing)) {
                    match opened {
                        Ok((file, stat)) => self.opened(wish, file, &stat),
                        Err(Unopened::NotRegular) => self.changed(&wish, &Unopened::NotRegular),
                        Err(why) => wish.found.failed(self.remarks, why),
                    }
                }
            }
            (Work::Read { job, piece }, Kind::Read(op)) => {
                if let Ok(buffer) = downcast::<Limit<Vec<u8>>>(op.into_buffer()) {
                    self.buffers.push(buffer.into_inner());
                }
                self.arrived(job, piece, result);
            }
            _ => {}
        }
    }

    /// Reports and counts a file that differs from its snapshot entry or is not regular.
    fn changed(&mut self, wish: &Wish, why: &dyn fmt::Display) {
        self.summary.skipped += 1;
        let why = format_args!("skipped: {why}");
        self.remarks.failure(&wish.found.path, why);
    }

    /// Processes an opened file: checks that it is unchanged, and adds a job for it.
    fn opened(&mut self, mut wish: Wish, file: File, stat: &Stat) {
        let stamp = wish.only.as_ref().map(|only| only.stamp);
        if let Some(why) = stamp.and_then(|stamp| stamp.difference(&Stamp::of(stat))) {
            return self.changed(&wish, &why);
        }
        let again = match &mut wish.only {
            None => self.met.as_mut().is_some_and(|met| !met.first(stat)),
            Some(only) => {
                let ranges = std::mem::take(&mut only.ranges);
                only.ranges = self.wished.not_yet(stat, ranges);
                only.ranges.is_empty()
            }
        };
        if again {
            self.summary.other_names += 1;
            return;
        }
        // On filesystems without NOWAIT support, io_uring does not wait for reads of files that are open
        // with O_NONBLOCK.
        let _ = rustix::fs::fcntl_getfl(&file)
            .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK));
        let handle = match Handle::new(file) {
            Ok(handle) => handle,
            Err(e) => return self.remarks.failure(&wish.found.path, e),
        };
        wish.found.inode = stat.st_ino;
        self.numbers += 1;
        let allocated = (stat.st_blocks as u64).saturating_mul(512);
        let job = Job::new(wish, handle, stat.st_size as u64, allocated);
        if !self.may_be_read_ahead(&job) {
            job.read_exactly();
        }
        self.jobs.insert(self.numbers, job);
        self.ready.push_back(self.numbers);
    }

    /// Returns true if the kernel may read ahead in a file, because all data of the file is wanted and
    /// fits. Readahead that has begun cannot be stopped by advice: each part that was read ahead
    /// triggers the next.
    fn may_be_read_ahead(&self, job: &Job) -> bool {
        let open: u64 = self.jobs.values().map(|job| job.size).sum();
        let fits = open.saturating_add(job.size) <= self.room();
        fits && job.is_all_data() && self.limits.rate.is_none()
    }

    /// Processes the result of reading a piece.
    fn arrived(&mut self, number: u64, piece: Piece, result: Result<usize, Errno>) {
        let Some(job) = self.jobs.get_mut(&number) else {
            return;
        };
        job.in_flight -= 1;
        match result {
            Ok(n) => {
                job.sums.brought += piece.missing.min(n as u64);
                if job.first.is_none() {
                    job.first = Some(piece.range.clone());
                }
                if (n as u64) < piece.len() {
                    job.shrank = true;
                    job.over = true;
                }
            }
            Err(errno) if !job.over => {
                let start = piece.range.start;
                let why = format_args!("read at byte {start}: {errno}; the rest is not read");
                self.remarks.failure(&job.wish.found.path, why);
                job.over = true;
            }
            Err(_) => {}
        }
        self.end(number);
    }

    /// Removes and counts a file if its job is done.
    fn end(&mut self, number: u64) {
        if !self.jobs.get(&number).is_some_and(Job::is_done) || self.ready.contains(&number) {
            return;
        }
        let Some(job) = self.jobs.remove(&number) else {
            return;
        };
        if job.shrank {
            let path = &job.wish.found.path;
            self.remarks.note(path, "the file shrank while it was read");
        }
        self.count(&job);
        if let Some(first) = job.first {
            self.witnesses
                .finished(job.wish.found, &job.handle, first.start);
        }
    }

    /// Adds a file to the summary, with its cached bytes of now.
    fn count(&mut self, job: &Job) {
        match job.cached_now() {
            Ok(cached) => self.summary.add(&job.sums, cached),
            Err(e) => self.remarks.failure(&job.wish.found.path, e),
        }
    }

    /// After every [`CHECK`] bytes: checks if the first files are still cached, and updates the budget.
    fn check(&mut self) {
        if self.spent - self.checked < CHECK || self.limits.dry_run {
            return;
        }
        self.checked = self.spent;
        self.budget.look_again();
        let leaving = self.witnesses.early().shows_eviction() || self.jobs.values().any(Job::loses);
        if leaving && !self.summary.is_full() {
            self.summary
                .left_out_because(|| "the first files are being evicted again".into());
        }
    }

    /// Updates the progress.
    fn show(&mut self) {
        let brought =
            self.summary.brought + self.jobs.values().map(|j| j.sums.brought).sum::<u64>();
        let rate = brought as f64 / self.begun.elapsed().as_secs_f64();
        self.progress.at(
            self.summary.files,
            format!("{} read, {}/s", Size(brought), Size(rate as u64)),
        );
    }

    /// Ends an interrupted run: waits for operations in flight for [`GRACE`], and counts their results.
    fn abandon(&mut self) {
        self.summary.interrupted = true;
        let end = Instant::now() + GRACE;
        let mut done = Vec::new();
        while self.engine.in_flight() > 0 && Instant::now() < end {
            let _ = self.engine.reap(&mut done, Wait::UpTo(TICK));
            for completion in done.drain(..) {
                self.done(completion);
            }
        }
        self.ready.clear();
        for (_, mut job) in std::mem::take(&mut self.jobs) {
            job.over = true;
            self.count(&job);
        }
    }
}

/// The operation that reads exactly this range.
fn read(handle: &Handle, mut buffer: Vec<u8>, range: &Range<u64>) -> Op {
    buffer.clear();
    buffer.reserve_exact(PIECE as usize);
    let len = range.end - range.start;
    let buffer: Buffer = Box::new(buffer.limit(len as usize));
    Read::new(handle, buffer, range.start).into()
}
