//! The path of a regular file, or of a block device that was given, and the code that opens it.
//! Files of other types are never opened: opening a FIFO wakes its writer, and opening a device may
//! have an effect.
//!
//! ```text
//!  open with O_PATH ─► fstat: still of this type? ─► no lease for writing? ─► the same file for reading,
//!                                                                            by /proc/thread-self/fd
//! ```
//! A file of a tree is opened relative to the tree's root or to a directory that is kept open, and no
//! symbolic link is followed: a directory may be replaced by a link after it was listed. It has its name
//! and its directory, and not its path, which can be as long as the tree is deep.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use nowait::Handle;
use nowait::scan::{Dir, DirEntry};
use nowait::walk::Opener;
use nowait_residency::device;
use nowait_residency::leases::Lease;
use rustix::fs::{Access, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::reporter::Reporter;

/// The place of a file. The file may be removed or replaced before it is opened.
#[derive(Clone, Debug)]
pub struct FileRef {
    place: Place,
    /// The inode number. Files of two filesystems may have the same one.
    pub inode: u64,
    /// Files of other types are not opened.
    kind: FileType,
}

#[derive(Clone, Debug)]
enum Place {
    /// The path was given.
    Given(PathBuf),
    /// The file is in a tree. All files of a directory share it.
    Tree {
        tree: Arc<TreeRoot>,
        dir: Arc<Dir>,
        name: Box<OsStr>,
    },
}

/// The reason why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A system call failed.
    Os(Errno),
    /// It is not of this type any more.
    Changed(FileType),
    /// A process holds a lease for writing on it. Opening it would break the lease. `why` is the error
    /// for which the process's own descriptor cannot be used, if that was tried.
    Leased {
        /// The process, if it is known.
        holder: Option<u32>,
        /// The error.
        why: Option<Errno>,
    },
}

impl OpenError {
    /// The error of the system call that failed.
    fn errno(self) -> Option<Errno> {
        match self {
            OpenError::Os(errno) => Some(errno),
            OpenError::Changed(_) => None,
            OpenError::Leased { why, .. } => Some(why.unwrap_or(Errno::AGAIN)),
        }
    }

    /// Returns true if the process or the system lacks something that is free again when other
    /// files are closed.
    pub fn is_shortage(self) -> bool {
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
        matches!(self, OpenError::Os(errno) if short.contains(&errno))
    }
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> OpenError {
        OpenError::Os(errno)
    }
}

impl From<nowait_residency::Error> for OpenError {
    fn from(error: nowait_residency::Error) -> OpenError {
        nowait::Error::from(error).into()
    }
}

