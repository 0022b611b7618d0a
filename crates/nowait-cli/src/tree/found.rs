//! A regular file that was found, and how it is opened. Nothing else is ever opened: a fifo's writer
//! would be woken, and a device may act.
//!
//! ```text
//!  O_PATH: opens nothing ─► fstat: a regular file? ─► the same file for reading, by /proc/self/fd
//! ```
//! A file of a tree is opened below the tree's root, through no link: a directory may be replaced by
//! one after it was listed.

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

/// A regular file that was found. It may be gone, or be something else, when it is opened.
#[derive(Clone, Debug)]
pub struct Found {
    /// As people would write it: below the path of the command line.
    pub path: PathBuf,
    /// Its inode's number, for whoever wants to go by that; two filesystems may share one.
    pub inode: u64,
    /// The tree it was found in; `None` if its very path was given.
    tree: Option<Arc<Root>>,
}

/// Why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    Os(Errno),
    /// It is something else by now.
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
            Unopened::NotRegular => f.write_str("it is no regular file any more"),
        }
    }
}

/// For reading; a lease on the file is not waited for.
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Found {
    /// A file whose very path was given. Links in it are followed.
    pub fn named(path: PathBuf, inode: u64) -> Found {
        Found {
            path,
            inode,
            tree: None,
        }
    }

    /// A file of a tree, with a path below that of the tree's root.
    pub fn of(tree: &Arc<Root>, path: PathBuf, inode: u64) -> Found {
        Found {
            path,
            inode,
            tree: Some(tree.clone()),
        }
    }

    /// Opens it for reading, and leaves the access time as it is where it may. Gives its metadata too.
    pub fn open(&self) -> Result<(File, Stat), Unopened> {
        let held = self.resolve(OFlags::PATH | OFlags::CLOEXEC)?;
        let stat = rustix::fs::fstat(&held)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Unopened::NotRegular);
        }
        // O_NOATIME is for the file's owner alone.
        let file = match self.for_reading(&held, &stat, READING | OFlags::NOATIME) {
            Err(Unopened::Os(Errno::PERM)) => self.for_reading(&held, &stat, READING),
            other => other,
        }?;
        Ok((file.into(), stat))
    }

    /// Opens what its path leads to.
    fn resolve(&self, flags: OFlags) -> Result<OwnedFd, Unopened> {
        Ok(match &self.tree {
            None => rustix::fs::open(&self.path, flags, Mode::empty())?,
            Some(tree) => walk::open_beneath(&*tree.descriptor()?, tree.below(self), flags)?,
        })
    }

    /// Opens the file that is held once more.
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
        // Without /proc there is only the path, which may lead elsewhere by now.
        let file = self.resolve(flags)?;
        let now = rustix::fs::fstat(&file)?;
        if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(Unopened::NotRegular);
        }
        Ok(file)
    }

    /// Its path from the root directory on, through no link: what is noted must mean the same wherever
    /// it is read.
    pub fn absolute(&self) -> io::Result<PathBuf> {
        match &self.tree {
            None => std::fs::canonicalize(&self.path),
            Some(tree) => Ok(tree.absolute()?.join(tree.below(self))),
        }
    }

    /// Remarks on why it could not be dealt with: what vanishes below a directory is no failure.
    pub fn failed(&self, remarks: &Remarks, why: Unopened) {
        failed(remarks, &self.path, self.tree.is_none(), why);
    }
}

/// Remarks on a path that could not be dealt with. What is not there any more, or is something else
/// now, is a failure only if it was asked for by its name.
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

/// The root of a tree of which files are opened.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// Device and inode number.
    id: (u64, u64),
    /// Open as long as it is used: files wait by the thousand, of many trees.
    open: Mutex<Weak<OwnedFd>>,
    absolute: OnceLock<PathBuf>,
}

impl Root {
    /// Opens it.
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

    /// The open directory; opened again if it is closed, and if it is still the same.
    fn descriptor(&self) -> Result<Arc<OwnedFd>, Errno> {
        // What a panic of another thread leaves behind is whole.
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

    /// A file's path below it.
    fn below<'a>(&self, found: &'a Found) -> &'a Path {
        found.path.strip_prefix(&self.path).unwrap_or(&found.path)
    }
}

/// A directory to open others from, and which one it is.
fn directory(path: &Path) -> Result<(OwnedFd, (u64, u64)), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    Ok((opened, (stat.st_dev, stat.st_ino)))
}
