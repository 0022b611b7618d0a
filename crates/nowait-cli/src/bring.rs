//! Brings files, or ranges of them, into the page cache: what `warm` and `cache restore` have in
//! common.
//!
//! ```text
//!  take(wish) ─► gathered, in order of inodes ─► open ─► look: what is missing ─► read ─► look again
//!                                                 └─────── one local engine ───────┘
//! ```
//! All is read into memory that is used again and again: a page that was copied from is known to
//! be there, and a failing device is heard of. Cold opens, which wait for inodes, overlap with the
//! reads.
//!
//! Whole files are read in sequence, with many reads under way, and the kernel may read ahead of
//! them: it then puts them into large folios, which are brought, counted and read later for a
//! fraction of what single pages cost. Where that could bring what nobody wants (ranges, holes, the
//! end of a budget, a rate), files are told FADV_RANDOM, which makes the kernel read exactly what it
//! is asked for.

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

/// The largest read. Larger ones bring nothing more, and take memory and cache for the copy.
const PIECE: u64 = 256 << 10;
/// So many files are put in order at once.
const GATHERED: usize = 8192;
/// So many files are opened by one operation at most, if that is as quick as this; one if it takes
/// longer than that. Handing an operation over costs as much as to open two cached files.
const AT_ONCE: usize = 16;
const QUICK: Duration = Duration::from_micros(200);
const SLOW: Duration = Duration::from_millis(1);
/// After so many bytes it is looked at whether they stay, and how much memory is left.
const CHECK: u64 = 64 << 20;
/// How long nothing may happen before it is looked at whether somebody wants the end.
const TICK: Duration = Duration::from_millis(100);
/// How long an interrupted run waits for what is under way.
const GRACE: Duration = Duration::from_secs(1);

/// Somebody wants the end.
#[derive(Debug)]
pub struct Stopped;

/// Brings one wish after the other.
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
    /// In order, to be opened.
    wishes: VecDeque<Wish>,
    jobs: HashMap<u64, Job>,
    /// Jobs with pieces to be read, by number.
    ready: VecDeque<u64>,
    numbers: u64,
    /// What each operation in flight is for, by its token.
    places: Vec<Option<Work>>,
    free: Vec<usize>,
    /// How many files are being opened.
    opening: usize,
    /// How many files one operation opens: many where that is quick, one where it waits.
    at_once: usize,
    buffers: Vec<Vec<u8>>,
    ops: Vec<Op>,
    /// Missing bytes for which reads were made.
    spent: u64,
    checked: u64,
    witnesses: Witnesses,
    summary: Summary,
    begun: Instant,
}

/// The files that a worker has opened, or why not, and how long that took.
type Opened = (Vec<Result<(File, Stat), Unopened>>, Duration);

/// What an operation is for.
#[derive(Debug)]
enum Work {
    /// Of several files, one after the other.
    Open(Vec<Wish>, Receiver<Opened>),
    Read {
        job: u64,
        piece: Piece,
    },
}

impl<'a> Bringer<'a> {
    /// With these limits. Files that `met` has met are not brought again.
    pub fn new(
        limits: Limits,
        met: Option<Met>,
        remarks: &'a Remarks,
        progress: &'a mut Progress,
        stop: &'a Stop,
    ) -> Result<Bringer<'a>, Problem> {
        let depth = limits.depth as usize;
        // What is to be read is known not to be there: nothing is tried in this thread.
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

    /// Takes one wish; works while there are many.
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

    /// A wish that can't be taken because its file is not what it was.
    pub fn skip(&mut self) {
        self.summary.skipped += 1;
    }

    /// Works until all is done or somebody wants the end, and says what came of it.
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

    /// In the order of inodes, which is about that of the device.
    fn begin_gathered(&mut self) {
        self.wished.forget_ordinary();
        self.gathered.sort_by_key(|wish| wish.found.inode);
        self.wishes.extend(self.gathered.drain(..));
    }

