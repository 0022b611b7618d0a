//! The loop of every contender that reads with O_DIRECT: batches of random reads by one thread on
//! one core. A [`Queue`] submits them and waits for them.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use nowait::buffer::{BufferPool, PoolBuffer};
use nowait_cli::problem::Problem;

use crate::harness::cores;
use crate::harness::files::open_direct;
use crate::harness::round::{EngineFacts, Round};
use crate::harness::turn::Turn;

/// The work of one turn.
pub struct Load<'a> {
    pub turn: Turn<'a>,
    /// How many completions one call waits for.
    pub batch: usize,
    /// The core that the thread stays on. Otherwise latencies would depend on the core on which the
    /// scheduler wakes the thread.
    pub core: usize,
}

/// The files and the memory of a queue: a piece for each read in flight.
pub struct Parts {
    pub files: Vec<File>,
    pub memory: Vec<PoolBuffer>,
    pub pool: BufferPool,
}

/// The result of the read in a slot.
pub type Done = (usize, Result<usize, Problem>);

/// A queue with a slot for each read in flight.
pub trait Queue {
    /// Prepares a read of a block into the memory of a slot that is not in flight.
    fn prepare(&mut self, slot: usize, file: usize, offset: u64);

    /// Submits what is prepared, and waits for at least this many reads.
    fn submit_and_wait(&mut self, at_least: usize, done: &mut Vec<Done>) -> Result<(), Problem>;

    /// The counters of the engine, if there is one.
    fn facts(&self) -> Option<EngineFacts> {
        None
    }
}

impl Load<'_> {
    /// The files, and memory for `depth` blocks. The memory is written, so that the kernel has
    /// allocated it before a turn begins.
    pub fn parts(&self, depth: usize) -> Result<Parts, Problem> {
        let pool = BufferPool::new(depth, self.turn.block as usize)?;
        let mut memory: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        memory.iter_mut().for_each(|piece| piece.fill(0xa5));
        let open = |path: &PathBuf| open_direct(path);
        let files = self.turn.files.paths.iter().map(open);
        Ok(Parts {
            files: files.collect::<Result<_, _>>()?,
            memory,
            pool,
        })
    }

    /// Runs one turn: keeps as many reads in flight as the depth, in batches.
    pub fn play<Q: Queue>(
        &self,
        make: impl Fn(Parts) -> Result<Q, Problem> + Sync,
    ) -> Result<Round, Problem> {
        let turn = &self.turn;
        let facts = Mutex::new(None);
        let mut round = turn.run(|lane| {
            cores::stay_on(self.core)?;
            let mut queue = make(self.parts(turn.depth)?)?;
            let mut free: Vec<usize> = (0..turn.depth).collect();
            let mut done = Vec::with_capacity(turn.depth);
            let mut timed: Option<(usize, Instant)> = None;
            lane.begin();
            loop {
                let (mut fresh, mut last) = (0, 0);
                while let Some(slot) = free.pop() {
                    let Some(place) = lane.next() else {
                        free.push(slot);
                        break;
                    };
                    queue.prepare(slot, place.file, place.offset);
                    (fresh, last) = (fresh + 1, slot);
                }
                if fresh > 0 {
                    let timer = lane.tape.timer(fresh);
                    timed = timed.or(timer.map(|timer| (last, timer)));
                }
                let in_flight = turn.depth - free.len();
                if in_flight == 0 {
                    *facts.lock().unwrap_or_else(|e| e.into_inner()) = queue.facts();
                    return Ok(());
                }
                queue.submit_and_wait(self.batch.min(in_flight), &mut done)?;
                for (slot, read) in done.drain(..) {
                    if let Some((_, timer)) = timed.take_if(|(of, _)| *of == slot) {
                        lane.tape.latency(timer.elapsed());
                    }
                    free.push(slot);
                    lane.done(read?, turn.block)?;
                }
            }
        })?;
        round.engine = facts.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(round)
    }
}
