//! The storage of a disk's bytes: a sparse file in memory or in a directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// The bytes of one disk.
#[derive(Debug)]
pub(crate) struct Backing {
    file: File,
    size: u64,
}

impl Backing {
    /// Storage in memory. Only written ranges use memory.
    pub(crate) fn memory(size: u64) -> io::Result<Self> {
        let file = File::from(memfd_create("slowdisk", MemfdFlags::CLOEXEC)?);
        Backing::sized(file, size)
    }

    /// Storage in an unnamed sparse file in `dir`.
    pub(crate) fn file(dir: &Path, size: u64) -> io::Result<Self> {
        Backing::sized(tempfile::tempfile_in(dir)?, size)
    }

    fn sized(file: File, size: u64) -> io::Result<Self> {
        file.set_len(size)?;
        Ok(Backing { file, size })
    }

    /// The `len` bytes at `offset`, fewer at the end of the disk.
    pub(crate) fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        let len = u64::from(len).min(self.size.saturating_sub(offset));
        let mut data = vec![0; len as usize];
        self.file.read_exact_at(&mut data, offset)?;
        Ok(data)
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    /// Makes a range read as zeros, and frees its space.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, offset, len)?)
    }
}