impl From<nowait::Error> for OpenError {
    fn from(error: nowait::Error) -> OpenError {
        OpenError::Os(error.errno().map_or(Errno::IO, Errno::from_raw_os_error))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Os(errno) => errno.fmt(f),
            OpenError::Changed(FileType::BlockDevice) => f.write_str("not a block device any more"),
            OpenError::Changed(_) => f.write_str("not a regular file any more"),
            OpenError::Leased { holder, why } => {
                match holder {
                    Some(pid) => write!(f, "process {pid} holds")?,
                    None => f.write_str("a process holds")?,
                }
                f.write_str(" a lease for writing on it, which opening it would break")?;
                match why {
                    Some(why) => write!(f, "; the process's descriptor cannot be used: {why}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The flags for opening a file to read. O_NONBLOCK: the open does not wait for a lease to be
/// released.
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl FileRef {
    /// A file whose path was given. Symbolic links in the path are followed.
    pub fn given(path: PathBuf, inode: u64, kind: FileType) -> FileRef {
        FileRef {
            place: Place::Given(path),
            inode,
            kind,
        }
    }

    /// A regular file of a tree that a walk has found.
    pub fn found(tree: &Arc<TreeRoot>, entry: &DirEntry) -> FileRef {
        FileRef::in_tree(tree, entry.dir(), entry.file_name(), entry.ino())
    }

    /// A regular file in a directory of a tree.
    pub fn in_tree(tree: &Arc<TreeRoot>, dir: &Arc<Dir>, name: &OsStr, inode: u64) -> FileRef {
        FileRef {
            place: Place::Tree {
                tree: tree.clone(),
                dir: dir.clone(),
                name: name.into(),
            },
            inode,
            kind: FileType::RegularFile,
        }
    }

    /// The same file with another given path.
    #[must_use]
    pub fn with_path(&self, path: PathBuf) -> FileRef {
        FileRef::given(path, self.inode, self.kind)
    }

    /// The path as it is shown: it begins with a given path. That of a file in a tree is made by each
    /// call, and can be as long as the tree is deep.
    pub fn path(&self) -> Cow<'_, Path> {
        match &self.place {
            Place::Given(path) => Cow::Borrowed(path),
            Place::Tree { dir, name, .. } => Cow::Owned(dir.path().join(&**name)),
        }
    }

    /// The tree of the file; `None` if its path was given.
    fn tree(&self) -> Option<&Arc<TreeRoot>> {
        match &self.place {
            Place::Given(_) => None,
            Place::Tree { tree, .. } => Some(tree),
        }
    }

    /// Opens several files. Consecutive files of one tree are opened relative to the same open
    /// directories.
    pub fn open_all(files: &[FileRef]) -> Vec<Result<(File, Stat), OpenError>> {
        let mut tree = None;
        let open = |file: &FileRef| {
            tree = file.tree().and_then(|tree| tree.opener().ok());
            file.open()
        };
        files.iter().map(open).collect()
    }

    /// Opens the file for reading, with O_NOATIME if that is allowed. Returns its metadata, too.
    ///
    /// # Errors
    /// [`OpenError::Leased`] if a lease for writing is known that opening the file would break.
    pub fn open(&self) -> Result<(File, Stat), OpenError> {
        let (path_fd, stat) = self.find()?;
        match lease(&path_fd, &stat).filter(|lease| !lease.is_for_reading) {
            Some(Lease { pid: holder, .. }) => Err(OpenError::Leased { holder, why: None }),
            None => self.opened(&path_fd, stat),
        }
    }

    /// The size in bytes, for a file that was not opened; 0 if it cannot be queried.
    pub(crate) fn size(&self) -> u64 {
        self.find().map_or(0, |(_, stat)| stat.st_size as u64)
    }

    /// Opens the file for readahead alone; see [`open_for_readahead`]. Returns its metadata, too.
    ///
    /// # Errors
    /// As [`open`](FileRef::open).
    pub fn open_for_readahead(&self) -> Result<(OwnedFd, Stat), OpenError> {
        let (path_fd, stat) = self.find()?;
        Ok((open_for_readahead(&path_fd, &stat)?, stat))
    }

    /// The same for a look at the file's pages. A file under a lease for writing is not opened: the file
    /// is a duplicate of the holder's descriptor, which shares the holder's file position and flags. It
    /// may be passed to fstat(2), cachestat(2), mmap(2) for a moment, and posix_fadvise(2) with
    /// POSIX_FADV_DONTNEED. fsync(2) would report a failed write here instead of to the holder.
    ///
    /// # Errors
    /// [`OpenError::Leased`] if that is not permitted.
    pub fn look(&self) -> Result<(File, Stat), OpenError> {
        let (path_fd, stat) = self.find()?;
        let Some(lease) = lease(&path_fd, &stat).filter(|lease| !lease.is_for_reading) else {
            return self.opened(&path_fd, stat);
        };
        match lease.descriptor(&stat) {
            Ok(file) => Ok((file.into(), stat)),
            Err(errno) => Err(OpenError::Leased {
                holder: lease.pid,
                why: Some(errno),
            }),
        }
    }

    /// Opens the path with O_PATH, which breaks no lease.
    fn find(&self) -> Result<(OwnedFd, Stat), OpenError> {
        let path_fd = self.resolve(OFlags::PATH | OFlags::CLOEXEC)?;
        let stat = rustix::fs::fstat(&path_fd)?;
        match FileType::from_raw_mode(stat.st_mode) == self.kind {
            true => Ok((path_fd, stat)),
            false => Err(OpenError::Changed(self.kind)),
        }
    }

    fn opened(&self, path_fd: &OwnedFd, stat: Stat) -> Result<(File, Stat), OpenError> {
        // Only the file's owner may use O_NOATIME.
        let file = match self.for_reading(path_fd, &stat, READING | OFlags::NOATIME) {
            Err(OpenError::Os(Errno::PERM)) => self.for_reading(path_fd, &stat, READING),
            other => other,
        }?;
        Ok((file.into(), stat))
    }

    /// Opens the path.
    fn resolve(&self, flags: OFlags) -> Result<OwnedFd, OpenError> {
        Ok(match &self.place {
            Place::Given(path) => rustix::fs::open(path, flags, Mode::empty())?,
            Place::Tree { tree, dir, name } => tree.opener()?.open(dir, name, flags)?,
        })
    }

    /// Opens the file of an O_PATH descriptor with other flags.
    fn for_reading(
        &self,
        path_fd: &OwnedFd,
        stat: &Stat,
        flags: OFlags,
    ) -> Result<OwnedFd, OpenError> {
        match nowait::reopen(path_fd, flags).map_err(OpenError::from) {
            Err(OpenError::Os(Errno::NOENT)) if !has_proc() => {}
            other => return other,
        }
        // Without /proc the path is resolved again. It may lead to another file now.
        let file = self.resolve(flags)?;
        let now = rustix::fs::fstat(&file)?;
        if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(OpenError::Changed(self.kind));
        }
        Ok(file)
    }

    /// The absolute path without symbolic links. A snapshot needs it, because it may be restored in
    /// another working directory.
    pub fn absolute(&self) -> io::Result<PathBuf> {
        let path = self.path();
        match self.tree() {
            None => std::fs::canonicalize(path),
            Some(tree) => Ok(tree.absolute()?.join(tree.below(&path))),
        }
    }

    /// Reports why this file was not processed. A file of a tree that was removed is not a failure.
    pub fn failed(&self, reporter: &dyn Reporter, why: OpenError) {
        failed(reporter, &self.path(), self.tree().is_none(), why);
    }
}

/// The handle of an open file whose reads wait. On filesystems without NOWAIT support, io_uring does
/// not wait for reads of files that are open with O_NONBLOCK.
pub fn waiting(file: File) -> nowait::Result<Handle> {
    let _ = rustix::fs::fcntl_getfl(&file)
        .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK));
    Handle::new(file)
}

/// Opens a regular file that an O_PATH descriptor holds, for posix_fadvise(2), cachestat(2) and fstat(2).
///
/// A descriptor for reading would keep a program from getting a lease for writing on the file (EAGAIN).
/// One with the access mode 3 does not; see open(2). It needs the permission to write to the file, and
/// breaks leases for reading. The descriptor is one for reading if the mode is not permitted, if another
/// process holds a lease for reading, and on filesystems other than ext4, xfs, btrfs, f2fs and tmpfs.
///
/// # Errors
/// [`OpenError::Leased`] if a lease for writing is known that opening the file would break.
pub fn open_for_readahead(held: &OwnedFd, stat: &Stat) -> Result<OwnedFd, OpenError> {
    let lease = lease(held, stat);
    if let Some(lease) = lease.filter(|lease| !lease.is_for_reading) {
        let holder = lease.pid;
        return Err(OpenError::Leased { holder, why: None });
    }
    let magic = rustix::fs::fstatfs(held).map_or(0, |stat| stat.f_type as u32);
    if lease.is_none()
        && MODE_3.contains(&magic)
        && let Ok(file) = nowait::reopen(held, READING | OFlags::ACCMODE)
    {
        return Ok(file);
    }
    Ok(nowait::reopen(held, READING)?)
}

/// Filesystems that open files with the access mode 3, and read ahead by such a descriptor. Those with a
/// server would pass the mode to it. Overlayfs has no cachestat(2), and mincore(2) needs a descriptor for
/// reading.
const MODE_3: [u32; 5] = [
    0x0000_ef53, // ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
];

/// The lease of a file. Only regular files have leases.
fn lease(path_fd: &OwnedFd, stat: &Stat) -> Option<Lease> {
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_distinct = || rustix::fs::fstatfs(path_fd).is_ok_and(|it| device::is_that_of_stat(&it));
    is_regular.then(|| Lease::of(stat, is_distinct)).flatten()
}

fn has_proc() -> bool {
    rustix::fs::access("/proc/thread-self/fd", Access::EXISTS).is_ok()
}

/// Reports why a path was not processed. A file that was removed or replaced is a failure only if
/// it was `named` by the caller.
pub fn failed(reporter: &dyn Reporter, path: &Path, named: bool, why: OpenError) {
    match why {
        OpenError::Os(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) | OpenError::Changed(_)
            if !named =>
        {
            reporter.note(path, &"vanished meanwhile");
        }
        _ => reporter.failure(path, why.errno(), &why),
    }
}

/// The root of a tree whose files are opened.
#[derive(Debug)]
pub struct TreeRoot {
    path: PathBuf,
    /// Device and inode number of the root.
    id: (u64, u64),
    /// The open directory, and directories below that are kept open. They are closed when no caller
    /// uses them, because thousands of files of many trees may wait to be opened.
    opener: Mutex<Weak<Opener>>,
    absolute: OnceLock<PathBuf>,
}

impl TreeRoot {
    /// Opens the directory at `path` as a root.
    pub fn open(path: &Path) -> Result<(Arc<TreeRoot>, Arc<Opener>), Errno> {
        let (opener, id) = directory(path)?;
        let root = TreeRoot {
            path: path.to_path_buf(),
            id,
            opener: Mutex::new(Arc::downgrade(&opener)),
            absolute: OnceLock::new(),
        };
        Ok((Arc::new(root), opener))
    }

