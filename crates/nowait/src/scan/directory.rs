//! An open directory of a scan: its descriptor, its identity and its size.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, SeekFrom};

use crate::error::{Error, Result};
use crate::kernel::filesystem::Filesystem;
use crate::sys::Errno;
use crate::sys::retry;
use crate::sys::stat::FilesystemId;

/// The flags for opening directories.
pub(crate) const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: Option<Arc<Path>>,
    id: (u64, u64),
    size: u64,
    filesystem: Arc<Filesystem>,
}

impl Directory {
    /// Converts an open directory. `like` is a directory that may be on the same filesystem.
    pub(crate) fn new(
        fd: OwnedFd,
        path: Option<Arc<Path>>,
        like: Option<&Directory>,
    ) -> Result<Directory> {
        let failed = |errno| Error::os("scan", errno).on(path.as_ref());
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
            return Err(failed(Errno::NOTDIR));
        }
        let filesystem = match like {
            Some(like) if like.device() == stat.st_dev => like.filesystem.clone(),
            _ => {
                let statfs = rustix::fs::fstatfs(&fd).map_err(failed)?;
                Filesystem::with_id(FilesystemId::new(stat.st_dev, &statfs))
            }
        };
        Ok(Directory {
            id: (stat.st_dev, stat.st_ino),
            size: stat.st_size.cast_unsigned(),
            fd,
            path,
            filesystem,
        })
    }

    /// Opens a directory.
    pub(crate) fn blocking_open(path: &Path) -> Result<Directory> {
        let path: Arc<Path> = path.into();
        let fd = retry::interrupted(|| rustix::fs::open(&*path, FLAGS, Mode::empty()))
            .map_err(|e| Error::os("open", e).on(Some(&path)))?;
        Directory::new(fd, Some(path), None)
    }

    /// Converts an open directory and seeks to its beginning.
    pub(crate) fn from_start(fd: OwnedFd, path: Option<Arc<Path>>) -> Result<Directory> {
        Directory::at(fd, path, 0)
    }

    /// Converts an open directory and seeks to a position.
    pub(super) fn at(fd: OwnedFd, path: Option<Arc<Path>>, position: u64) -> Result<Directory> {
        let directory = Directory::new(fd, path, None)?;
        match rustix::fs::seek(&directory, SeekFrom::Start(position)) {
            Ok(_) => Ok(directory),
            Err(errno) => Err(directory.failed("lseek", errno)),
        }
    }

    /// Opens the same directory again. The new descriptor has its own position.
    pub(super) fn reopen(&self) -> Result<OwnedFd, Errno> {
        retry::interrupted(|| rustix::fs::openat(&self.fd, c".", FLAGS, Mode::empty()))
    }

    pub(crate) fn path(&self) -> Option<&Arc<Path>> {
        self.path.as_ref()
    }

    /// Device and inode number. They identify a directory while it exists.
    pub(crate) fn id(&self) -> (u64, u64) {
        self.id
    }

    pub(crate) fn device(&self) -> u64 {
        self.id.0
    }

    /// `st_size`. Its meaning depends on the filesystem.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn filesystem(&self) -> &Arc<Filesystem> {
        &self.filesystem
    }

    /// The file and device whose shares of an engine's workers the scan counts against.
    pub(crate) fn subject(&self) -> (i32, u64) {
        (self.fd.as_raw_fd(), self.device())
    }

    pub(crate) fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        Error::os(operation, errno).on(self.path())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
