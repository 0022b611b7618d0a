//! A FUSE filesystem that accepts all writes, and reports an error when a file is synced or closed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::attributes::attributes;
use crate::error::Result;
use crate::served_mount::ServedMount;

/// A mounted directory of files in memory. Each close(2) of a file returns an errno, as that of a
/// server or of a quota that refuses the written data late. fsync(2) may do so, too. Drop unmounts it.
#[derive(Debug)]
pub struct ServedFlush {
    mount: ServedMount,
    flushes: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
}

impl ServedFlush {
    /// Mounts an empty directory whose files return `errno` when they are closed.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn new(errno: i32) -> Result<Self> {
        ServedFlush::with(errno, false)
    }

    /// The same for files that also return `errno` when they are synced.
    ///
    /// # Errors
    ///
    /// As for [`ServedFlush::new`].
    pub fn with_syncs(errno: i32) -> Result<Self> {
        ServedFlush::with(errno, true)
    }

    fn with(errno: i32, fails_syncs: bool) -> Result<Self> {
        let (flushes, syncs) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let mount = ServedMount::new(Server {
            errno: Errno::from_i32(errno),
            flushes: flushes.clone(),
            syncs: syncs.clone(),
            fails_syncs,
            files: Mutex::default(),
        })?;
        Ok(ServedFlush {
            mount,
            flushes,
            syncs,
        })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The number of calls of close(2).
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// The number of calls of fsync(2) and fdatasync(2).
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }
}

/// Names and attributes are asked for again each time.
const ONCE: Duration = Duration::ZERO;

struct Server {
    errno: Errno,
    flushes: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
    fails_syncs: bool,
    files: Mutex<Files>,
}

/// The files by their numbers, which are not used again. A removed file has no name.
#[derive(Default)]
struct Files {
    names: BTreeMap<OsString, u64>,
    bytes: Vec<Vec<u8>>,
}

/// The number of the first file. The directory has the number 1.
const FIRST: u64 = 2;

impl Server {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn bytes(&mut self, ino: INodeNo) -> Option<&mut Vec<u8>> {
        self.bytes.get_mut(ino.0.checked_sub(FIRST)? as usize)
    }

    fn attr(&mut self, ino: INodeNo) -> FileAttr {
        match self.bytes(ino) {
            Some(bytes) => attributes(ino, FileType::RegularFile, bytes.len() as u64),
            None => attributes(ino, FileType::Directory, 0),
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut files = self.files();
        match files.names.get(name).copied() {
            Some(ino) => reply.entry(&ONCE, &files.attr(INodeNo(ino)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ONCE, &self.files().attr(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut files = self.files();
        if let (Some(bytes), Some(size)) = (files.bytes(ino), size) {
            bytes.resize(size as usize, 0);
        }
        reply.attr(&ONCE, &files.attr(ino));
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut files = self.files();
        let ino = FIRST + files.bytes.len() as u64;
        files.bytes.push(Vec::new());
        files.names.insert(name.to_owned(), ino);
        let attr = files.attr(INodeNo(ino));
        let (handle, flags) = (FileHandle(0), FopenFlags::empty());
        reply.created(&ONCE, &attr, Generation(0), handle, flags);
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.files().names.remove(name) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut files = self.files();
        let bytes = files.bytes(ino).map(|bytes| bytes.as_slice());
        let from = bytes.and_then(|bytes| bytes.get(offset as usize..));
        let from = from.unwrap_or_default();
        reply.data(&from[..from.len().min(size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (mut files, at) = (self.files(), offset as usize);
        let Some(bytes) = files.bytes(ino) else {
            return reply.error(Errno::EBADF);
        };
        let end = bytes.len().max(at + data.len());
        bytes.resize(end, 0);
        bytes[at..at + data.len()].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.syncs.fetch_add(1, Relaxed);
        match self.fails_syncs {
            true => reply.error(self.errno),
            false => reply.ok(),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let files = self.files();
        for (next, (name, ino)) in (1..).zip(&files.names).skip(offset as usize) {
            if reply.add(INodeNo(*ino), next, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.flushes.fetch_add(1, Relaxed);
        reply.error(self.errno);
    }
}
