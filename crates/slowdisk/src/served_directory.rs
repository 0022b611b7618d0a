//! A filesystem that returns wrong types and wrong positions for the entries of its directory.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyDirectory, ReplyEmpty, ReplyEntry, Request,
};

use crate::attributes::attributes;
use crate::error::Result;
use crate::served_mount::ServedMount;

/// An entry of a [`ServedDirectory`].
#[derive(Clone, Debug)]
pub struct ServedEntry {
    /// The name.
    pub name: String,
    /// The inode number and the type that the directory returns.
    pub listed: (u64, FileType),
    /// The position of the next entry that the directory returns. The first entry is at position 0.
    pub next: u64,
    /// The inode number and the type that other calls return.
    pub actual: (u64, FileType),
}

/// A mounted directory whose entries a test decides. Drop unmounts it.
#[derive(Debug)]
pub struct ServedDirectory(ServedMount);

impl ServedDirectory {
    /// Mounts a directory with these entries.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn new(entries: Vec<ServedEntry>) -> Result<Self> {
        ServedMount::new(Server(entries)).map(ServedDirectory)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

const FOREVER: Duration = Duration::from_secs(3600);

struct Server(Vec<ServedEntry>);

fn attr((ino, kind): (u64, FileType)) -> FileAttr {
    attributes(INodeNo(ino), kind, 0)
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.iter().find(|entry| entry.name.as_str() == name) {
            Some(entry) => reply.entry(&FOREVER, &attr(entry.actual), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let entry = self.0.iter().find(|entry| entry.actual.0 == ino.0);
        let kind = entry.map_or(FileType::Directory, |entry| entry.actual.1);
        reply.attr(&FOREVER, &attr((ino.0, kind)));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for entry in self.0.iter().skip(offset as usize) {
            if reply.add(
                INodeNo(entry.listed.0),
                entry.next,
                entry.listed.1,
                &entry.name,
            ) || entry.next <= offset
            {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}
