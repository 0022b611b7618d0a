//! The file that rows read: its blocks, and what is in the page cache of it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

/// An error of a row or of the driver, with its text.
pub type Failure = Box<dyn std::error::Error>;

/// The bytes of one read.
pub const BLOCK: usize = 4096;
/// The blocks of the file. Rows of misses read each block at most once.
pub const BLOCKS: usize = 4096;

/// The offset of a read, in order.
pub fn offset(index: usize) -> u64 {
    (index % BLOCKS * BLOCK) as u64
}

/// The offset of a read whose block no earlier read has read, nor read ahead.
pub fn scattered(index: usize) -> u64 {
    offset(index * 1_021)
}

/// Reads the file into the page cache.
pub fn load(file: &Path) -> Result<(), Failure> {
    let len = io::copy(&mut File::open(file)?, &mut io::sink())?;
    if len != (BLOCKS * BLOCK) as u64 {
        return Err(format!("the file has {len} bytes, not {}", BLOCKS * BLOCK).into());
    }
    Ok(())
}

/// posix_fadvise(2) of a whole file.
pub fn advise(fd: libc::c_int, advice: libc::c_int) -> Result<(), Failure> {
    // SAFETY: the call has no pointers.
    match unsafe { libc::posix_fadvise(fd, 0, 0, advice) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno).into()),
    }
}

/// The error of a row whose operation took another way than the row counts.
pub fn other_way(what: impl std::fmt::Debug) -> Failure {
    format!("{what:?} is not what the row counts (the kernel may have reclaimed pages)").into()
}
