//! Contenders on a [`LocalEngine`], which the reading thread drives: batches, or one read at a
//! time. Buffers are used again.

use std::sync::Mutex;
use std::time::Instant;

use nowait::Handle;
use nowait::buffer::Buffer;
use nowait::engine::{Backend, LocalEngine, Options, Submit, Wait};
use nowait::op::{Op, Read};

use crate::harness::contender::Fit;
use crate::harness::place::Place;
use crate::harness::round::Round;
use crate::harness::turn::{Lane, Turn};
use nowait_cli::problem::Problem;

/// The time at which new reads are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// As soon as one read is done, so that as many reads as the depth are always in flight.
    Always,
    /// When the whole batch is done.
    Whole,
}

/// Returns if a ring is available. Without a ring, a local engine uses worker threads.
pub fn fits(name: &str) -> Fit {
    match Options::new().depth(1).build_local() {
        Err(error) => Fit::no_engine(name, &error),
        Ok(engine) => Fit::on(name, Some(Backend::Uring), engine.backend(), engine.why()),
    }
}

/// Batches of as many reads as the depth.
pub fn batches(turn: &Turn<'_>, refill: Refill) -> Result<Round, Problem> {
    with_engine(turn, |lane, engine, handles| {
        let mut buffers: Vec<Buffer> = (0..turn.depth).map(|_| buffer(turn.block)).collect();
        let mut slots: Vec<u64> = (0..turn.depth as u64).collect();
        let mut started = vec![None; turn.depth];
        let mut places = vec![Place::default(); turn.depth];
        let mut ops: Vec<Op> = Vec::with_capacity(turn.depth);
        let mut done = Vec::with_capacity(turn.depth);
        lane.begin();
        loop {
            while let (Some(slot), Some(buffer)) = (slots.pop(), buffers.pop()) {
                let Some(place) = lane.next() else {
                    slots.push(slot);
                    buffers.push(buffer);
                    break;
                };
                places[slot as usize] = place;
                ops.push(Op::from(read(handles, buffer, place)).user_data(slot));
            }
            let size = ops.len();
            if size > 0 {
                let timer = lane.tape.timer(size as u64);
                if lane.tape.every_one() {
                    for op in &ops {
                        started[op.get_user_data() as usize] = timer;
                    }
                } else if let Some(op) = ops.last() {
                    started[op.get_user_data() as usize] = timer;
                }
                engine.submit_batch(&mut ops);
                if let Some(timer) = timer {
                    lane.tape.stall(timer.elapsed());
                }
            } else if engine.in_flight() == 0 {
                return Ok(());
            }
            let enough = match refill {
                Refill::Always => 1,
                Refill::Whole => turn.depth,
            };
            engine.reap(&mut done, Wait::For(enough))?;
            let now = Instant::now();
            for completion in done.drain(..) {
                let slot = completion.op.get_user_data();
                let n = completion.result?;
                if let Some(start) = started[slot as usize].take() {
                    let hit = completion.provenance.cached == n;
                    lane.landed(places[slot as usize], now - start, Some(hit));
                }
                lane.done(n, turn.block)?;
                slots.push(slot);
                buffers.extend(completion.op.into_buffer());
            }
        }
    })
}

/// One read at a time.
pub fn one_by_one(turn: &Turn<'_>) -> Result<Round, Problem> {
    with_engine(turn, |lane, engine, handles| {
        let mut held = Some(buffer(turn.block));
        let mut done = Vec::with_capacity(1);
        lane.begin();
        while let (Some(buffer), Some(place)) = (held.take(), lane.next()) {
            let timer = lane.tape.timer(1);
            let submitted = engine.submit(read(handles, buffer, place).into());
            if let Some(timer) = timer {
                lane.tape.stall(timer.elapsed());
            }
            let completion = match submitted {
                Submit::Done(completion) => Some(completion),
                Submit::Queued(_) => {
                    engine.reap(&mut done, Wait::For(1))?;
                    done.pop()
                }
                Submit::Full(_) => return Err(Problem::Failed("an empty engine is full".into())),
            };
            if let Some(timer) = timer {
                lane.tape.latency(timer.elapsed());
            }
            if let Some(completion) = completion {
                lane.done(completion.result?, turn.block)?;
                held = completion.op.into_buffer();
            }
        }
        Ok(())
    })
}

fn buffer(block: u64) -> Buffer {
    Box::new(vec![1u8; block as usize])
}

#[inline]
fn read(handles: &[Handle], buffer: Buffer, place: Place) -> Read {
    Read::new(&handles[place.file], buffer, place.offset)
}

/// Runs a turn in which each lane has its own engine. All lanes share the open files.
fn with_engine(
    turn: &Turn<'_>,
    work: impl Fn(&mut Lane<'_>, &mut LocalEngine, &[Handle]) -> Result<(), Problem> + Sync,
) -> Result<Round, Problem> {
    let handles = turn.open()?.into_iter().map(Handle::new);
    let handles = handles.collect::<Result<Vec<_>, _>>()?;
    let facts = Mutex::new(None);
    let mut round = turn.run(|lane| {
        let mut engine = Options::new().depth(turn.depth).build_local()?;
        work(lane, &mut engine, &handles)?;
        // The counters of the last lane are reported.
        *facts.lock().unwrap_or_else(|e| e.into_inner()) = Some((&engine).into());
        Ok(())
    })?;
    round.engine = facts.into_inner().unwrap_or_else(|e| e.into_inner());
    Ok(round)
}
