//! The functions of libnowait, called as a C program calls them.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use nowait_capi::{
    NW_CACHED_ALL, NW_ENGINE_LOCAL, NW_OP_NOP, NW_OP_READ, nw_completion, nw_engine,
    nw_engine_create, nw_engine_destroy, nw_engine_options, nw_file, nw_file_close, nw_file_open,
    nw_op, nw_pread_cached, nw_reap, nw_submit_batch,
};

use crate::data::{BLOCK, Failure, offset, other_way};

const BATCH: usize = 64;

pub fn pread_cached(path: &Path, count: usize) -> Result<(), Failure> {
    let file = File::open(path)?;
    let mut buf = vec![0u8; BLOCK];
    for index in 0..count {
        let mut n = 0;
        let place = offset(index) as libc::off_t;
        // SAFETY: the buffer has BLOCK bytes.
        let result = unsafe {
            nw_pread_cached(
                file.as_raw_fd(),
                buf.as_mut_ptr().cast(),
                BLOCK,
                place,
                &raw mut n,
            )
        };
        if result != NW_CACHED_ALL || n != BLOCK {
            return Err(other_way((result, n)));
        }
    }
    Ok(())
}

pub fn nops(path: &Path, count: usize) -> Result<(), Failure> {
    batches(path, count, NW_OP_NOP)
}

pub fn hits(path: &Path, count: usize) -> Result<(), Failure> {
    batches(path, count, NW_OP_READ)
}

fn batches(path: &Path, count: usize, opcode: u32) -> Result<(), Failure> {
    let fd = File::open(path)?;
    let mut file: *mut nw_file = ptr::null_mut();
    let mut engine: *mut nw_engine = ptr::null_mut();
    let options = nw_engine_options {
        size: size_of::<nw_engine_options>(),
        flags: NW_ENGINE_LOCAL,
        depth: BATCH as u32,
        ..Default::default()
    };
    // SAFETY: the descriptor is open until the file is closed; the places are valid.
    let opened = unsafe {
        nw_file_open(fd.as_raw_fd(), &raw mut file).min(nw_engine_create(&options, &raw mut engine))
    };
    if opened < 0 {
        return Err(other_way(opened));
    }
    let mut bufs = vec![0u8; BATCH * BLOCK];
    for batch in 0..count / BATCH {
        run_batch(engine, file, opcode, batch, &mut bufs)?;
    }
    // SAFETY: both are closed once, and no operation is in flight.
    unsafe {
        nw_engine_destroy(engine);
        nw_file_close(file);
    }
    Ok(())
}

#[inline(always)]
fn run_batch(
    engine: *const nw_engine,
    file: *const nw_file,
    opcode: u32,
    batch: usize,
    bufs: &mut [u8],
) -> Result<(), Failure> {
    // SAFETY: all bit patterns are valid; a C program has memset(3) here.
    let mut ops: [nw_op; BATCH] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut done: [nw_completion; BATCH] = unsafe { std::mem::zeroed() };
    for (index, (op, buf)) in ops.iter_mut().zip(bufs.chunks_exact_mut(BLOCK)).enumerate() {
        op.opcode = opcode;
        op.user_data = index as u64;
        if opcode == NW_OP_READ {
            op.file = file;
            op.addr = buf.as_mut_ptr().cast();
            op.len = BLOCK as u64;
            op.offset = offset(batch * BATCH + index);
        }
    }
    let all = BATCH as u32;
    // SAFETY: the engine and the file are open; the buffers outlive the operations.
    let (taken, reaped) = unsafe {
        (
            nw_submit_batch(engine, ops.as_ptr(), all),
            nw_reap(engine, done.as_mut_ptr(), all, all, ptr::null()),
        )
    };
    let expected = if opcode == NW_OP_READ {
        BLOCK as i64
    } else {
        0
    };
    if (taken, reaped) != (BATCH as i32, BATCH as i32)
        || done.iter().any(|done| done.result != expected)
    {
        return Err(other_way((taken, reaped)));
    }
    Ok(())
}
