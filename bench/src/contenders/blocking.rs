//! Contenders that wait in the call: pread(2), preadv(2), preadv2(2), nowait's blocking form.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::{Errno, ReadWriteFlags};

use crate::harness::round::Round;
use crate::harness::turn::{Lane, Turn};
use nowait_cli::problem::Problem;

/// A loop of pread(2).
pub fn pread(turn: &Turn<'_>) -> Result<Round, Problem> {
    descriptors(turn, |fd, buffer, offset| {
        rustix::io::pread(fd, buffer, offset)
    })
}

/// A loop of preadv(2), one buffer each.
pub fn preadv(turn: &Turn<'_>) -> Result<Round, Problem> {
    descriptors(turn, |fd, buffer, offset| {
        rustix::io::preadv(fd, &mut [IoSliceMut::new(buffer)], offset)
    })
}

/// A loop of preadv2(2) with RWF_NOWAIT; what it does not bring, pread(2) does.
pub fn preadv2(turn: &Turn<'_>) -> Result<Round, Problem> {
    descriptors(turn, |fd, buffer, offset| {
        let len = buffer.len();
        let vector = &mut [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(fd, vector, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == len => Ok(n),
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP) => rustix::io::pread(fd, buffer, offset),
            Err(errno) => Err(errno),
        }
    })
}

fn descriptors(
    turn: &Turn<'_>,
    read: impl Fn(std::os::fd::BorrowedFd<'_>, &mut [u8], u64) -> Result<usize, Errno> + Sync,
) -> Result<Round, Problem> {
    let files = turn.files.open()?;
    for (number, file) in files.iter().enumerate() {
        turn.advise(number, file)?;
    }
    turn.run(|lane| {
        each(lane, turn.block, |file, buffer, offset| {
            read(files[file].as_fd(), buffer, offset).map_err(|e| Problem::of("read", e))
        })
    })
}

/// A loop of nowait's blocking form.
pub fn nowait(turn: &Turn<'_>) -> Result<Round, Problem> {
    let engine = nowait::Engine::new()?;
    let files = super::future::open(turn, &engine)?;
    turn.run(|lane| {
        each(lane, turn.block, |file, buffer, offset| {
            Ok(files[file].blocking_read_at(buffer, offset)?)
        })
    })
}

#[inline]
fn each(
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
