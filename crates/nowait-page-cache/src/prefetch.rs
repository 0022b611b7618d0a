//! Reads files or ranges of files into the page cache.
//!
//! ```text
//!  add(request) ─► collected, in inode order ─► open ─► query missing ranges ─► read ─► query again
//!                                             └────── one local engine ───────┘
//! ```
//! The data is read into buffers that are reused. A page whose data was copied is known to have
//! been in the page cache, and read errors of the device are reported. Opening files, which may
//! wait for inodes, overlaps with the reads.
//!
//! Whole files are read sequentially with many reads in flight, and kernel readahead stays enabled.
//! Readahead uses large folios. Reading and counting the pages of a large folio costs a fraction of
//! the cost of single pages. Readahead is disabled with FADV_RANDOM if it could read data that was
//! not requested: for ranges, for files with holes, near the end of the budget, and with a rate
//! limit.

mod budget;
mod job;
mod limits;
mod progress;
mod rate_limit;
mod request;
mod requested;
mod sample;
mod summary;
mod total;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::time::{Duration, Instant};

use nowait::buffer::{Buffer, Limit, downcast};
use nowait::engine::{LocalEngine, Options};
use nowait::op::{Kind, Op, Read};
use nowait::read::NowaitPolicy;
use nowait::residency::page_size;
use nowait::{Completion, Handle, IoBufExt};
use rustix::fs::Stat;
use rustix::io::Errno;

pub use budget::{Allowed, Budget};
pub use limits::Limits;
pub use progress::Progress;
use rate_limit::RateLimit;
pub use request::{Request, Selection, Stamp};
pub use sample::Recount;
pub use summary::Summary;
pub use total::Total;

use job::{Job, Piece};
use requested::Requested;
use sample::Sample;

use crate::file_ref::{FileRef, OpenError, waiting};
use crate::operations::{Answer, OpenLimit, Operations, call};
use crate::reporter::Reporter;
use crate::seen_inodes::SeenInodes;
use crate::stop::Stop;

/// The maximum length of a read in bytes. Larger reads are not faster, and they need more memory
/// and processor cache.
const MAX_READ: u64 = 256 << 10;
/// The number of files that are collected and sorted by inode number.
const MAX_COLLECTED: usize = 8192;
/// The maximum number of files that one operation opens. The number is doubled after an operation
/// that took less than [`FAST_CALL`], and set to 1 after one that took longer than [`SLOW_CALL`].
/// Handing an operation to a worker costs as much as opening two cached files.
const MAX_OPENS: usize = 16;
const FAST_CALL: Duration = Duration::from_micros(200);
const SLOW_CALL: Duration = Duration::from_millis(1);
/// The number of bytes between two checks of the available memory and of the cached bytes.
const CHECK_INTERVAL: u64 = 64 << 20;
/// The longest wait for a completion before the program checks for a stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time that an interrupted run waits for operations in flight.
const GRACE_PERIOD: Duration = Duration::from_millis(50);

/// A stop was requested.
#[derive(Debug)]
pub struct Stopped;

/// Reads requested files and ranges into the page cache.
pub struct Prefetcher<'a> {
    limits: Limits,
    seen: Option<SeenInodes>,
    requested: Requested,
    reporter: &'a dyn Reporter,
    progress: &'a mut dyn FnMut(Progress),
    stop: &'a Stop,
    operations: Operations<Work>,
    budget: Budget,
    rate_limit: RateLimit,
    collected: Vec<Request>,
    /// The files to be opened, in order.
    requests: VecDeque<Request>,
    jobs: HashMap<u64, Job>,
    /// The numbers of jobs that may have pieces to be read.
    ready: VecDeque<u64>,
    last_number: u64,
    /// The number of files that are being opened.
    opening: usize,
    /// The number of files that the next operation opens; see [`MAX_OPENS`].
    opens_per_call: usize,
    /// The number of files that may be open or being opened.
    open_limit: OpenLimit,
    buffers: Vec<Vec<u8>>,
    /// The number of missing bytes for which reads were started.
    bytes_started: u64,
    bytes_at_last_check: u64,
    sample: Sample,
    summary: Summary,
    start: Instant,
    total: Total,
    /// The requested bytes of files that have ended or were not opened.
    ended_bytes: u64,
}

/// The files that a worker has opened or the errors, and the time it took.
type Opened = (Vec<Result<(File, Stat), NotOpened>>, Duration);

/// A file that was not opened, and its size.
type NotOpened = (OpenError, u64);

/// The purpose of an operation.
enum Work {
    /// Opens several files, one after the other.
    Open {
        requests: Vec<Request>,
        opened: Answer<Opened>,
        /// True if no other file is open: there is no shortage that a finished file would end.
        alone: bool,
    },
    Read {
        job: u64,
        piece: Piece,
    },
}

