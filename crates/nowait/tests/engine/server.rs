//! A FUSE filesystem with one file. A test decides how requests are answered: with fewer bytes than
//! requested, or with an errno. The file is opened with `FOPEN_DIRECT_IO`: the kernel caches no data of it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr, Request, WriteFlags,
};

/// The requests of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Open,
    Read,
    Write,
    Fsync,
    Getattr,
    Getxattr,
    Fallocate,
}

/// The maximum of bytes that a read or a write transfers, or an errno.
type Answer = dyn Fn(Asked) -> Result<usize, i32> + Send + Sync;

struct Server {
    bytes: Arc<Mutex<Vec<u8>>>,
    answer: Box<Answer>,
}

/// A mounted file. Dropping it unmounts it.
pub struct Served {
    _session: BackgroundSession,
    _dir: tempfile::TempDir,
    pub path: PathBuf,
    /// The content of the file.
    pub bytes: Arc<Mutex<Vec<u8>>>,
}

/// Mounts a file with these bytes. `answer` decides each request.
pub fn serve(
    bytes: Vec<u8>,
    answer: impl Fn(Asked) -> Result<usize, i32> + Send + Sync + 'static,
) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = Arc::new(Mutex::new(bytes));
    let server = Server {
        bytes: bytes.clone(),
        answer: Box::new(answer),
    };
    let session = fuser::spawn_mount(server, dir.path(), &Config::default()).unwrap();
    Served {
        _session: session,
        _dir: dir,
        path,
        bytes,
    }
}

const FILE: INodeNo = INodeNo(2);
const ONCE: Duration = Duration::ZERO;

impl Server {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let file = ino == FILE;
        FileAttr {
            ino,
            size: self.bytes.lock().unwrap().len() as u64,
            blocks: 8,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn answer(&self, asked: Asked) -> Result<usize, Errno> {
        (self.answer)(asked).map_err(Errno::from_i32)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
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
                let bytes = self.bytes.lock().unwrap();
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
                let mut bytes = self.bytes.lock().unwrap();
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
