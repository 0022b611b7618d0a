//! The holes of a sparse file (lseek(2), SEEK_DATA and SEEK_HOLE).

use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The first data byte at or after `from`; `u64::MAX` if there is none; `from` if the filesystem
/// does not support the query.
pub fn data_from(file: impl AsFd, from: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => u64::MAX,
        Err(_) => from,
    }
}

/// The first byte of the next hole. The end of the file counts as a hole.
pub fn hole_from(file: impl AsFd, from: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Hole(from)) {
        Ok(at) if at > from => at,
        _ => u64::MAX,
    }
}
