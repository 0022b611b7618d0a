//! The attributes of files and directories in FUSE replies.

use std::time::UNIX_EPOCH;

use fuser::{FileAttr, FileType, INodeNo};

/// The attributes of an inode that belongs to root and was last changed in 1970.
pub(crate) fn attributes(ino: INodeNo, kind: FileType, size: u64) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
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
