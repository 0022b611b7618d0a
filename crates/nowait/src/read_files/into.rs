//! One small file, read into memory of the caller.

use std::os::fd::AsFd;
use std::path::Path;

use super::contents::{NAME, by_nowait, failed, is_resident, open};
use crate::error::Result;
use crate::file::{hold_regular, open_cached_regular};
use crate::kernel::filesystem::Filesystem;
use crate::policy::mode::Mode;
use crate::sys::cast::to_usize;
use crate::sys::reopen::Descriptors;
use crate::sys::retry;
use crate::sys::rw;
use crate::sys::uninit_slice::UninitSlice;
use rustix::fs::OFlags;

/// Reads the regular file at a path from its beginning, until the memory is full, in the calling thread. `None` if it might
/// wait: the path or the pages are not cached, or more than `limit` bytes are to be read, such as
/// [`COPY_LIMIT`](crate::read::COPY_LIMIT). Then have a worker call [`blocking_read_into`].
///
/// The number of bytes is less than the length of the memory only if the file ends there. So pass memory for one byte more
/// than the file may have. In [`Mode::Strict`] the kernel is asked first if the bytes are cached; `None` if it does not
/// tell.
///
/// ```
/// use nowait::read::COPY_LIMIT;
/// use nowait::read_files::{blocking_read_into, try_read_into_cached};
/// let mut bytes = vec![0; 64 << 10];
/// let path = "Cargo.toml".as_ref();
/// let n = match try_read_into_cached(path, &mut bytes[..], COPY_LIMIT, nowait::Mode::Eager) {
///     Some(read) => read?,
///     None => blocking_read_into(path, &mut bytes[..])?,
/// };
/// assert!(n < bytes.len(), "the whole file");
/// assert!(bytes[..n].starts_with(b"[package]"));
/// # Ok::<(), nowait::Error>(())
/// ```
///
/// # Errors
/// ENOENT, if the kernel's cache of names says so. All other errors are those of [`blocking_read_into`].
pub fn try_read_into_cached<'a>(
    path: &Path,
    memory: impl Into<UninitSlice<'a>>,
    limit: usize,
    mode: Mode,
) -> Option<Result<usize>> {
    let memory = memory.into();
    let opened = match open_cached_regular(path, &Descriptors::of_this_thread())? {
        Ok(opened) => opened,
        Err(errno) => return Some(Err(failed(path, errno))),
    };
    let len = to_usize(opened.metadata.len()).min(memory.len());
    if len > limit {
        return None;
    }
    let asks = mode == Mode::Strict && !opened.filesystem.is_memory();
    if asks && is_resident(opened.as_fd(), len as u64) != Some(true) {
        return None;
    }
    by_nowait(&opened, memory).map(Ok)
}

/// As [`try_read_into_cached`], whether the file is cached or not. Blocks.
///
/// # Errors
/// The errors of open(2), statx(2) and read(2); EISDIR for a directory;
/// [`NotRegular`](crate::ErrorKind::NotRegular) for a FIFO, a socket, or a device, which is not opened; EAGAIN for a
/// regular file of procfs or the like whose read would wait without end.
pub fn blocking_read_into<'a>(path: &Path, memory: impl Into<UninitSlice<'a>>) -> Result<usize> {
    let mut memory = memory.into();
    let held = hold_regular(path, OFlags::empty());
    let (held, metadata) = held.map_err(|e| e.named(NAME).on(Some(&path.into())))?;
    let failed = |errno| failed(path, errno);
    let fd = open(path, &held, &Descriptors::of_this_thread()).map_err(failed)?;
    drop(held);
    Filesystem::remember(fd.as_fd(), &metadata.known());
    let mut filled = 0;
    while filled < memory.len() {
        let mut rest = memory.skip(filled);
        let read = || rw::preadv2(fd.as_fd(), &mut rest, None, 0);
        match retry::interrupted(read).map_err(failed)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
