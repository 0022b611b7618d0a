//! libaio as a contender: its system calls, in the loop of the other contenders.

use std::time::Instant;

use nowait::buffer::BufferPool;

use super::aio::Queue;
use super::load::Load;
use crate::harness::contender::Fit;
use crate::harness::round::Round;
use nowait_cli::problem::Problem;

/// Returns if this kernel has the calls.
pub fn fits() -> Fit {
    match Queue::new(Vec::new(), Vec::new()) {
        Ok(_) => Fit::Yes,
        Err(e) => Fit::No(format!("io_setup(2) says: {e}")),
    }
}

/// Runs one turn: keeps as many operations in flight as the depth, in batches.
pub fn play(load: &Load<'_>) -> Result<Round, Problem> {
    let turn = &load.turn;
    turn.run(|lane| {
        load.pin()?;
        let pool = BufferPool::new(turn.depth, turn.block as usize)?;
        let memory = std::iter::from_fn(|| pool.take()).map(Load::filled);
        let queue = Queue::new(load.open()?, memory.collect());
        let mut queue = queue.map_err(|e| Problem::of("io_setup", e))?;
        let mut free: Vec<usize> = (0..turn.depth).collect();
        let mut timed: Option<(usize, Instant)> = None;
        lane.begin();
        loop {
            let (mut fresh, mut last) = (0u64, 0);
            while let Some(slot) = free.pop() {
                let Some(place) = lane.next() else {
                    free.push(slot);
                    break;
                };
                queue.prepare(slot, load.write, place.file, place.offset);
                (fresh, last) = (fresh + 1, slot);
            }
            if fresh > 0 {
                let timer = lane.tape.timer(fresh);
                timed = timed.or(timer.map(|timer| (last, timer)));
                queue.submit().map_err(|e| Problem::of("io_submit", e))?;
            }
            let in_flight = turn.depth - free.len();
            if in_flight == 0 {
                return Ok(());
            }
            let mut outcome = Ok(());
            let reaped = queue.reap(load.batch.min(in_flight), |slot, result| {
                if let Some((_, timer)) = timed.take_if(|(of, _)| *of == slot) {
                    lane.tape.latency(timer.elapsed());
                }
                free.push(slot);
                let done = result
                    .map_err(|e| Problem::of(load.verb(), e))
                    .and_then(|n| lane.done(n, turn.block));
                if outcome.is_ok() {
                    outcome = done;
                }
            });
            reaped.map_err(|e| Problem::of("io_getevents", e))?;
            outcome?;
        }
    })
}
