//! The contents of one file: opened, read to its end and closed by one thread.
//!
//! ```text
//!  cached: path and pages are cached ─► the contents, without waiting for the device
//!  read:   O_PATH: opens nothing ─► statx: a regular file? ─► opened for reading ─► to its end
//! ```
//!
//! A file that is not regular is never opened: opening a FIFO wakes its writer, and opening a
//! device may have an effect.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::file::{OpenedToRead, hold_regular, open_cached_regular, open_held_regular};
use crate::kernel::filesystem::Filesystem;
use crate::metadata::Metadata;
use crate::read::to_end::{room, to_end};
use crate::read::{Cached, cached_file};
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::reopen::Descriptors;
use crate::sys::retry;
use crate::sys::uninit_slice::UninitSlice;
use nowait_residency::windows::{FileWindows, Span, Use};
use nowait_residency::{Answer, Probe};

/// A file that was read: its path, its contents and its metadata.
#[derive(Clone)]
pub struct FileContents {
    path: PathBuf,
    bytes: Vec<u8>,
    /// It is boxed, because files are moved several times.
    metadata: Box<Metadata>,
    cached: bool,
}

impl FileContents {
    /// The path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The metadata before the file was read. Its size differs from the number of bytes if the file
    /// was changed in the meantime, and on filesystems such as procfs, which report a size of 0.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// True if all bytes came from the page cache. If false, the origin of the bytes is not known:
    /// the file was read without asking.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// Converts it to the path and the contents.
    pub fn into_parts(self) -> (PathBuf, Vec<u8>) {
        (self.path, self.bytes)
    }
}

/// Without the contents, which may be large.
impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContents")
            .field("path", &self.path)
            .field("len", &self.bytes.len())
            .field("cached", &self.cached)
            .finish_non_exhaustive()
    }
}

/// The result of one attempt to read a file.
pub(super) enum Outcome {
    Read(Result<FileContents>),
    /// The process had no descriptor or no memory for the file.
    Short(PathBuf, Error),
    /// The file was not read. It needs so many bytes of memory, if that is known.
    Not(PathBuf, Option<u64>),
}

/// Reads a file if that does not wait for the device. `reserved` is the memory for its contents.
pub(super) fn cached(
    path: PathBuf,
    reserved: u64,
    descriptors: &Descriptors,
    keep_cache: bool,
) -> Outcome {
    let Some(Ok(opened)) = open_cached_regular(&path, descriptors) else {
        return Outcome::Not(path, None);
    };
    let size = opened.metadata.len();
    if size > reserved {
        return Outcome::Not(path, Some(size));
    }
    // A read that fails would start readahead.
    if keep_cache && is_resident(opened.as_fd(), size) == Some(false) {
        return Outcome::Not(path, Some(size));
    }
    let Ok(mut bytes) = room(to_usize(size)) else {
        return Outcome::Not(path, Some(size));
    };
    bytes.resize(to_usize(size) + 1, 0);
    let Some(n) = by_nowait(&opened, (&mut bytes[..]).into()) else {
        return Outcome::Not(path, Some(size));
    };
    bytes.truncate(n);
    Outcome::Read(Ok(FileContents {
        path,
        bytes,
        metadata: Box::new(opened.metadata),
        cached: true,
    }))
}

/// Reads a file from its beginning until the memory is full or the file ends, if that does not wait for the device.
/// At most one byte more is read than the file had when it was opened: a file that has more by now may be changing.
pub(super) fn by_nowait(opened: &OpenedToRead, memory: UninitSlice<'_>) -> Option<usize> {
    let (size, filesystem) = (opened.metadata.len(), &opened.filesystem);
    let memory = memory.first(to_usize(size).saturating_add(1));
    let (len, in_memory) = (memory.len(), filesystem.is_memory());
    match cached_file(opened, memory, size, in_memory) {
        Ok(Cached::All(n)) => {
            // The kernel does not look at the flag if it is to read nothing.
            if len > 0 && !in_memory {
                filesystem.nowait_read.worked();
            }
            (n as u64 <= size).then_some(n)
        }
        Ok(Cached::Unsupported(_)) => {
            filesystem.nowait_read.refused_once();
            None
        }
        _ => None,
    }
}

