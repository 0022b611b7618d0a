//! The gate at which all tasks of a turn wait. It opens when the last task has arrived. The time
//! and the use of the processor are measured from then until the end of the last task.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use thread_local::ThreadLocal;
use tokio::sync::Semaphore;

use crate::areas::runtimes::places::Places;
use crate::areas::runtimes::turn::Turn;
use crate::harness::percentiles::{Percentiles, histogram};
use crate::harness::round::Round;
use crate::harness::tick::Tick;
use crate::harness::usage::Usage;

/// One turn as its tasks see it.
pub struct Gate {
    pub turn: Turn,
    pub places: Places,
    /// The number of tasks.
    tasks: u64,
    /// The number of tasks that have arrived at the gate.
    come: AtomicU64,
    /// The number of tasks that have ended.
    ended: AtomicU64,
    start: OnceLock<(Instant, Usage)>,
    end: OnceLock<(Instant, Usage)>,
    open: Semaphore,
    /// The measured operations of the tasks that have ended.
    ops: AtomicU64,
    /// Nanoseconds, in a histogram for each thread. To fill and add up a histogram for each of a
    /// thousand tasks would take as long as the tasks run.
    latencies: ThreadLocal<Mutex<Histogram<u64>>>,
    ticks: Mutex<Vec<&'static Tick>>,
}

/// The figures of one peer's turn.
#[derive(Serialize)]
pub struct Ticked {
    #[serde(flatten)]
    round: Round,
    /// The lateness of the event loop for a timer; `None` without an event loop.
    tick_us: Option<Percentiles>,
}

/// The operations of one task of a peer.
pub trait Source {
    /// Reads or writes one whole block at `offset`.
    async fn act(&mut self, offset: u64) -> io::Result<()>;

    /// Waits for writes that have only begun.
    async fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Gate {
    /// The gate of a turn. It lives as long as the process.
    pub fn of(turn: Turn) -> &'static Gate {
        Box::leak(Box::new(Gate {
            places: turn.places(),
            tasks: turn.tasks(),
            come: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            start: OnceLock::new(),
            end: OnceLock::new(),
            open: Semaphore::new(0),
            ops: AtomicU64::new(0),
            latencies: ThreadLocal::new(),
            ticks: Mutex::new(Vec::new()),
            turn,
        }))
    }

    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// The tasks of one of the turn's threads.
    pub fn tasks_of(&self, thread: u64) -> impl Iterator<Item = u64> {
        (thread..self.tasks).step_by(self.turn.threads() as usize)
    }

    /// Runs one task: some operations that are not measured, the gate, the measured operations.
    ///
    /// # Errors
    /// Those of the source. The gate is opened then, so that the other tasks do not wait for this
    /// one.
    pub async fn drive(&self, task: u64, source: impl Source) -> io::Result<()> {
        let done = self.share(task, source).await;
        if done.is_err() {
            self.open.close();
        }
        done
    }

    async fn share(&self, task: u64, mut source: impl Source) -> io::Result<()> {
        let (cell, timed) = (&self.turn.cell, self.turn.cell.timed());
        let lead = cell.lead();
        let each = cell.reads(self.turn.size).map(|all| all / self.tasks);
        let place = |k: u64| self.turn.place(&self.places, k * self.tasks + task);
        for k in 0..lead {
            source.act(place(k)).await?;
        }
        let start = self.pass().await;
        let deadline = start + Duration::from_secs_f64(self.turn.seconds);
        let mut ops = 0;
        for k in lead.. {
            if each.is_some_and(|each| ops == each) {
                break;
            }
            ops += 1;
            if k % timed != 0 {
                source.act(place(k)).await?;
                continue;
            }
            let before = Instant::now();
            source.act(place(k)).await?;
            let after = Instant::now();
            let took = after.duration_since(before).as_nanos() as u64;
            self.record(took);
            if each.is_none() && after >= deadline {
                break;
            }
        }
        source.finish().await?;
        self.leave(ops);
        Ok(())
    }

    /// Waits until all tasks have arrived. The last one reads the clocks and opens the gate.
    async fn pass(&self) -> Instant {
        if self.come.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            for tick in self.ticks() {
                tick.begin();
            }
            let _ = self.start.set((Instant::now(), Usage::of_self()));
            self.open.close();
        }
        // A closed semaphore means that the gate is open.
        let _ = self.open.acquire().await;
        self.start.get().map_or_else(Instant::now, |start| start.0)
    }

    /// A tick of an event loop, which begins when the gate opens.
    pub fn tick(&self) -> io::Result<&'static Tick> {
        let tick = Box::leak(Box::new(Tick::new()?));
        self.ticks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(tick);
        Ok(tick)
    }

    fn ticks(&self) -> Vec<&'static Tick> {
        self.ticks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records the latency of one operation.
    fn record(&self, nanoseconds: u64) {
        self.latencies
            .get_or(|| Mutex::new(histogram()))
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .saturating_record(nanoseconds);
    }

    /// Ends a task. The last one reads the clocks again and ends the ticks.
    fn leave(&self, ops: u64) {
        self.ops.fetch_add(ops, Ordering::AcqRel);
        if self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            let _ = self.end.set((Instant::now(), Usage::of_self()));
            for tick in self.ticks() {
                tick.end();
            }
        }
    }

    /// The figures of the turn, after all tasks have ended.
    ///
    /// # Errors
    /// If a task has not ended.
    pub fn round(&self) -> io::Result<Ticked> {
        let (Some(start), Some(end)) = (self.start.get(), self.end.get()) else {
            return Err(io::Error::other("not all tasks came to the end"));
        };
        let mut latencies = histogram();
        for latency in &self.latencies {
            // An error is not possible: both histograms have the same bounds.
            let _ = latencies.add(&*latency.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut lateness = None;
        for tick in self.ticks() {
            tick.add_to(lateness.get_or_insert_with(histogram));
        }
        let (block, seconds) = (
            self.turn.cell.block,
            end.0.duration_since(start.0).as_secs_f64(),
        );
        let ops = self.ops.load(Ordering::Acquire);
        Ok(Ticked {
            round: Round {
                lat_us: Percentiles::of(&latencies),
                ..Round::new(ops, block, seconds, end.1 - start.1)
            },
            tick_us: lateness.as_ref().and_then(Percentiles::of),
        })
    }
}
