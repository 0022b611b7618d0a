//! Operations of a `LocalEngine`: one at a time, and in batches of 64.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nowait::buffer::{RawMemory, downcast};
use nowait::engine::{LocalEngine, Submit, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{Completion, Handle};

use crate::data::{BLOCK, Failure, advise, offset, other_way, scattered};

const BATCH: usize = 64;

fn open(path: &Path) -> Result<(LocalEngine, Handle), Failure> {
    Ok((LocalEngine::new()?, Handle::new(File::open(path)?)?))
}

/// Checks a completion of a read, and takes its operation.
fn succeeded(done: Completion) -> Result<Op, Failure> {
    match done.result {
        Ok(BLOCK) => Ok(done.op),
        other => Err(other_way(other)),
    }
}

/// Takes the vector out of a read.
fn vector(op: Op) -> Result<Vec<u8>, Failure> {
    let buffer = op.into_buffer().ok_or("the read has no buffer")?;
    downcast(buffer).map_err(|_| "another buffer".into())
}

pub fn hit_boxed(path: &Path, count: usize) -> Result<(), Failure> {
    let (mut engine, file) = open(path)?;
    let mut buf = vec![0u8; BLOCK];
    for index in 0..count {
        let read = Read::new(&file, Box::new(buf), offset(index));
        match engine.submit(read.into()) {
            Submit::Done(done) => buf = vector(succeeded(done)?)?,
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

pub fn hit_raw(path: &Path, count: usize) -> Result<(), Failure> {
    let (mut engine, file) = open(path)?;
    let mut buf = vec![0u8; BLOCK];
    // SAFETY: the buffer outlives each operation, and nothing else accesses it.
    let memory = unsafe { RawMemory::new(buf.as_mut_ptr(), BLOCK) };
    for index in 0..count {
        let read = Read::raw(&file, memory, Some(offset(index)));
        match engine.submit(read.into()) {
            Submit::Done(done) => drop(succeeded(done)?),
            other => return Err(other_way(other)),
        }
    }
    Ok(())
}

pub fn miss(path: &Path, count: usize) -> Result<(), Failure> {
    let (mut engine, file) = open(path)?;
    advise(file.as_fd().as_raw_fd(), libc::POSIX_FADV_RANDOM)?;
    let mut buf = vec![0u8; BLOCK];
    let mut done = Vec::new();
    for index in 0..count {
        let read = Read::new(&file, Box::new(buf), scattered(index));
        match engine.submit(read.into()) {
            Submit::Queued(_) => {}
            other => return Err(other_way(other)),
        }
        engine.reap(&mut done, Wait::For(1))?;
        let read = done.pop().ok_or("no completion")?;
        buf = vector(succeeded(read)?)?;
    }
    Ok(())
}

pub fn nops(path: &Path, count: usize) -> Result<(), Failure> {
    let (mut engine, _) = open(path)?;
    let (mut ops, mut done) = (Vec::new(), Vec::new());
    for _ in 0..count / BATCH {
        ops.extend((0..BATCH).map(|_| Op::from(Nop)));
        let reaped = engine.submit_and_wait(&mut ops, &mut done, Wait::For(BATCH))?;
        if reaped != BATCH || done.drain(..).any(|done| done.result.is_err()) {
            return Err(other_way(reaped));
        }
    }
    Ok(())
}

pub fn hits_boxed(path: &Path, count: usize) -> Result<(), Failure> {
    let (mut engine, file) = open(path)?;
    let mut bufs: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![0; BLOCK]).collect();
    let (mut ops, mut done) = (Vec::new(), Vec::new());
    for batch in 0..count / BATCH {
        let read = |(index, buf)| Read::new(&file, Box::new(buf), offset(batch * BATCH + index));
        ops.extend(bufs.drain(..).enumerate().map(read).map(Op::from));
        engine.submit_and_wait(&mut ops, &mut done, Wait::For(BATCH))?;
        for done in done.drain(..) {
            bufs.push(vector(succeeded(done)?)?);
        }
        if bufs.len() != BATCH {
            return Err(other_way(bufs.len()));
        }
    }
    Ok(())
}

pub fn hits_raw(path: &Path, count: usize) -> Result<(), Failure> {
    let (mut engine, file) = open(path)?;
    let mut bufs: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![0; BLOCK]).collect();
    // SAFETY: the buffers outlive each operation, and nothing else accesses them.
    let memory = |buf: &mut Vec<u8>| unsafe { RawMemory::new(buf.as_mut_ptr(), BLOCK) };
    let memories: Vec<RawMemory> = bufs.iter_mut().map(memory).collect();
    let (mut ops, mut done) = (Vec::new(), Vec::new());
    for batch in 0..count / BATCH {
        let read = |(index, memory): (usize, &RawMemory)| {
            Read::raw(&file, *memory, Some(offset(batch * BATCH + index)))
        };
        ops.extend(memories.iter().enumerate().map(read).map(Op::from));
        let reaped = engine.submit_and_wait(&mut ops, &mut done, Wait::For(BATCH))?;
        if reaped != BATCH {
            return Err(other_way(reaped));
        }
        for done in done.drain(..) {
            succeeded(done)?;
        }
    }
    Ok(())
}
