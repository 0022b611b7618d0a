//! Contenders that wait in the call: pread(2), preadv(2), preadv2(2), nowait's blocking call.

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::call;
use crate::harness::round::Round;
use crate::harness::turn::{Lane, Turn};
use nowait_cli::problem::Problem;

/// A loop of pread(2).
pub fn pread(turn: &Turn<'_>) -> Result<Round, Problem> {
    files(turn, call::pread)
}

/// A loop of preadv(2), one buffer each.
pub fn preadv(turn: &Turn<'_>) -> Result<Round, Problem> {
    files(turn, call::preadv)
}

/// A loop of preadv2(2) with RWF_NOWAIT; pread(2) reads what is not in the page cache.
pub fn preadv2(turn: &Turn<'_>) -> Result<Round, Problem> {
    files(turn, |file, buffer, offset| {
        match call::preadv2_nowait(file, buffer, offset) {
            Ok(n) if n == buffer.len() => Ok(n),
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP) => call::pread(file, buffer, offset),
            Err(errno) => Err(errno.into()),
        }
    })
}

fn files(
    turn: &Turn<'_>,
    read: impl Fn(&File, &mut [u8], u64) -> io::Result<usize> + Sync,
) -> Result<Round, Problem> {
    let files = turn.open()?;
    turn.run(|lane| {
        each(lane, turn.block, |file, buffer, offset| {
            read(&files[file], buffer, offset).map_err(|e| Problem::of("read", e))
        })
    })
}

/// A loop of nowait's blocking call.
pub fn nowait(turn: &Turn<'_>) -> Result<Round, Problem> {
    let engine = nowait::Engine::new()?;
    let files = super::future::open(turn, &engine)?;
    turn.run(|lane| {
        each(lane, turn.block, |file, buffer, offset| {
            Ok(files[file].blocking_read_at(buffer, offset)?)
        })
    })
}

/// A loop of reads into one buffer.
#[inline]
pub(super) fn each(
    lane: &mut Lane<'_>,
    block: u64,
    read: impl Fn(usize, &mut [u8], u64) -> Result<usize, Problem>,
) -> Result<(), Problem> {
    let mut buffer = vec![1u8; block as usize];
    lane.begin();
    while let Some(place) = lane.next() {
        let timer = lane.tape.timer(1);
        let n = read(place.file, &mut buffer, place.offset)?;
        lane.tape.call(timer);
        lane.done(n, block)?;
    }
    Ok(())
}