/// Creates the engine that reads. It may need a thread. With few threads (`RLIMIT_NPROC`) it must be
/// created before threads that the caller can do without.
///
/// # Errors
/// If no engine can be made, for example for lack of memory or threads.
pub fn engine(limits: &Limits) -> nowait::Result<LocalEngine> {
    let depth = limits.operations();
    // All reads are expected to be misses, so none is tried on this thread.
    let options = Options::new()
        .depth(depth)
        .workers(depth.min(64))
        .nowait_policy(NowaitPolicy::Never);
    options.build_local()
}

impl<'a> Prefetcher<'a> {
    /// Creates an empty queue on an [`engine`]. Files that `seen` contains are not read again.
    pub fn new(
        engine: LocalEngine,
        limits: Limits,
        seen: Option<SeenInodes>,
        reporter: &'a dyn Reporter,
        progress: &'a mut dyn FnMut(Progress),
        stop: &'a Stop,
    ) -> Prefetcher<'a> {
        let budget = Budget::new(limits.budget);
        Prefetcher {
            summary: Summary::new(&engine, &limits),
            rate_limit: RateLimit::new(limits.rate),
            open_limit: OpenLimit::new(limits.operations()),
            budget,
            limits,
            seen,
            requested: Requested::default(),
            reporter,
            progress,
            stop,
            operations: Operations::new(engine),
            collected: Vec::new(),
            requests: VecDeque::new(),
            jobs: HashMap::new(),
            ready: VecDeque::new(),
            last_number: 0,
            opening: 0,
            opens_per_call: 1,
            buffers: Vec::new(),
            bytes_started: 0,
            bytes_at_last_check: 0,
            sample: Sample::default(),
            start: Instant::now(),
            total: Total::unknown(),
            ended_bytes: 0,
        }
    }

    /// Sets the number of bytes that will be requested. It is unknown at first.
    pub fn set_total(&mut self, total: Total) {
        self.total = total;
    }

    /// Adds one request. Processes the collected requests when there are 8192 of them.
    pub fn add(&mut self, request: Request) -> Result<(), Stopped> {
        self.collected.push(request);
        if self.collected.len() == MAX_COLLECTED {
            self.queue_collected();
            // The caller may need the descriptors of open files to find the next ones.
            while self.is_busy() && !self.stop.asked() {
                self.step();
            }
        }
        if self.stop.asked() {
            return Err(Stopped);
        }
        Ok(())
    }

    /// Counts a snapshot entry that is not valid.
    pub fn skip(&mut self) {
        self.summary.skipped += 1;
    }

    /// Processes all requests, unless a stop is requested, and returns the summary.
    pub fn finish(mut self) -> Summary {
        self.queue_collected();
        while self.is_busy() && !self.stop.asked() {
            self.step();
        }
        if self.stop.asked() {
            self.interrupt();
        }
        self.summary.seconds = self.start.elapsed().as_secs_f64();
        if !self.limits.dry_run {
            self.summary.sample = self.sample.all();
        }
        self.summary
    }

    fn is_busy(&self) -> bool {
        !self.requests.is_empty() || !self.jobs.is_empty() || self.operations.in_flight() > 0
    }

    /// Queues the collected requests by inode number, which is roughly the order on the device.
    fn queue_collected(&mut self) {
        self.requested.forget_single_names();
        self.collected.sort_by_key(|request| request.file.inode);
        self.requests.extend(self.collected.drain(..));
    }

    /// One round: submits as many operations as there are free slots, and processes completions.
    fn step(&mut self) {
        while self.operations.have_room() {
            let Some((op, work)) = self.next() else { break };
            self.operations.push(op, work);
        }
        self.operations.submit();
        let wait = match self.rate_limit.wait() {
            Duration::ZERO if self.operations.in_flight() > 0 => POLL_INTERVAL,
            wait => wait.min(POLL_INTERVAL),
        };
        for (work, completion) in self.operations.reap(wait) {
            self.done(work, completion);
        }
        self.check();
        self.show();
    }

    /// The next operation. It reads a piece of an open file; if no piece is left, it opens further
    /// files.
    fn next(&mut self) -> Option<(Op, Work)> {
        if let Some(read) = self.next_read() {
            return Some(read);
        }
        // The number of open files is bounded, and so are descriptors and memory.
        let open = self.jobs.len() + self.opening;
        let room = self.open_limit.get().saturating_sub(open);
        let count = self.requests.len().min(self.opens_per_call).min(room);
        let requests: Vec<Request> = self.requests.drain(..count).collect();
        if requests.is_empty() {
            return None;
        }
        let files: Vec<FileRef> = requests
            .iter()
            .map(|request| request.file.clone())
            .collect();
        // Each of these calls may wait for a device or a server.
        let (op, opened) = call(move || {
            let begin = Instant::now();
            let opened = FileRef::open_all(&files);
            let took = begin.elapsed();
            let with_size =
                |(opened, file): (Result<_, _>, &FileRef)| opened.map_err(|why| (why, file.size()));
            (
                opened.into_iter().zip(&files).map(with_size).collect(),
                took,
            )
        });
        self.opening += count;
        let work = Work::Open {
            requests,
            opened,
            alone: self.open_limit.get() == 1,
        };
        Some((op, work))
    }

    /// The next piece that the rate and the budget allow.
    fn next_read(&mut self) -> Option<(Op, Work)> {
        while let Some(&number) = self.ready.front() {
            let room = self.room();
            let page = page_size();
            let max = self.rate_limit.piece(MAX_READ, page).min(room.max(page));
            let job = self.jobs.get_mut(&number)?;
            let piece = match job.next(max, MAX_READ) {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    self.ready.pop_front();
                    self.end(number);
                    continue;
                }
                Err(e) => {
                    self.reporter
                        .failure(&job.request.file.path(), errno(&e), &e);
                    job.abandoned = true;
                    continue;
                }
            };
            if piece.missing > room {
                job.sums.not_read += piece.missing;
                self.summary
                    .stop_reading(|| format!("{} is used up", self.budget));
                continue;
            }
            if self.limits.dry_run {
                self.bytes_started += piece.missing;
                job.sums.read_bytes += piece.missing;
                continue;
            }
            if !self.rate_limit.wait().is_zero() {
                job.put_back(piece);
                return None;
            }
            self.bytes_started += piece.missing;
            self.rate_limit.started(piece.missing);
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
        self.budget.max().saturating_sub(self.bytes_started)
    }

    /// Processes one completion.
    fn done(&mut self, work: Work, completion: Completion) {
        let result = completion
            .result
            .map_err(|e| errno(&e).unwrap_or(Errno::IO));
        match (work, completion.op.into_kind()) {
            (
                Work::Open {
                    requests,
                    opened,
                    alone,
                },
                _,
            ) => {
                self.opening -= requests.len();
                let here = || {
                    let open = |request: &Request| request.file.open().map_err(|why| (why, 0));
                    (requests.iter().map(open).collect(), Duration::ZERO)
                };
                let (opened, took) = opened.take(here);
                if took < FAST_CALL {
                    self.opens_per_call =
                        (requests.len() * 2).clamp(self.opens_per_call, MAX_OPENS);
                } else if took > SLOW_CALL {
                    self.opens_per_call = 1;
                }
                for (request, opened) in requests.into_iter().zip(opened) {
                    match opened {
                        Ok((file, stat)) => self.opened(request, file, &stat),
                        Err((why @ OpenError::Changed(_), size)) => {
                            self.changed(&request, size, &why)
                        }
                        Err((why, _)) if why.is_shortage() && !alone => self.postpone(request),
                        Err((why, size)) => {
                            self.end_bytes(request.bytes(size));
                            request.file.failed(self.reporter, why);
                        }
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

    /// Puts back a file that could not be opened for lack of descriptors or memory. It is opened
    /// when fewer files are open.
    fn postpone(&mut self, request: Request) {
        self.open_limit.shortage(self.jobs.len() + self.opening);
        self.requests.push_front(request);
    }

    /// Reports and counts a file of this size that differs from its snapshot entry or is not regular.
    fn changed(&mut self, request: &Request, size: u64, why: &dyn fmt::Display) {
        self.summary.skipped += 1;
        self.end_bytes(request.bytes(size));
        let why = format_args!("skipped: {why}");
        self.reporter.failure(&request.file.path(), None, &why);
    }

    /// Counts requested bytes as done.
    fn end_bytes(&mut self, bytes: u64) {
        self.ended_bytes = self.ended_bytes.saturating_add(bytes);
    }

    /// Processes an opened file: checks that it is unchanged, and adds a job for it.
    fn opened(&mut self, mut request: Request, file: File, stat: &Stat) {
        let stamp = request.selection.as_ref().map(|selection| selection.stamp);
        if let Some(why) = stamp.and_then(|stamp| stamp.difference(&Stamp::of(stat))) {
            return self.changed(&request, stat.st_size as u64, &why);
        }
        let again = match &mut request.selection {
            None => self.seen.as_mut().is_some_and(|seen| !seen.insert(stat)),
            Some(selection) => {
                let all = selection.bytes();
                let ranges = std::mem::take(&mut selection.ranges);
                selection.ranges = self.requested.insert(stat, ranges);
                let again = all.saturating_sub(selection.bytes());
                self.end_bytes(again);
                selection.ranges.is_empty()
            }
        };
        if again {
            self.summary.other_names += 1;
            return;
        }
        let handle = match waiting(file) {
            Ok(handle) => handle,
            Err(e) => {
                self.end_bytes(request.bytes(stat.st_size as u64));
                return self.reporter.failure(&request.file.path(), errno(&e), &e);
            }
        };
        request.file.inode = stat.st_ino;
        self.last_number += 1;
        let allocated = (stat.st_blocks as u64).saturating_mul(512);
        let job = Job::new(request, handle, stat.st_size as u64, allocated);
        if !self.may_be_read_ahead(&job) {
            job.disable_readahead();
        }
        self.jobs.insert(self.last_number, job);
        self.ready.push_back(self.last_number);
    }

    /// Returns true if the kernel may read ahead in a file: all data of the file was requested and
    /// fits into the budget. FADV_RANDOM does not stop readahead that has begun, because reading a
    /// page that was read ahead starts the next readahead.
    fn may_be_read_ahead(&self, job: &Job) -> bool {
        let open = self.jobs.values().map(|job| job.size);
        let fits = open.fold(job.size, u64::saturating_add) <= self.room();
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
                job.sums.read_bytes += piece.missing.min(n as u64);
                if job.first.is_none() {
                    job.first = Some(piece.range.clone());
                }
                if (n as u64) < piece.len() {
                    job.shrank = true;
                    job.abandoned = true;
                }
            }
            Err(errno) if !job.abandoned => {
                let start = piece.range.start;
                let why = format_args!("read at byte {start}: {errno}; the rest is not read");
                self.reporter
                    .failure(&job.request.file.path(), Some(errno), &why);
                job.abandoned = true;
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
            let path = &job.request.file.path();
            self.reporter
                .note(path, &"the file shrank while it was read");
        }
        self.open_limit.closed();
        self.end_bytes(job.requested);
        self.count(&job);
        if let Some(first) = job.first {
            self.sample
                .consider(job.request.file, &job.handle, first.start);
        }
    }

    /// Adds a file to the summary, with the number of its bytes that are cached now.
    fn count(&mut self, job: &Job) {
        match job.cached_now() {
            Ok(cached) => self.summary.add(&job.sums, cached),
            Err(e) => self
                .reporter
                .failure(&job.request.file.path(), errno(&e), &e),
        }
    }

    /// Checks after every [`CHECK_INTERVAL`] bytes if the first files are still cached, and updates
    /// the budget.
    fn check(&mut self) {
        if self.bytes_started - self.bytes_at_last_check < CHECK_INTERVAL || self.limits.dry_run {
            return;
        }
        self.bytes_at_last_check = self.bytes_started;
        self.budget.update();
        let evicted =
            self.sample.early().shows_eviction() || self.jobs.values().any(Job::was_evicted);
        if evicted && !self.summary.is_full() {
            self.summary
                .stop_reading(|| "the first files are being evicted again".into());
        }
    }

    /// Updates the progress.
    fn show(&mut self) {
        let elapsed = self.start.elapsed();
        let total_bytes = self.total.get(elapsed);
        let (mut read_bytes, mut done_bytes) = (self.summary.read_bytes, self.ended_bytes);
        for job in self.jobs.values() {
            read_bytes += job.sums.read_bytes;
            done_bytes = done_bytes.saturating_add(job.done());
        }
        let progress = Progress {
            files: self.summary.files,
            read_bytes,
            bytes_per_s: (read_bytes as f64 / elapsed.as_secs_f64()) as u64,
            // Files may have grown since they were counted.
            done_bytes: done_bytes.min(total_bytes.unwrap_or(u64::MAX)),
            total_bytes,
            room_bytes: self.room(),
        };
        (self.progress)(progress);
    }

    /// Ends an interrupted run. Waits at most [`GRACE_PERIOD`] for operations in flight, and counts
    /// their results.
    fn interrupt(&mut self) {
        self.summary.interrupted = true;
        let end = Instant::now() + GRACE_PERIOD;
        while self.operations.in_flight() > 0 && Instant::now() < end {
            for (work, completion) in self.operations.reap(POLL_INTERVAL) {
                self.done(work, completion);
            }
        }
        self.ready.clear();
        for (_, mut job) in std::mem::take(&mut self.jobs) {
            job.abandoned = true;
            self.count(&job);
        }
    }
}

/// The error of the system call that failed.
fn errno(error: &nowait::Error) -> Option<Errno> {
    error.errno().map(Errno::from_raw_os_error)
}

/// The operation that reads exactly this range.
fn read(handle: &Handle, mut buffer: Vec<u8>, range: &Range<u64>) -> Op {
    buffer.clear();
    buffer.reserve_exact(MAX_READ as usize);
    let len = range.end - range.start;
    let buffer: Buffer = Box::new(buffer.limit(len as usize));
    Read::new(handle, buffer, range.start).into()
}
