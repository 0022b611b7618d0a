//! Changes of directories and files that are on the device when a call returns.
//!
//! All functions block. What is synced is opened before the change: if there is no descriptor,
//! nothing has changed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use nowait::Engine;
use rustix::fs::{CWD, OFlags};

use crate::error::{Error, errno};

/// Decides if a change is on the device when its function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    No,
    Yes,
}

/// The number of times that directories are created which another call removes again.
const ATTEMPTS: u32 = 100;

/// The number of directories that calls of this process have created, or are about to create, and
/// have not synced. While there is one, other calls sync the directories above their own. A forked
/// child keeps those of its parent: it syncs more than it needs to.
static UNSYNCED: AtomicUsize = AtomicUsize::new(0);

/// The directory of a file. It is open if its changes are synced.
#[derive(Debug)]
pub(crate) struct Directory(Option<(PathBuf, File)>);

impl Directory {
    /// The directory of the file at `path`, which exists. If it is to be synced, the names of
    /// directories that other calls have just created are on the device.
    pub(crate) fn of(path: &Path, sync: Sync) -> Result<Directory, Error> {
        let (Sync::Yes, Some(parent)) = (sync, path.parent()) else {
            return Ok(Directory(None));
        };
        let directory = Directory::open(parent)?;
        // The directory exists, so the call that creates it is counted.
        if UNSYNCED.load(SeqCst) != 0 {
            sync_above(parent)?;
        }
        Ok(directory)
    }

    /// The directory of the file at `path`. If it is to be synced, it and all above it are created.
    pub(crate) fn create(path: &Path, sync: Sync) -> Result<Directory, Error> {
        match Directory::of(path, sync) {
            Err(error) if error.is_not_found() => {
                create_parents(path, sync)?;
                Directory::of(path, sync)
            }
            opened => opened,
        }
    }

    fn open(path: &Path) -> Result<Directory, Error> {
        let mut options = OpenOptions::new();
        options.read(true);
        options.custom_flags(OFlags::DIRECTORY.bits().cast_signed());
        let file = options.open(path).map_err(|e| Error::open(path, e))?;
        Ok(Directory(Some((path.to_owned(), file))))
    }

    /// The path of a file in the directory, for calls such as openat(2). If the directory is open
    /// and was removed, the call fails with ENOENT, also if another directory has its path by now,
    /// which would not be synced.
    pub(crate) fn at<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        match (&self.0, path.file_name()) {
            (Some((_, directory)), Some(name)) => (directory.as_fd(), Path::new(name)),
            _ => (CWD, path),
        }
    }

    /// Writes the changes of the directory to the device: fsync(2).
    pub(crate) fn sync(&self) -> Result<(), Error> {
        match &self.0 {
            Some((path, file)) => sync_file(file, path),
            None => Ok(()),
        }
    }
}

/// Syncs the directories above one, up to the root of the mount. Those that the process may not
/// read are left out: it has created no directory in them that was to be synced.
fn sync_above(path: &Path) -> Result<(), Error> {
    let device = |path: &Path| {
        let metadata = fs::metadata(path).map_err(Error::io("statx", path))?;
        Ok::<_, Error>(metadata.dev())
    };
    let own = device(path)?;
    for above in path.ancestors().skip(1) {
        if device(above)? != own {
            break;
        }
        match Directory::open(above) {
            Err(error) if error.is_denied() => {}
            opened => opened?.sync()?,
        }
    }
    Ok(())
}

/// Creates the directory of the file at `path`, and all above it. If it is to be synced, each is on
/// the device before the next is created.
pub(crate) fn create_parents(path: &Path, sync: Sync) -> Result<(), Error> {
    // Another call may remove an empty directory meanwhile. Some filesystems create no directories,
    // with the same error.
    for _ in 1..ATTEMPTS {
        match try_create_parents(path, sync) {
            Err(error) if error.is_not_found() => {}
            created => return created,
        }
    }
    try_create_parents(path, sync)
}

fn try_create_parents(path: &Path, sync: Sync) -> Result<(), Error> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    if sync == Sync::No {
        return fs::create_dir_all(parent).map_err(Error::io("mkdir", parent));
    }
    let missing = parent.ancestors().take_while(|dir| !dir.exists());
    let missing: Vec<&Path> = missing.collect();
    for dir in missing.into_iter().rev() {
        let above = Directory::open(dir.parent().unwrap_or(dir))?;
        UNSYNCED.fetch_add(1, SeqCst);
        let created = match fs::create_dir(dir) {
            // Another call may have created it, and may not have synced it yet.
            Err(_) if dir.is_dir() => Ok(()),
            created => created.map_err(Error::io("mkdir", dir)),
        };
        if created.is_ok() {
            // If this fails, the directory stays counted: its name may be lost.
            above.sync()?;
        }
        UNSYNCED.fetch_sub(1, SeqCst);
        created?;
    }
    Ok(())
}

/// Opens an object for reading, with further flags.
///
/// # Errors
/// [`Error::NotFound`] if it is not a regular file.
pub(crate) fn open_object(
    engine: &Engine,
    path: &Path,
    flags: OFlags,
) -> Result<nowait::File, Error> {
    let mut options = nowait::OpenOptions::new();
    options.read(true).regular(true).engine(engine);
    options.custom_flags(flags.bits().cast_signed());
    let opened = options.blocking_open(path);
    opened.map_err(|e| Error::open_object(path, e))
}

/// Writes an object to the device: fsync(2). Returns the identity of its file.
///
/// # Errors
/// [`Error::NotFound`] if it is not a regular file.
pub(crate) fn sync_object(engine: &Engine, path: &Path) -> Result<(u64, u64), Error> {
    let file = open_object(engine, path, OFlags::NOFOLLOW)?;
    let synced = file.blocking_sync_all();
    synced.map_err(|e| Error::io("fsync", path)(errno(e)))?;
    let stat = rustix::fs::fstat(file.handle()).map_err(|e| Error::io("fstat", path)(e.into()))?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Writes an open file to the device.
pub(crate) fn sync_file(file: &File, path: &Path) -> Result<(), Error> {
    file.sync_all().map_err(Error::io("fsync", path))
}

/// Closes a file. Some filesystems report only then that data could not be written.
pub(crate) fn close(file: File, path: &Path) -> Result<(), Error> {
    nix::unistd::close(file)
        .map_err(io::Error::from)
        .map_err(Error::io("close", path))
}
