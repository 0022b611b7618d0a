//! Contenders with a pool of threads beside an event loop, as in Samba, libuv and glibc's POSIX
//! AIO: one queue, first in, first out. The event loop may try the page cache before it queues a
//! read.
//!
//! ```text
//!  dispatcher ─ draw ─[ preadv2(NOWAIT) ─all─► done ]─► queue ─► thread: pread ─► finished ─┐
//!       ▲                                                                                   │
//!       └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! This code uses nothing of nowait.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use rustix::io::Errno;

use super::call;
use crate::harness::place::Place;
use crate::harness::round::Round;
use crate::harness::turn::{Lane, Turn};
use nowait_cli::problem::Problem;

/// One read in the pool.
struct Job {
    place: Place,
    buffer: Vec<u8>,
    /// The bytes that were read already.
    done: usize,
    began: Instant,
    result: io::Result<usize>,
}

/// A queue with a lock, on which threads can wait.
#[derive(Default)]
struct Line {
    jobs: Mutex<VecDeque<Job>>,
    news: Condvar,
    /// The length, readable without the lock.
    len: AtomicUsize,
}

impl Line {
    fn push(&self, job: Job) {
        let mut jobs = lock(&self.jobs);
        jobs.push_back(job);
        self.len.store(jobs.len(), Relaxed);
        drop(jobs);
        self.news.notify_one();
    }

    fn is_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// Waits until the queue is not empty.
    fn wait(&self) -> MutexGuard<'_, VecDeque<Job>> {
        let jobs = lock(&self.jobs);
        self.news
            .wait_while(jobs, |jobs| jobs.is_empty())
            .unwrap_or_else(|e| e.into_inner())
    }

    fn take_all(&self, into: &mut Vec<Job>, wait: bool) {
        let mut jobs = if wait { self.wait() } else { lock(&self.jobs) };
        into.extend(jobs.drain(..));
        self.len.store(0, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// The reads that wait for a thread, and those that are done.
#[derive(Default)]
struct Pool {
    queue: Line,
    finished: Line,
}

impl Pool {
    /// The loop of a thread. A job without a buffer ends it.
    fn work(&self, files: &[File]) {
        loop {
            let job = self.queue.wait().pop_front();
            match job {
                Some(mut job) if !job.buffer.is_empty() => {
                    job.result = read(&files[job.place.file], &mut job);
                    self.finished.push(job);
                }
                _ => return,
            }
        }
    }
}

/// Reads the rest of a block.
fn read(file: &File, job: &mut Job) -> io::Result<usize> {
    let from = job.place.offset + job.done as u64;
    call::pread(file, &mut job.buffer[job.done..], from).map(|n| job.done + n)
}

/// Reads the part of a block that is in the page cache.
fn try_cache(file: &File, job: &mut Job) -> io::Result<usize> {
    match call::preadv2_nowait(file, &mut job.buffer, job.place.offset) {
        Err(Errno::AGAIN | Errno::OPNOTSUPP) => Ok(0),
        other => Ok(other?),
    }
}

/// Runs a turn with a pool of this many threads. With `first` the dispatcher tries the page cache
/// before it queues a read.
pub fn pool(turn: &Turn<'_>, threads: usize, first: bool) -> Result<Round, Problem> {
    let files = turn.open()?;
    let pool = Pool::default();
    turn.run(|lane| {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| pool.work(&files));
            }
            let outcome = dispatch(turn, lane, &files, &pool, first);
            for _ in 0..threads {
                pool.queue.push(Job {
                    place: Place::default(),
                    buffer: Vec::new(),
                    done: 0,
                    began: Instant::now(),
                    result: Ok(0),
                });
            }
            outcome
        })
    })
}

/// The event loop: takes finished reads and begins new ones, as many as the depth allows.
fn dispatch(
    turn: &Turn<'_>,
    lane: &mut Lane<'_>,
    files: &[File],
    pool: &Pool,
    first: bool,
) -> Result<(), Problem> {
    let block = turn.block;
    let mut buffers: Vec<Vec<u8>> = (0..turn.depth).map(|_| vec![1u8; block as usize]).collect();
    let mut finished = Vec::with_capacity(turn.depth);
    let (mut away, mut more) = (0, true);
    lane.begin();
    while away > 0 || more {
        let idle = buffers.is_empty() || !more;
        if idle || !pool.finished.is_empty() {
            pool.finished.take_all(&mut finished, idle);
        }
        for job in finished.drain(..) {
            away -= 1;
            // After a try the block was not wholly cached. Without a try its origin is unknown.
            let hit = first.then_some(false);
            lane.landed(job.place, job.began.elapsed(), hit);
            lane.done(job.result.map_err(|e| Problem::of("read", e))?, block)?;
            buffers.push(job.buffer);
        }
        let Some(buffer) = buffers.pop() else {
            continue;
        };
        let Some(place) = lane.next() else {
            more = false;
            continue;
        };
        let began = Instant::now();
        let mut job = Job {
            place,
            buffer,
            done: 0,
            began,
            result: Ok(0),
        };
        if first {
            job.done =
                try_cache(&files[place.file], &mut job).map_err(|e| Problem::of("read", e))?;
        }
        if job.done as u64 == block {
            let time = began.elapsed();
            lane.tape.stall(time);
            lane.landed(place, time, Some(true));
            lane.done(job.done, block)?;
            buffers.push(job.buffer);
        } else {
            away += 1;
            pool.queue.push(job);
            lane.tape.stall(began.elapsed());
        }
    }
    Ok(())
}
