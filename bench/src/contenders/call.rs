//! The system calls of the contenders that are not nowait.
//!
//! A program makes these calls by a function of the C library, which returns to it. rustix inlines
//! a system call into the loop that makes it. The difference is no constant: on a processor whose
//! mitigations clear the return predictor on each system call (AMD's Safe RET among them), the
//! first return after a system call costs 160 ns, a fifth of a cached read of 4 KiB. nowait pays it
//! too, as does each function that a program calls to read. The call of a contender is therefore
//! never inlined: `pread` is that of the standard library, and thus of the C library; this file has
//! the others.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

use rustix::io::{Errno, ReadWriteFlags};

/// pread(2).
pub fn pread(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

/// preadv(2) with one buffer.
#[inline(never)]
pub fn preadv(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::preadv(
        file,
        &mut [IoSliceMut::new(buffer)],
        offset,
    )?)
}

/// preadv2(2) with one buffer and RWF_NOWAIT.
#[inline(never)]
pub fn preadv2_nowait(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let vector = &mut [IoSliceMut::new(buffer)];
    rustix::io::preadv2(file, vector, offset, ReadWriteFlags::NOWAIT)
}
