//! A regular file that was found, and the code that opens it. Other types of files are never opened:
//! opening a FIFO wakes its writer, and opening a device may have an effect.
//!
//! ```text
//!  O_PATH: opens nothing ─► fstat: a regular file? ─► the same file for reading, by /proc/self/fd
//! ```
//! A file of a tree is opened relative to the tree's root, and no symbolic link is followed: a directory
//! may be replaced by a link after it was listed.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use nowait::walk;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::remark::Remarks;

/// A regular file that was found. It may be removed or replaced before it is opened.
#[derive(Clone, Debug)]
pub struct Found {
    /// The path as it is shown: it begins with a path of the command line.
    pub path: PathBuf,
    /// The inode number. Files of two filesystems may have the same one.
    pub inode: u64,
    /// The tree in which the file was found; `None` if its path was given.
    tree: Option<Arc<Root>>,
}

/// The reason why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    Os(Errno),
    /// It is not a regular file any more.
    NotRegular,
}

impl From<Errno> for Unopened {
    fn from(errno: Errno) -> Unopened {
        Unopened::Os(errno)
    }
}

impl From<nowait::Error> for Unopened {
    fn from(error: nowait::Error) -> Unopened {
        Unopened::Os(error.errno().map_or(Errno::IO, Errno::from_raw_os_error))
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unopened::Os(errno) => errno.fmt(f),
            Unopened::NotRegular => f.write_str("not a regular file any more"),
        }
    }
}

/// The flags for opening a file to read. O_NONBLOCK: the open does not wait for a lease to be released.
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Found {
    /// A file whose path was given. Symbolic links in the path are followed.
    pub fn named(path: PathBuf, inode: u64) -> Found {
        Found {
            path,
            inode,
            tree: None,
        }
    }

    /// A file of a tree. `path` begins with the path of the tree's root.
    pub fn of(tree: &Arc<Root>, path: PathBuf, inode: u64) -> Found {
        Found {
            path,
            inode,
            tree: Some(tree.clone()),
        }
    }

    /// Opens the file for reading, with O_NOATIME if that is allowed. Returns its metadata, too.
    pub fn open(&self) -> Result<(File, Stat), Unopened> {
        let held = self.resolve(OFlags::PATH | OFlags::CLOEXEC)?;
        let stat = rustix::fs::fstat(&held)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Unopened::NotRegular);
        }
        // Only the file's owner may use O_NOATIME.
        let file = match self.for_reading(&held, &stat, READING | OFlags::NOATIME) {
            Err(Unopened::Os(Errno::PERM)) => self.for_reading(&held, &stat, READING),
            other => other,
        }?;
        Ok((file.into(), stat))
    }

    /// Opens the path.
    fn resolve(&self, flags: OFlags) -> Result<OwnedFd, Unopened> {
        Ok(match &self.tree {
            None => rustix::fs::open(&self.path, flags, Mode::empty())?,
            Some(tree) => walk::open_beneath(&*tree.descriptor()?, tree.below(self), flags)?,
        })
    }

    /// Opens the file of an O_PATH descriptor with other flags.
    fn for_reading(&self, held: &OwnedFd, stat: &Stat, flags: OFlags) -> Result<OwnedFd, Unopened> {
        static DESCRIPTORS: OnceLock<Option<OwnedFd>> = OnceLock::new();
        let descriptors = DESCRIPTORS.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()
        });
        if let Some(descriptors) = descriptors {
            let number = DecInt::from_fd(held);
            return Ok(rustix::fs::openat(
                descriptors,
                number,
                flags,
                Mode::empty(),
            )?);
        }
        // Without /proc the path is resolved again. It may lead to another file now.
        let file = self.resolve(flags)?;
        let now = rustix::fs::fstat(&file)?;
        if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(Unopened::NotRegular);
        }
        Ok(file)
    }

    /// The absolute path without symbolic links. A snapshot needs it, because it may be restored in another
    /// working directory.
    pub fn absolute(&self) -> io::Result<PathBuf> {
        match &self.tree {
            None => std::fs::canonicalize(&self.path),
            Some(tree) => Ok(tree.absolute()?.join(tree.below(self))),
        }
    }

    /// Reports why this file was not processed. A file of a tree that has vanished is not a failure.
    pub fn failed(&self, remarks: &Remarks, why: Unopened) {
        failed(remarks, &self.path, self.tree.is_none(), why);
    }
}

/// Reports why a path was not processed. A file that was removed or replaced is a failure only if it was
/// `named` on the command line.
pub fn failed(remarks: &Remarks, path: &Path, named: bool, why: Unopened) {
    match why {
        Unopened::Os(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) | Unopened::NotRegular
            if !named =>
        {
            remarks.note(path, "vanished meanwhile");
        }
        _ => remarks.failure(path, why),
    }
}

/// The root of a tree whose files are opened.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// Device and inode number of the root.
    id: (u64, u64),
    /// The open directory, closed when no user is left: thousands of files of many trees may wait to be
    /// opened.
    open: Mutex<Weak<OwnedFd>>,
    absolute: OnceLock<PathBuf>,
}

impl Root {
    /// Opens the directory at `path` as a root.
    pub fn open(path: &Path) -> Result<(Arc<Root>, Arc<OwnedFd>), Errno> {
        let (opened, id) = directory(path)?;
        let opened = Arc::new(opened);
        let root = Root {
            path: path.to_path_buf(),
            id,
            open: Mutex::new(Arc::downgrade(&opened)),
            absolute: OnceLock::new(),
        };
        Ok((Arc::new(root), opened))
    }

    /// The open directory. It is opened again if it was closed.
    ///
    /// # Errors
    /// ENOENT if the path now leads to another directory.
    fn descriptor(&self) -> Result<Arc<OwnedFd>, Errno> {
        // A panic of another thread cannot leave the value inconsistent.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = open.upgrade() {
            return Ok(opened);
        }
        let (opened, id) = directory(&self.path)?;
        if id != self.id {
            return Err(Errno::NOENT);
        }
        let opened = Arc::new(opened);
        *open = Arc::downgrade(&opened);
        Ok(opened)
    }

    fn absolute(&self) -> io::Result<&Path> {
        if let Some(absolute) = self.absolute.get() {
            return Ok(absolute);
        }
        let absolute = std::fs::canonicalize(&self.path)?;
        Ok(self.absolute.get_or_init(|| absolute))
    }

    /// The path of a file relative to this root.
    fn below<'a>(&self, found: &'a Found) -> &'a Path {
        found.path.strip_prefix(&self.path).unwrap_or(&found.path)
    }
}

/// Opens a directory with O_PATH. Returns it with its device and inode number.
fn directory(path: &Path) -> Result<(OwnedFd, (u64, u64)), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    Ok((opened, (stat.st_dev, stat.st_ino)))
}
