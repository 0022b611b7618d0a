//! A filesystem that returns wrong types and wrong positions for the entries of its directory.

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyDirectory, ReplyEmpty, ReplyEntry, Request,
};

/// One directory. Each entry has a name, the inode number and type that the directory returns, the offset
/// of the next entry that it returns, and the true inode number and type.
struct Liar(Vec<Told>);

pub struct Told {
    pub name: String,
    pub told: (u64, FileType),
    pub next: u64,
    pub real: (u64, FileType),
}

fn attr(ino: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

const FOREVER: Duration = Duration::from_secs(3600);

impl Filesystem for Liar {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.iter().find(|told| told.name.as_str() == name) {
            Some(told) => reply.entry(&FOREVER, &attr(told.real.0, told.real.1), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let told = self.0.iter().find(|told| told.real.0 == ino.0);
        let kind = told.map_or(FileType::Directory, |told| told.real.1);
        reply.attr(&FOREVER, &attr(ino.0, kind));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for told in self.0.iter().skip(offset as usize) {
            if reply.add(INodeNo(told.told.0), told.next, told.told.1, &told.name)
                || told.next <= offset
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

/// Mounts a directory with these entries.
pub fn mount(entries: Vec<Told>) -> (BackgroundSession, tempfile::TempDir) {
    let at = tempfile::tempdir().unwrap();
    let session = fuser::spawn_mount(Liar(entries), at.path(), &Config::default()).unwrap();
    (session, at)
}
