//! The gate that all tasks of a turn start at: the clocks are read when the last one has come, and
//! nobody goes before. What is measured is between that moment and the end of the last task.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::areas::runtimes::places::Places;
use crate::areas::runtimes::round::{Round, Used};
use crate::areas::runtimes::tape::{Tape, histogram};
use crate::areas::runtimes::tick::Tick;
use crate::areas::runtimes::turn::Turn;

/// One turn as its tasks see it.
pub struct Gate {
    pub turn: Turn,
    pub places: Places,
    /// How many there are: as many as the cell says, or as threads can do.
    tasks: u64,
    /// How many have come to the gate, and how many have ended.
    come: AtomicU64,
    ended: AtomicU64,
    start: OnceLock<(Instant, Used)>,
    end: OnceLock<(Instant, Used)>,
    open: Semaphore,
    tape: Mutex<Tape>,
    ticks: Mutex<Vec<&'static Tick>>,
}

/// What a peer does for one operation of one task.
pub trait Source {
    /// Reads or writes one block at `offset`, whole.
    async fn act(&mut self, offset: u64) -> io::Result<()>;

    /// Waits for what was only begun.
    async fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Gate {
    /// The gate of a turn, for all the life of the process.
    pub fn of(turn: Turn) -> &'static Gate {
        Box::leak(Box::new(Gate {
            places: turn.places(),
            tasks: turn.tasks(),
            come: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            start: OnceLock::new(),
            end: OnceLock::new(),
            open: Semaphore::new(0),
            tape: Mutex::new(Tape::new()),
            ticks: Mutex::new(Vec::new()),
            turn,
        }))
    }

    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// A task's share of the work: some operations that nobody counts, the gate, the rest.
    ///
    /// # Errors
    /// As the source says. The others don't wait at the gate for this task then.
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
        let mut tape = Tape::new();
        for k in lead.. {
            if each.is_some_and(|each| tape.ops == each) {
                break;
            }
            tape.ops += 1;
            if k % timed != 0 {
                source.act(place(k)).await?;
                continue;
            }
            let before = Instant::now();
            source.act(place(k)).await?;
            let after = Instant::now();
            let took = after.duration_since(before).as_nanos() as u64;
            tape.latency.saturating_record(took);
            if each.is_none() && after >= deadline {
                break;
            }
        }
        source.finish().await?;
        self.leave(&tape);
        Ok(())
    }

    /// Waits until all have come. The last one reads the clocks and opens.
    async fn pass(&self) -> Instant {
        if self.come.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            for tick in self.ticks() {
                tick.begin();
            }
            let _ = self.start.set((Instant::now(), Used::now()));
            self.open.close();
        }
        // It is closed when it is open.
        let _ = self.open.acquire().await;
        self.start.get().map_or_else(Instant::now, |start| start.0)
    }

    /// A tick of an event loop, which counts from when the gate opens.
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

    /// The last one to end reads the clocks again. Ticks that nobody has served by then are as late
    /// as that.
    fn leave(&self, tape: &Tape) {
        if self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            let _ = self.end.set((Instant::now(), Used::now()));
            for tick in self.ticks() {
                tick.end();
            }
        }
        self.tape
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(tape);
    }

    /// What came of it, when all tasks have ended.
    ///
    /// # Errors
    /// If not all have.
    pub fn round(&self) -> io::Result<Round> {
        let (Some(start), Some(end)) = (self.start.get(), self.end.get()) else {
            return Err(io::Error::other("not all tasks came to the end"));
        };
        let mut lateness = None;
        for tick in self.ticks() {
            tick.add_to(lateness.get_or_insert_with(histogram));
        }
        Ok(Round::new(
            &self.tape.lock().unwrap_or_else(PoisonError::into_inner),
            lateness.as_ref(),
            self.turn.cell.block,
            end.0.duration_since(start.0).as_secs_f64(),
            end.1 - start.1,
        ))
    }
}
