//! A pool of threads that read, as executors have one for blocking calls (tokio's
//! `spawn_blocking`).

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use crate::problem::Problem;

/// The result of a read, and its buffer.
type Done = (io::Result<usize>, Vec<u8>);

/// Threads that read one file. Dropping the pool ends them after the reads that were requested.
pub struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// The reads that wait for a thread.
struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closed: bool,
}

/// A read that was requested.
struct Job {
    buffer: Vec<u8>,
    offset: u64,
    result: Arc<Mutex<Slot>>,
}

/// The result of a read, or the waker of the task that waits for it.
#[derive(Default)]
struct Slot {
    done: Option<Done>,
    waker: Option<Waker>,
}

impl Pool {
    /// A pool that reads `file` with this number of threads.
    pub fn new(file: &Arc<File>, threads: usize) -> Result<Pool, Problem> {
        let mut pool = Pool {
            queue: Arc::new(Queue {
                jobs: Mutex::default(),
                changed: Condvar::new(),
            }),
            threads: Vec::with_capacity(threads),
        };
        for _ in 0..threads {
            let (queue, file) = (pool.queue.clone(), file.clone());
            let thread = thread::Builder::new().spawn(move || queue.work(&file));
            let thread = thread.map_err(|e| Problem::of("cannot start a thread", e))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// A read, which is requested at the first poll.
    pub fn read_at(&self, buffer: Vec<u8>, offset: u64) -> ReadAt<'_> {
        ReadAt {
            queue: &self.queue,
            offset,
            buffer: Some(buffer),
            result: Arc::default(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        locked(&self.queue.jobs).closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// The loop of a thread.
    fn work(&self, file: &File) {
        while let Some(mut job) = self.next() {
            let read = file.read_at(&mut job.buffer, job.offset);
            let mut slot = locked(&job.result);
            slot.done = Some((read, job.buffer));
            let waker = slot.waker.take();
            drop(slot);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = locked(&self.jobs);
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            if jobs.closed {
                return None;
            }
            jobs = (self.changed.wait(jobs)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A read by a thread of the pool.
pub struct ReadAt<'a> {
    queue: &'a Queue,
    offset: u64,
    /// `None` after the first poll.
    buffer: Option<Vec<u8>>,
    result: Arc<Mutex<Slot>>,
}

impl Future for ReadAt<'_> {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        let mut slot = locked(&self.result);
        if let Some(done) = slot.done.take() {
            return Poll::Ready(done);
        }
        slot.waker = Some(cx.waker().clone());
        drop(slot);
        if let Some(buffer) = self.buffer.take() {
            let job = Job {
                buffer,
                offset: self.offset,
                result: self.result.clone(),
            };
            locked(&self.queue.jobs).waiting.push_back(job);
            self.queue.changed.notify_one();
        }
        Poll::Pending
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
