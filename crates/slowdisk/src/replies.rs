//! Replies to requests of FUSE, none of which the kernel caches.

use std::io;
use std::time::Duration;

use fuser::{FileAttr, Generation, ReplyAttr, ReplyEmpty, ReplyEntry};

pub(crate) fn empty(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

pub(crate) fn entry(reply: ReplyEntry, result: io::Result<FileAttr>) {
    match result {
        Ok(attr) => reply.entry(&Duration::ZERO, &attr, Generation(0)),
        Err(e) => reply.error(e.into()),
    }
}

pub(crate) fn attr(reply: ReplyAttr, result: io::Result<FileAttr>) {
    match result {
        Ok(attr) => reply.attr(&Duration::ZERO, &attr),
        Err(e) => reply.error(e.into()),
    }
}
