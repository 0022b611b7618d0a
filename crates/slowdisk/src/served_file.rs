//! A FUSE filesystem with one file, whose requests a test answers: with fewer bytes than requested,
//! or with an errno.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, WriteFlags,
};

use crate::attributes::attributes;
use crate::error::Result;
use crate::served_mount::ServedMount;

/// A request of the kernel to a [`ServedFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of FUSE")]
pub enum Asked {
    Lookup,
    Statfs,
    Open,
    Flush,
    Read,
    Write,
    Fsync,
    Getattr,
    Getxattr,
    Fallocate,
}

/// A mounted file whose requests a test answers. Drop unmounts it.
///
/// The only values of its extended attributes are `value`, for every name. The kernel asks again for names and
/// attributes each time.
#[derive(Debug)]
pub struct ServedFile {
    _mount: ServedMount,
    path: PathBuf,
    bytes: Arc<Mutex<Vec<u8>>>,
    requests: Arc<Mutex<Vec<(u32, Asked)>>>,
}

impl ServedFile {
    /// Mounts a file with these bytes. `answer` decides each request: the maximum of bytes that a
    /// read or a write transfers, or an errno. The file is opened with `FOPEN_DIRECT_IO`: the kernel
    /// caches no data of it.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn new(
        bytes: Vec<u8>,
        answer: impl Fn(Asked) -> std::result::Result<usize, i32> + Send + Sync + 'static,
    ) -> Result<Self> {
        ServedFile::opened_with(FopenFlags::FOPEN_DIRECT_IO, bytes, Box::new(answer))
    }

    /// Mounts a file with these bytes, which the page cache keeps. It has no extended attributes, and can
    /// be in a layer of an overlay.
    ///
    /// # Errors
    ///
    /// As [`new`](ServedFile::new).
    pub fn cached(bytes: Vec<u8>) -> Result<Self> {
        let answer = |asked| match asked {
            Asked::Getxattr => Err(Errno::ENODATA.code()),
            _ => Ok(usize::MAX),
        };
        ServedFile::opened_with(FopenFlags::FOPEN_KEEP_CACHE, bytes, Box::new(answer))
    }

    fn opened_with(flags: FopenFlags, bytes: Vec<u8>, answer: Box<Answer>) -> Result<Self> {
        let bytes = Arc::new(Mutex::new(bytes));
        let requests = Arc::default();
        let mount = ServedMount::new(Server {
            flags,
            bytes: Arc::clone(&bytes),
            answer,
            requests: Arc::clone(&requests),
        })?;
        Ok(ServedFile {
            path: mount.path().join(FILE_NAME),
            _mount: mount,
            bytes,
            requests,
        })
    }

    /// The requests for which the thread with this ID (gettid(2)) had to wait, until now.
    pub fn requests_of(&self, thread: u32) -> Vec<Asked> {
        let requests = lock(&self.requests);
        let own = requests.iter().filter(|(asker, _)| *asker == thread);
        own.map(|(_, asked)| *asked).collect()
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
    flags: FopenFlags,
    bytes: Arc<Mutex<Vec<u8>>>,
    answer: Box<Answer>,
    /// Each with the thread that waits for it.
    requests: Arc<Mutex<Vec<(u32, Asked)>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn answer(&self, request: &Request, asked: Asked) -> std::result::Result<usize, Errno> {
        lock(&self.requests).push((request.pid(), asked));
        (self.answer)(asked).map_err(Errno::from_i32)
    }
}

impl Filesystem for Server {
    fn lookup(&self, request: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Err(errno) = self.answer(request, Asked::Lookup) {
            reply.error(errno);
        } else if name == FILE_NAME {
            reply.entry(&ONCE, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.answer(request, Asked::Getattr) {
            Err(errno) if ino == FILE => reply.error(errno),
            _ => reply.attr(&ONCE, &self.attr(ino)),
        }
    }

    fn open(&self, request: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.answer(request, Asked::Open) {
            Ok(_) => reply.opened(FileHandle(0), self.flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.answer(request, Asked::Read) {
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
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.answer(request, Asked::Write) {
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

    fn fsync(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.answer(request, Asked::Fsync) {
            Ok(_) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn getxattr(&self, request: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        match self.answer(request, Asked::Getxattr) {
            Ok(_) => reply.data(b"value"),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        match self.answer(request, Asked::Fallocate) {
            Ok(_) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        match self.answer(request, Asked::Flush) {
            Ok(_) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.answer(request, Asked::Statfs) {
            Ok(_) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
            Err(errno) => reply.error(errno),
        }
    }
}