/// Opens and reads a file.
pub(super) fn read(
    path: PathBuf,
    reserved: u64,
    descriptors: &Descriptors,
    keep_cache: bool,
) -> Outcome {
    match whole(&path, reserved, descriptors, keep_cache) {
        Ok(Ok((bytes, metadata))) => Outcome::Read(Ok(FileContents {
            path,
            bytes,
            metadata: Box::new(metadata),
            cached: false,
        })),
        Ok(Err(needed)) => Outcome::Not(path, Some(needed)),
        Err(error) if is_shortage(&error) => Outcome::Short(path, error),
        Err(error) => Outcome::Read(Err(error)),
    }
}

fn is_shortage(error: &Error) -> bool {
    let errno = error.errno().map(Errno::from_raw_os_error);
    errno.is_some_and(retry::is_shortage)
}

/// The contents and the metadata, or else the memory that the file needs.
fn whole(
    path: &Path,
    reserved: u64,
    descriptors: &Descriptors,
    keep_cache: bool,
) -> Result<Result<(Vec<u8>, Metadata), u64>> {
    let failed = |errno| failed(path, errno);
    let held = hold_regular(path, OFlags::empty());
    let (held, metadata) = held.map_err(|e| e.named(NAME).on(Some(&path.into())))?;
    let size = metadata.len();
    if size > reserved {
        return Ok(Err(size));
    }
    let fd = open(path, &held, descriptors).map_err(failed)?;
    drop(held);
    Filesystem::remember(fd.as_fd(), &metadata.known());
    let _kept = keep_cache.then(|| UncachedFile::begin(&fd, size)).flatten();
    let spare = |bytes: &mut Vec<u8>| rustix::io::read(&fd, rustix::buffer::spare_capacity(bytes));
    let bytes = to_end(size, reserved, spare).map_err(failed)?;
    Ok(bytes.map(|bytes| (bytes, metadata)))
}

/// A file that leaves the page cache as it was. Dropping it evicts.
struct UncachedFile<'fd> {
    probe: Probe<'fd>,
    windows: Arc<FileWindows>,
    span: Option<Span>,
}

impl<'fd> UncachedFile<'fd> {
    fn begin(fd: &'fd OwnedFd, size: u64) -> Option<UncachedFile<'fd>> {
        let probe = Probe::new(fd).ok()?;
        let windows = FileWindows::open(fd).ok()?;
        let readahead = 0;
        let span = windows.begin(&probe, 0..size, Use::Read { readahead });
        Some(UncachedFile {
            probe,
            windows,
            span,
        })
    }
}

impl Drop for UncachedFile<'_> {
    fn drop(&mut self) {
        let ended = self.span.take().and_then(|span| self.windows.end(&span));
        ended.map(|eviction| eviction.run(&self.probe));
        let closed = self.windows.close();
        // This is a worker's thread.
        if let Some(retry) = closed.and_then(|eviction| eviction.run_or_defer(&self.probe)) {
            retry.run();
        }
    }
}

/// Returns true if these first bytes of a file are in the page cache. `None` if the kernel does not report it.
pub(super) fn is_resident(fd: BorrowedFd<'_>, len: u64) -> Option<bool> {
    let resident = Probe::new(&fd).and_then(|probe| probe.is_resident(0, len));
    resident.ok().and_then(Answer::known)
}

/// Opens a file for reading that [`hold_regular`] holds. With O_NONBLOCK, a read of a file of
/// procfs does not wait without end.
pub(super) fn open(
    path: &Path,
    held: &OwnedFd,
    descriptors: &Descriptors,
) -> Result<OwnedFd, Errno> {
    let open = |flags| open_held_regular(path, held, flags, descriptors);
    match open(OFlags::RDONLY | OFlags::NONBLOCK) {
        // The file has a lease.
        Err(Errno::AGAIN) => open(OFlags::RDONLY),
        other => other,
    }
}

pub(super) const NAME: &str = "read_files";

pub(super) fn failed(path: &Path, errno: Errno) -> Error {
    Error::os(NAME, errno).on(Some(&path.into()))
}
