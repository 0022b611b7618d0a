//! The directories that the program lists.
//!
//! An event needs the inode number of the directory. The library does not ask for it, since the
//! program may not have asked: it is that of the entry `.`, which the program reads.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nowait_ahead_channel::{Kind, MANY};

use crate::watch;

/// The stream that was last opened or read, and the time of its opening. Threads may mix them up:
/// then an event has another time, or is not sent.
static STREAM: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicU64 = AtomicU64::new(0);
/// The inode number and the descriptor of that stream's directory, and the number of names that
/// were read.
static INODE: AtomicU64 = AtomicU64::new(0);
static DESCRIPTOR: AtomicU64 = AtomicU64::new(0);
static NAMES: AtomicUsize = AtomicUsize::new(0);

/// A stream was opened at this time.
pub fn opened(stream: usize, time: u64) {
    OPENED.store(time, Ordering::Relaxed);
    STREAM.store(stream, Ordering::Relaxed);
}

/// The first name of a stream was read.
pub fn begun(stream: usize, inode: u64, fd: c_int) {
    let time = match STREAM.swap(stream, Ordering::Relaxed) == stream {
        true => OPENED.load(Ordering::Relaxed),
        false => watch::now(),
    };
    INODE.store(inode, Ordering::Relaxed);
    DESCRIPTOR.store(fd as u64, Ordering::Relaxed);
    NAMES.store(1, Ordering::Relaxed);
    watch::listed(Kind::Opened, fd, inode, time);
}

/// Another name of a stream was read.
pub fn continued(stream: usize) {
    if STREAM.load(Ordering::Relaxed) != stream {
        return;
    }
    let names = NAMES.load(Ordering::Relaxed) + 1;
    NAMES.store(names, Ordering::Relaxed);
    if names == MANY {
        let fd = DESCRIPTOR.load(Ordering::Relaxed) as c_int;
        watch::listed(Kind::Large, fd, INODE.load(Ordering::Relaxed), 0);
    }
}

/// The first names of a directory were read by getdents64(2), with so many bytes.
pub fn listed(fd: c_int, inode: u64, bytes: usize) {
    // The least bytes of an entry.
    const ENTRY: usize = 24;
    watch::listed(Kind::Opened, fd, inode, watch::now());
    if bytes >= MANY * ENTRY {
        watch::listed(Kind::Large, fd, inode, 0);
    }
}
