//! The crate io-uring without an engine: the least that an engine on a ring can cost.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};
use nowait::buffer::BufferPool;

use super::places::Places;
use super::task::{Done, Task};

/// A ring as every contender makes it.
///
/// # Errors
/// If the kernel has no such ring, or refuses it.
pub fn ring(depth: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(depth)
}

/// Reads for a turn.
pub fn read(task: &Task) -> io::Result<Done> {
    let (depth, block) = (task.depth as usize, task.block);
    let pool = BufferPool::new(depth, block as usize)?;
    let mut memory: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let pointers: Vec<*mut u8> = memory.iter_mut().map(|piece| piece.as_mut_ptr()).collect();
    let files: Vec<i32> = task.files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut ring = ring(task.depth)?;
    if task.registered {
        let pieces: Vec<libc::iovec> = pointers
            .iter()
            .map(|&start| libc::iovec {
                iov_base: start.cast(),
                iov_len: block as usize,
            })
            .collect();
        ring.submitter().register_files(&files)?;
        // SAFETY: the pool's memory lives longer than the ring, which is emptied below.
        unsafe { ring.submitter().register_buffers(&pieces)? };
    }
    let mut free: Vec<usize> = (0..depth).collect();
    let mut places = Places::new(task);
    let mut outcome = Ok(());
    let mut reads = 0;
    let began = Instant::now();
    while outcome.is_ok() && !task.is_over(began) {
        while let Some(slot) = free.pop() {
            let (file, offset) = places.next();
            let entry = if task.registered {
                opcode::ReadFixed::new(
                    types::Fixed(file as u32),
                    pointers[slot],
                    block,
                    slot as u16,
                )
                .offset(offset)
                .build()
            } else {
                opcode::Read::new(types::Fd(files[file]), pointers[slot], block)
                    .offset(offset)
                    .build()
            };
            push(&mut ring, &entry.user_data(slot as u64));
        }
        outcome = submit(&ring, task.batch as usize);
        for entry in ring.completion() {
            if entry.result() != block as i32 {
                outcome = Err(match entry.result() {
                    errno @ ..0 => io::Error::from_raw_os_error(-errno),
                    n => task.short(n as usize),
                });
            }
            free.push(entry.user_data() as usize);
            reads += 1;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    // The kernel writes to the memory until the last read has completed.
    while free.len() < depth {
        submit(&ring, 1)?;
        free.extend(ring.completion().map(|entry| entry.user_data() as usize));
    }
    outcome.map(|()| Done { reads, seconds })
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: the entry's memory belongs to a slot that is not in flight. Files and memory outlive
    // the reads in flight, because `read` waits for them. The queue has an entry for every slot.
    let pushed = unsafe { ring.submission().push(entry) };
    debug_assert!(pushed.is_ok());
}

fn submit(ring: &IoUring, at_least: usize) -> io::Result<()> {
    match ring.submit_and_wait(at_least) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}
