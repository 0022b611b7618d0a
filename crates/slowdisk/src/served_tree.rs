//! A FUSE filesystem that shows the tree below a directory, and takes a time for each request.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackingId, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use crate::error::Result;
use crate::served_mount::ServedMount;

/// A mount that shows the files, directories and symbolic links below a directory. Each request of
/// the kernel takes a time. Drop unmounts it.
///
/// Files and directories can be removed, and not be created or changed. The kernel caches names,
/// attributes and data until they are removed: they must not change elsewhere meanwhile.
#[derive(Debug)]
pub struct ServedTree {
    mount: ServedMount,
    gate: Arc<Gate>,
}

/// Requests wait here while the server hangs.
#[derive(Debug, Default)]
struct Gate {
    hangs: Mutex<bool>,
    changed: Condvar,
}

/// The number of requests that are served at a time.
const THREADS: usize = 16;

impl ServedTree {
    /// Mounts the tree below `root`. Each request takes `latency`; 16 are served at a time.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn new(root: impl Into<PathBuf>, latency: Duration) -> Result<Self> {
        ServedTree::mounted(root.into(), latency, false)
    }

    /// The same without a latency, with files whose reads the kernel passes on to those below `root` (passthrough,
    /// Linux 6.9). They have no pages of their own. On older kernels the server reads them.
    ///
    /// # Errors
    ///
    /// As [`new`](ServedTree::new).
    pub fn passing(root: impl Into<PathBuf>) -> Result<Self> {
        ServedTree::mounted(root.into(), Duration::ZERO, true)
    }

    fn mounted(root: PathBuf, latency: Duration, passes: bool) -> Result<Self> {
        let gate = Arc::new(Gate::default());
        let server = Server {
            passes: passes.into(),
            latency,
            gate: gate.clone(),
            paths: Mutex::new(HashMap::from([(INodeNo::ROOT, root)])),
            open: Mutex::default(),
        };
        let mount = ServedMount::with_threads(server, THREADS)?;
        Ok(ServedTree { mount, gate })
    }

    /// The path of the root.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Answers no request until it is called with `false`, or until the drop.
    pub fn hang(&self, yes: bool) {
        *lock(&self.gate.hangs) = yes;
        self.gate.changed.notify_all();
    }
}

impl Drop for ServedTree {
    fn drop(&mut self) {
        self.hang(false);
    }
}

const FOREVER: Duration = Duration::from_secs(3600);

struct Server {
    /// Reads are passed on to the files below the root.
    passes: AtomicBool,
    latency: Duration,
    gate: Arc<Gate>,
    /// The paths of the inodes whose numbers the kernel has.
    paths: Mutex<HashMap<INodeNo, PathBuf>>,
    open: Mutex<Open>,
}

/// The open files and directories, by their handles.
#[derive(Default)]
struct Open {
    last: u64,
    files: HashMap<u64, Arc<File>>,
    /// All open files of an inode must have the same one.
    passed: HashMap<INodeNo, Arc<BackingId>>,
    directories: HashMap<u64, Arc<Vec<Entry>>>,
}

type Entry = (INodeNo, FileType, OsString);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Open {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Server {
    /// Takes the time of a request.
    fn wait(&self) {
        std::thread::sleep(self.latency);
        let hangs = lock(&self.gate.hangs);
        drop(self.gate.changed.wait_while(hangs, |hangs| *hangs));
    }

    fn path(&self, ino: INodeNo) -> io::Result<PathBuf> {
        let path = lock(&self.paths).get(&ino).cloned();
        path.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn attributes(&self, ino: INodeNo) -> io::Result<FileAttr> {
        Ok(attributes(ino, &self.path(ino)?.symlink_metadata()?))
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let metadata = path.symlink_metadata()?;
        let ino = INodeNo(metadata.ino());
        lock(&self.paths).insert(ino, path);
        Ok(attributes(ino, &metadata))
    }

    fn list(&self, ino: INodeNo) -> io::Result<Vec<Entry>> {
        let mut entries = vec![
            (ino, FileType::Directory, ".".into()),
            (ino, FileType::Directory, "..".into()),
        ];
        for entry in fs::read_dir(self.path(ino)?)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            entries.push((INodeNo(metadata.ino()), kind(&metadata), entry.file_name()));
        }
        Ok(entries)
    }

    fn read(&self, file: u64, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let file = lock(&self.open).files.get(&file).cloned();
        let file = file.ok_or(io::ErrorKind::InvalidInput)?;
        let mut bytes = vec![0; size as usize];
        let n = file.read_at(&mut bytes, offset)?;
        bytes.truncate(n);
        Ok(bytes)
    }
}

pub(crate) fn kind(metadata: &Metadata) -> FileType {
    match metadata.file_type() {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_symlink() => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

pub(crate) fn attributes(ino: INodeNo, metadata: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanoseconds: i64| {
        UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanoseconds as u32)
    };
    FileAttr {
        ino,
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind(metadata),
        perm: (metadata.permissions().mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let can_pass = *self.passes.get_mut()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        *self.passes.get_mut() = can_pass;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait();
        match self.look_up(parent, name) {
            Ok(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            Err(e) => reply.error(e.into()),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.wait();
        match self.attributes(ino) {
            Ok(attr) => reply.attr(&FOREVER, &attr),
            Err(e) => reply.error(e.into()),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.wait();
        match self.path(ino).and_then(fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(e) => reply.error(e.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait();
        let removed = self
            .path(parent)
            .and_then(|path| fs::remove_file(path.join(name)));
        match removed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait();
        let removed = self
            .path(parent)
            .and_then(|path| fs::remove_dir(path.join(name)));
        match removed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e.into()),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.wait();
        match self.path(ino).and_then(File::open) {
            Ok(file) => {
                let mut open = lock(&self.open);
                let handle = open.next();
                if self.passes.load(Ordering::Relaxed) {
                    let known = open.passed.get(&ino).cloned();
                    let passed =
                        match known.map_or_else(|| reply.open_backing(&file).map(Arc::new), Ok) {
                            Ok(passed) => passed,
                            Err(e) => return reply.error(e.into()),
                        };
                    open.passed.insert(ino, passed.clone());
                    return reply.opened_passthrough(
                        FileHandle(handle),
                        FopenFlags::empty(),
                        &passed,
                    );
                }
                open.files.insert(handle, Arc::new(file));
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.wait();
        match self.read(file.0, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(e) => reply.error(e.into()),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).files.remove(&file.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.wait();
        match self.list(ino) {
            Ok(entries) => {
                let mut open = lock(&self.open);
                let handle = open.next();
                open.directories.insert(handle, Arc::new(entries));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        directory: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.wait();
        let Some(entries) = lock(&self.open).directories.get(&directory.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        for (next, (ino, kind, name)) in (1..).zip(entries.iter()).skip(offset as usize) {
            if reply.add(*ino, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        directory: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).directories.remove(&directory.0);
        reply.ok();
    }
}