    /// The open directory. It is opened again if it was closed.
    ///
    /// # Errors
    /// ENOENT if the path now leads to another directory.
    fn opener(&self) -> Result<Arc<Opener>, Errno> {
        // A panic of another thread cannot leave the value inconsistent.
        let mut known = self.opener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opener) = known.upgrade() {
            return Ok(opener);
        }
        let (opener, id) = directory(&self.path)?;
        if id != self.id {
            return Err(Errno::NOENT);
        }
        *known = Arc::downgrade(&opener);
        Ok(opener)
    }

    fn absolute(&self) -> io::Result<&Path> {
        if let Some(absolute) = self.absolute.get() {
            return Ok(absolute);
        }
        let absolute = std::fs::canonicalize(&self.path)?;
        Ok(self.absolute.get_or_init(|| absolute))
    }

    /// The path of a file relative to this root.
    fn below<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.path).unwrap_or(path)
    }
}

/// Opens a directory with O_PATH. Returns it with its device and inode number.
fn directory(path: &Path) -> Result<(Arc<Opener>, (u64, u64)), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&opened)?;
    let opener = Opener::new(opened)
        .map_err(|error| error.errno().map_or(Errno::IO, Errno::from_raw_os_error))?;
    Ok((Arc::new(opener), (stat.st_dev, stat.st_ino)))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, Stdio};

    use rustix::fs::{Advice, fadvise};

    /// Takes a lease, says so, and says at the end of its input if it still has it.
    const HOLDER: &str = "\
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
path, mode, kind = sys.argv[1], getattr(os, sys.argv[2]), getattr(fcntl, sys.argv[3])
file = os.open(path, mode)
try: fcntl.fcntl(file, fcntl.F_SETLEASE, kind)
except OSError as e: print(e.strerror, flush=True)
else: print('held', flush=True)
sys.stdin.read()
print('kept' if fcntl.fcntl(file, fcntl.F_GETLEASE) == kind else 'broken', flush=True)";

    /// A process that has asked for a lease.
    struct LeaseProcess {
        process: Child,
        output: BufReader<ChildStdout>,
    }

    impl LeaseProcess {
        fn new(path: &Path, mode: &str, kind: &str) -> LeaseProcess {
            let mut command = Command::new("python3");
            command.args(["-c", HOLDER]).arg(path).args([mode, kind]);
            let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
            let mut process = command.stdin(stdin).stdout(stdout).spawn().unwrap();
            let output = BufReader::new(process.stdout.take().unwrap());
            LeaseProcess { process, output }
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        }

        fn end(mut self) -> String {
            drop(self.process.stdin.take());
            let line = self.line();
            self.process.wait().unwrap();
            line
        }
    }

    fn open(path: &Path) -> Result<OwnedFd, OpenError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let stat = rustix::fs::fstat(&held).unwrap();
        nowait_residency::leases::forget_known();
        open_for_readahead(&held, &stat)
    }

    #[test]
    fn a_file_that_is_read_ahead_can_be_leased() {
        // Not in memory.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 40_000]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let ahead = open(&path).unwrap();
        fadvise(&ahead, 0, None, Advice::DontNeed).unwrap();
        fadvise(&ahead, 0, None, Advice::WillNeed).unwrap();
        let answer = nowait::residency::residency(&ahead, 0..4096).unwrap();
        assert!(answer.known().is_none_or(|found| found.cached == 1));
        let mut holder = LeaseProcess::new(&path, "O_RDWR", "F_WRLCK");
        assert_eq!(holder.line(), "held");
        let refused = open(&path).unwrap_err();
        assert!(matches!(refused, OpenError::Leased { .. }), "{refused}");
        assert_eq!(holder.end(), "kept");
        let mut holder = LeaseProcess::new(&path, "O_RDONLY", "F_RDLCK");
        assert_eq!(holder.line(), "held");
        open(&path).unwrap();
        assert_eq!(holder.end(), "kept");
    }
}
