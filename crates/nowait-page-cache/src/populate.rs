//! Reads data into the page cache without copying it: [`populate`] waits for the data, and
//! [`begin_to_read`] does not.
//!
//! ```text
//!  populate:       file ─► splice(2): references to pages ─► pipe ─► splice(2) ─► /dev/null
//!  begin_to_read:  posix_fadvise(2), POSIX_FADV_WILLNEED
//! ```
//! splice(2) reads as read(2) does: the kernel reads ahead, and a page that is in the pipe was in the
//! page cache without an error. The copy that it spares takes most of the processor time of a read,
//! since data that comes from the device is not in the processor's cache.

use std::cell::RefCell;
use std::fs::File;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{Advice, FileType, OFlags, fadvise, major, minor};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// The size of a pipe in bytes. The kernel reads as many bytes at once as the pipe holds. The pipes of
/// 64 threads are a quarter of what a user without privileges may have (/proc/sys/fs/pipe-user-pages-soft).
const PIPE: usize = 256 << 10;
/// The bytes of one advice: the kernel reads at least so many, and not more than a disk takes at once.
const ADVISED: usize = 128 << 10;
/// The size of the buffer for files that do not support splice(2), in bytes.
const BUFFER: usize = 256 << 10;

thread_local! {
    /// The pipe of a thread. It is empty between two calls.
    static THREAD_PIPE: RefCell<Option<(OwnedFd, OwnedFd)>> = const { RefCell::new(None) };
}

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
/// end of the file. Without `null`, the data is copied.
///
/// # Errors
/// Of read(2).
pub fn populate(file: impl AsFd, null: Option<&File>, range: Range<u64>) -> Result<u64, Errno> {
    let mut at = range.start;
    if let Some(null) = null {
        THREAD_PIPE.with_borrow_mut(|pipe| {
            // The file or a filter of system calls may not allow it, and pipes are limited. read(2)
            // has the true error.
            if discard(file.as_fd(), null, pipe, &mut at, range.end).is_err() {
                *pipe = None;
            }
        });
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

/// Begins to read a range into the page cache, and does not wait for the data. A program that reads it
/// earlier waits itself. Errors are those of the later read.
pub fn begin_to_read(file: impl AsFd, range: &Range<u64>) {
    for start in range.clone().step_by(ADVISED) {
        let end = range.end.min(start + ADVISED as u64);
        let _ = fadvise(&file, start, NonZero::new(end - start), Advice::WillNeed);
    }
}

/// Reads from `at` until `end` or the end of the file by a pipe, which is made if there is none.
fn discard(
    file: BorrowedFd<'_>,
    null: &File,
    pipe: &mut Option<(OwnedFd, OwnedFd)>,
    at: &mut u64,
    end: u64,
) -> Result<(), Errno> {
    if pipe.is_none() {
        let made = pipe_with(PipeFlags::CLOEXEC)?;
        // A smaller pipe is slower.
        let _ = fcntl_setpipe_size(&made.1, PIPE);
        *pipe = Some(made);
    }
    let Some((reader, writer)) = pipe else {
        return Ok(());
    };
    let flags = SpliceFlags::empty();
    while *at < end {
        let len = PIPE.min((end - *at) as usize);
        let mut inside = match splice(file, Some(at), &*writer, None, len, flags) {
            Ok(0) => return Ok(()),
            Err(Errno::INTR) => continue,
            result => result?,
        };
        while inside > 0 {
            match splice(&*reader, None, null, None, inside, flags) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(Errno::IO),
                result => inside -= result?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_range_is_read_to_the_end_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 2_700_000]).unwrap();
        let null = null();
        assert!(null.is_some());
        for null in [None, null.as_ref()] {
            assert_eq!(populate(&file, null, 0..2_700_000), Ok(2_700_000));
            assert_eq!(populate(&file, null, 1..2), Ok(1));
            assert_eq!(populate(&file, null, 2_600_000..2_900_000), Ok(100_000));
            assert_eq!(populate(&file, null, 2_800_000..2_900_000), Ok(0));
            assert_eq!(populate(&file, null, 5..5), Ok(0));
        }
        let directory = File::open("/").unwrap();
        let read = populate(&directory, null.as_ref(), 0..1);
        assert_eq!(read, Err(Errno::ISDIR));
        // The pipe that an error has left is not used again.
        assert_eq!(populate(&file, null.as_ref(), 0..9), Ok(9));
    }
}
