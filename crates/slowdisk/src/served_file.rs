//! A FUSE filesystem with one file, whose requests a test answers: with fewer bytes than requested,
//! or with an errno.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr,
    Request, WriteFlags,
};

use crate::attributes::attributes;
use crate::error::Result;
use crate::served_mount::ServedMount;

/// A request of the kernel to a [`ServedFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of FUSE")]
pub enum Asked {
    Open,
    Read,
    Write,
    Fsync,
    Getattr,
    Getxattr,
    Fallocate,
}

/// A mounted file whose requests a test answers. Drop unmounts it.
///
/// The file is opened with `FOPEN_DIRECT_IO`: the kernel caches no data of it. Its only extended
/// attribute values are `value`, for every name.
#[derive(Debug)]
pub struct ServedFile {
    _mount: ServedMount,
    path: PathBuf,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl ServedFile {
    /// Mounts a file with these bytes. `answer` decides each request: the maximum of bytes that a
    /// read or a write transfers, or an errno.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn new(
        bytes: Vec<u8>,
        answer: impl Fn(Asked) -> std::result::Result<usize, i32> + Send + Sync + 'static,
    ) -> Result<Self> {
        let bytes = Arc::new(Mutex::new(bytes));
        let mount = ServedMount::new(Server {
            bytes: Arc::clone(&bytes),
            answer: Box::new(answer),
        })?;
        Ok(ServedFile {
            path: mount.path().join(FILE_NAME),
            _mount: mount,
            bytes,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the file. Requests wait while it is locked.
    pub fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.bytes)
    }
}

const FILE_NAME: &str = "file";
const FILE: INodeNo = INodeNo(2);
/// Names and attributes are asked for again each time.
const ONCE: Duration = Duration::ZERO;

type Answer = dyn Fn(Asked) -> std::result::Result<usize, i32> + Send + Sync;

struct Server {
    bytes: Arc<Mutex<Vec<u8>>>,
    answer: Box<Answer>,
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let kind = if ino == FILE {
            FileType::RegularFile
        } else {
            FileType::Directory
        };
        attributes(ino, kind, lock(&self.bytes).len() as u64)
    }

    fn answer(&self, asked: Asked) -> std::result::Result<usize, Errno> {
        (self.answer)(asked).map_err(Errno::from_i32)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == FILE_NAME {
            reply.entry(&ONCE, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.answer(Asked::Getattr) {
            Err(errno) if ino == FILE => reply.error(errno),
            _ => reply.attr(&ONCE, &self.attr(ino)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.answer(Asked::Open) {
            Ok(_) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.answer(Asked::Read) {
            Ok(most) => {
                let bytes = lock(&self.bytes);
                let from = bytes.get(offset as usize..).unwrap_or_default();
                reply.data(&from[..from.len().min(size as usize).min(most)]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.answer(Asked::Write) {
            Ok(most) => {
                let (at, data) = (offset as usize, &data[..data.len().min(most)]);
                let mut bytes = lock(&self.bytes);
                let end = bytes.len().max(at + data.len());
                bytes.resize(end, 0);
                bytes[at..at + data.len()].copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.answer(Asked::Fsync) {
            Ok(_) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        match self.answer(Asked::Getxattr) {
            Ok(_) => reply.data(b"value"),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        match self.answer(Asked::Fallocate) {
            Ok(_) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}