    /// One round: as many operations as there are places for, then what is done.
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
            // Fails only in a forked child, and nobody forks here.
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

    /// What comes next: a piece of an open file, else another file.
    fn next(&mut self) -> Option<(Op, Work)> {
        if let Some(read) = self.next_read() {
            return Some(read);
        }
        // So many files are open at once; that bounds descriptors and memory.
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

    /// The next piece that pace and budget allow.
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

    /// How many more bytes may be brought.
    fn room(&self) -> u64 {
        if self.summary.is_full() {
            return 0;
        }
        self.budget.most().saturating_sub(self.spent)
    }

    /// One operation is done.
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
                // Nothing is told if the call was not made.
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

    /// A file is not what was wished for.
    fn changed(&mut self, wish: &Wish, why: &dyn fmt::Display) {
        self.summary.skipped += 1;
        let why = format_args!("skipped: {why}");
        self.remarks.failure(&wish.found.path, why);
    }

    /// A file is open: is it what was wished for, and what of it is missing?
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
        // A ring does not wait for reads of files that are open with O_NONBLOCK, on filesystems
        // that know no NOWAIT.
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

    /// Whether the kernel may read ahead in a file: nothing that nobody wants can come of it. Once it
    /// has begun, no advice stops it: each part that it has read bids it read the next.
    fn may_be_read_ahead(&self, job: &Job) -> bool {
        let open: u64 = self.jobs.values().map(|job| job.size).sum();
        let fits = open.saturating_add(job.size) <= self.room();
        fits && job.is_all_data() && self.limits.rate.is_none()
    }

    /// A piece was read, or could not be.
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
                let why = format_args!("reading at byte {start}: {errno}; the rest is left out");
                self.remarks.failure(&job.wish.found.path, why);
                job.over = true;
            }
            Err(_) => {}
        }
        self.end(number);
    }

    /// Counts a file if all of it is done.
    fn end(&mut self, number: u64) {
        if !self.jobs.get(&number).is_some_and(Job::is_done) || self.ready.contains(&number) {
            return;
        }
        let Some(job) = self.jobs.remove(&number) else {
            return;
        };
        if job.shrank {
            let path = &job.wish.found.path;
            self.remarks.note(path, "it shrank while it was read");
        }
        self.count(&job);
        if let Some(first) = job.first {
            self.witnesses
                .finished(job.wish.found, &job.handle, first.start);
        }
    }

    /// Adds a file to the sums, with what of it is cached now.
    fn count(&mut self, job: &Job) {
        match job.cached_now() {
            Ok(cached) => self.summary.add(&job.sums, cached),
            Err(e) => self.remarks.failure(&job.wish.found.path, e),
        }
    }

    /// Now and then: does what was brought stay, and how much memory is there still?
    fn check(&mut self) {
        if self.spent - self.checked < CHECK || self.limits.dry_run {
            return;
        }
        self.checked = self.spent;
        self.budget.look_again();
        let leaving = self.witnesses.early().shows_eviction() || self.jobs.values().any(Job::loses);
        if leaving && !self.summary.is_full() {
            self.summary
                .left_out_because(|| "what was brought first is leaving again".into());
        }
    }

    /// Says how far it is.
    fn show(&mut self) {
        let brought =
            self.summary.brought + self.jobs.values().map(|j| j.sums.brought).sum::<u64>();
        let rate = brought as f64 / self.begun.elapsed().as_secs_f64();
        self.progress.at(
            self.summary.files,
            format!("{} brought, {}/s", Size(brought), Size(rate as u64)),
        );
    }

    /// Somebody wants the end: what is under way may still arrive, and is counted.
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

/// A read of exactly this range.
fn read(handle: &Handle, mut buffer: Vec<u8>, range: &Range<u64>) -> Op {
    buffer.clear();
    buffer.reserve_exact(PIECE as usize);
    let len = range.end - range.start;
    let buffer: Buffer = Box::new(buffer.limit(len as usize));
    Read::new(handle, buffer, range.start).into()
}
