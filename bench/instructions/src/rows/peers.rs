//! Compared with: pread(2) of the C library, the crates io-uring and compio.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use compio::io::AsyncReadAt;
use io_uring::{IoUring, opcode, squeue, types};

use crate::data::{BLOCK, Failure, offset, other_way};

const BATCH: usize = 64;

pub fn pread(path: &Path, count: usize) -> Result<(), Failure> {
    let file = File::open(path)?;
    let mut buf = vec![0u8; BLOCK];
    for index in 0..count {
        let place = offset(index) as libc::off_t;
        // SAFETY: the buffer has BLOCK bytes.
        let n = unsafe { libc::pread(file.as_raw_fd(), buf.as_mut_ptr().cast(), BLOCK, place) };
        if n != BLOCK as isize {
            return Err(other_way(n));
        }
    }
    Ok(())
}

pub fn ring_nops(_: &Path, count: usize) -> Result<(), Failure> {
    batches(count, 0, |_| opcode::Nop::new().build())
}

pub fn ring_hits(path: &Path, count: usize) -> Result<(), Failure> {
    let file = File::open(path)?;
    let mut bufs = vec![0u8; BATCH * BLOCK];
    let (fd, start) = (types::Fd(file.as_raw_fd()), bufs.as_mut_ptr());
    batches(count, BLOCK as i32, |index| {
        let buf = start.wrapping_add(index % BATCH * BLOCK);
        opcode::Read::new(fd, buf, BLOCK as u32)
            .offset(offset(index))
            .build()
    })
}

/// Submits the entries in batches, and waits for each batch in the call that submits it.
#[inline(always)]
fn batches(
    count: usize,
    expected: i32,
    entry: impl Fn(usize) -> squeue::Entry,
) -> Result<(), Failure> {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(BATCH as u32)?;
    for batch in 0..count / BATCH {
        let mut queue = ring.submission();
        for index in 0..BATCH {
            let entry = entry(batch * BATCH + index).user_data(index as u64);
            // SAFETY: the file and the buffers of the entry outlive the wait for it below.
            unsafe { queue.push(&entry)? };
        }
        drop(queue);
        ring.submit_and_wait(BATCH)?;
        let mut reaped = 0;
        for done in ring.completion() {
            if done.result() != expected {
                return Err(other_way(done.result()));
            }
            reaped += 1;
        }
        if reaped != BATCH {
            return Err(other_way(reaped));
        }
    }
    Ok(())
}

pub fn compio_read_at(path: &Path, count: usize) -> Result<(), Failure> {
    compio::runtime::Runtime::new()?.block_on(async {
        let file = compio::fs::File::open(path).await?;
        let mut buf = Vec::with_capacity(BLOCK);
        for index in 0..count {
            let read = file.read_at(buf, offset(index)).await;
            match read.0? {
                BLOCK => buf = read.1,
                other => return Err(other_way(other)),
            }
        }
        Ok(())
    })
}
