//! The crate io-uring without an engine: the least that an engine on a ring can cost.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use nowait_cli::problem::Problem;

use crate::areas::iops::load::{Done, Parts, Queue};
use crate::harness::contender::Fit;

/// A ring, with the files and the memory of its reads.
pub struct Bare {
    ring: IoUring,
    parts: Parts,
    /// The start of the memory of each slot.
    pointers: Vec<*mut u8>,
    registered: bool,
    in_flight: usize,
}

/// A ring as every contender makes it.
fn ring(depth: usize) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(depth as u32)
}

/// Returns if the kernel has a ring of this kind.
pub fn fits() -> Fit {
    match ring(1) {
        Ok(_) => Fit::Yes,
        Err(e) => Fit::No(format!("io_uring_setup(2) failed: {e}")),
    }
}

impl Bare {
    pub fn new(mut parts: Parts, registered: bool) -> Result<Bare, Problem> {
        let failed = |e| Problem::of("io_uring", e);
        let ring = ring(parts.memory.len()).map_err(failed)?;
        let memory = parts.memory.iter_mut();
        let pieces: Vec<libc::iovec> = memory
            .map(|piece| libc::iovec {
                iov_base: piece.as_mut_ptr().cast(),
                iov_len: piece.len(),
            })
            .collect();
        if registered {
            let files: Vec<i32> = parts.files.iter().map(AsRawFd::as_raw_fd).collect();
            ring.submitter().register_files(&files).map_err(failed)?;
            // SAFETY: the memory lives as long as the ring.
            unsafe { ring.submitter().register_buffers(&pieces) }.map_err(failed)?;
        }
        Ok(Bare {
            ring,
            pointers: pieces.iter().map(|piece| piece.iov_base.cast()).collect(),
            parts,
            registered,
            in_flight: 0,
        })
    }

    fn wait(&self, at_least: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(at_least) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }
}

impl Queue for Bare {
    #[inline]
    fn prepare(&mut self, slot: usize, file: usize, offset: u64) {
        let (start, len) = (self.pointers[slot], self.parts.memory[slot].len() as u32);
        let entry = if self.registered {
            opcode::ReadFixed::new(types::Fixed(file as u32), start, len, slot as u16)
                .offset(offset)
                .build()
        } else {
            let file = types::Fd(self.parts.files[file].as_raw_fd());
            opcode::Read::new(file, start, len).offset(offset).build()
        };
        // SAFETY: the entry's memory belongs to a slot that is not in flight. Files and memory
        // outlive the reads in flight, because `drop` waits for them.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        debug_assert!(pushed.is_ok(), "the queue has an entry for every slot");
        self.in_flight += 1;
    }

    #[inline]
    fn submit_and_wait(&mut self, at_least: usize, done: &mut Vec<Done>) -> Result<(), Problem> {
        self.wait(at_least)
            .map_err(|e| Problem::of("io_uring_enter", e))?;
        let before = done.len();
        done.extend(self.ring.completion().map(|entry| {
            let failed = |_| io::Error::from_raw_os_error(-entry.result());
            let read = usize::try_from(entry.result()).map_err(failed);
            let slot = entry.user_data() as usize;
            (slot, read.map_err(|e| Problem::of("read", e)))
        }));
        self.in_flight -= done.len() - before;
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // The kernel writes to the memory until the last read has completed.
        while self.in_flight > 0 && self.wait(1).is_ok() {
            self.in_flight -= self.ring.completion().count();
        }
    }
}
