//! A loop of pread(2) or pwrite(2): one operation at a time at any depth.

use std::os::unix::fs::FileExt;

use nowait::buffer::BufferPool;

use super::load::Load;
use crate::harness::round::Round;
use nowait_cli::problem::Problem;

/// Runs one turn.
pub fn play(load: &Load<'_>) -> Result<Round, Problem> {
    let turn = &load.turn;
    let files = load.open()?;
    turn.run(|lane| {
        load.pin()?;
        let pool = BufferPool::new(1, turn.block as usize)?;
        let Some(mut memory) = pool.take().map(Load::filled) else {
            return Ok(());
        };
        lane.begin();
        while let Some(place) = lane.next() {
            let timer = lane.tape.timer(1);
            let file = &files[place.file];
            let done = match load.write {
                true => file.write_at(&memory, place.offset),
                false => file.read_at(&mut memory, place.offset),
            };
            let n = done.map_err(|e| Problem::of(load.verb(), e))?;
            lane.tape.call(timer);
            lane.done(n, turn.block)?;
        }
        Ok(())
    })
}
