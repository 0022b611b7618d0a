//! The FUSE filesystem: a directory with one file. Its reads and writes go to the queue.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request as FuseRequest, WriteFlags,
};

use crate::attributes::attributes;
use crate::backing::Backing;
use crate::log::Op;
use crate::queue::{Queue, Request};

/// The name of the one file.
pub(crate) const FILE_NAME: &str = "disk";

const FILE: INodeNo = INodeNo(2);
/// The maximum size of one request in bytes.
const MAX_WRITE: u32 = 1 << 20;
/// Names and sizes never change.
const FOREVER: Duration = Duration::from_secs(1 << 30);

pub(crate) struct Server {
    pub(crate) queue: Arc<Queue>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) size: u64,
    pub(crate) places: usize,
}

impl Server {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        if ino == FILE {
            attributes(ino, FileType::RegularFile, self.size)
        } else {
            attributes(ino, FileType::Directory, 0)
        }
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &FuseRequest, config: &mut KernelConfig) -> io::Result<()> {
        // Requests of the loop device are asynchronous direct I/O, which FUSE counts as background.
        // The limit must come from the queue, not from FUSE.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other("FUSE does not support asynchronous direct I/O here"))?;
        let background = u16::try_from(self.places.saturating_mul(4)).unwrap_or(u16::MAX);
        let background = background.max(1024);
        let refused = |nearest| io::Error::other(format!("FUSE takes no more than {nearest}"));
        config.set_max_background(background).map_err(refused)?;
        config
            .set_congestion_threshold(background)
            .map_err(refused)?;
        config
            .set_max_write(MAX_WRITE)
            .map_err(|nearest| io::Error::other(format!("FUSE takes no more than {nearest}")))?;
        Ok(())
    }

    fn lookup(&self, _: &FuseRequest, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE_NAME {
            reply.entry(&FOREVER, &self.attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &FuseRequest, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attr(ino));
    }

    fn readdir(
        &self,
        _: &FuseRequest,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &FuseRequest, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The page cache must not be used above the disk, and writes must not be serialized by the
        // inode's lock.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &FuseRequest,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let arrived = Instant::now();
        // The data is read now, so that the time of a slow backing file is part of the latency.
        let data = self.backing.read(offset, size);
        self.queue.submit(Request {
            op: Op::Read,
            offset,
            len: size,
            arrived,
            answer: Box::new(move |ok| match data {
                Ok(data) if ok => reply.data(&data),
                _ => reply.error(Errno::EIO),
            }),
        });
    }

    fn write(
        &self,
        _: &FuseRequest,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let arrived = Instant::now();
        if offset.saturating_add(data.len() as u64) > self.size {
            return reply.error(Errno::ENOSPC);
        }
        let len = data.len() as u32;
        let data = data.to_vec();
        let backing = Arc::clone(&self.backing);
        self.queue.submit(Request {
            op: Op::Write,
            offset,
            len,
            arrived,
            // The data is written now, so that a failed or stalled write does not change the disk.
            answer: Box::new(move |ok| {
                if ok && backing.write(offset, &data).is_ok() {
                    reply.written(len);
                } else {
                    reply.error(Errno::EIO);
                }
            }),
        });
    }

    fn flush(&self, _: &FuseRequest, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &FuseRequest, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.queue.flush();
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &FuseRequest,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // The loop device uses this to discard and to write zeros.
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.backing.discard(offset, length) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}
