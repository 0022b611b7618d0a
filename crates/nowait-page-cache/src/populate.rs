//! Reads data into the page cache without copying it: sendfile(2) to /dev/null.
//!
//! It reads as read(2) does: the kernel reads ahead, and a page that was sent was in the page cache
//! without an error. The copy that it spares takes most of the processor time of a read, since the
//! data is not in the processor's cache.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{FileType, OFlags, major, minor};
use rustix::io::Errno;

/// The size of the buffer for files that do not support sendfile(2), in bytes.
const BUFFER: usize = 256 << 10;

/// /dev/null; `None` if this process has none.
pub fn null() -> Option<File> {
    let mut options = File::options();
    options
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits() as i32);
    let file = options.open("/dev/null").ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3);
    is_null.then_some(file)
}

/// Reads a range into the page cache, and waits for it. Returns the number of bytes, fewer at the
/// end of the file.
///
/// # Errors
/// Of read(2).
pub fn populate(file: impl AsFd, null: Option<&File>, range: Range<u64>) -> Result<u64, Errno> {
    let mut at = range.start;
    while let Some(null) = null.filter(|_| at < range.end) {
        let len = (range.end - at) as usize;
        match rustix::fs::sendfile(null, &file, Some(&mut at), len) {
            Ok(0) => return Ok(at - range.start),
            Ok(_) | Err(Errno::INTR) => {}
            // The file or a filter of system calls may not allow it. read(2) has the true error.
            Err(_) => break,
        }
    }
    let mut buffer = Vec::new();
    while at < range.end {
        buffer.resize(BUFFER.min((range.end - at) as usize), 0);
        match rustix::io::pread(&file, &mut buffer, at) {
            Ok(0) => break,
            Ok(read) => at += read as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(at - range.start)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_range_is_read_to_the_end_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 700_000]).unwrap();
        let null = null();
        assert!(null.is_some());
        for null in [None, null.as_ref()] {
            assert_eq!(populate(&file, null, 0..700_000), Ok(700_000));
            assert_eq!(populate(&file, null, 1..2), Ok(1));
            assert_eq!(populate(&file, null, 600_000..900_000), Ok(100_000));
            assert_eq!(populate(&file, null, 800_000..900_000), Ok(0));
            assert_eq!(populate(&file, null, 5..5), Ok(0));
        }
        let directory = File::open("/").unwrap();
        assert_eq!(populate(&directory, null.as_ref(), 0..1), Err(Errno::ISDIR));
    }
}
