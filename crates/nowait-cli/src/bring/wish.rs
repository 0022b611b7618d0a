//! What is wanted in the page cache: a file, or ranges of one as it was when they were noted.

use std::ops::Range;

use rustix::fs::Stat;

use crate::tree::Found;

/// A file, and what of it is wanted.
#[derive(Debug)]
pub struct Wish {
    pub found: Found,
    /// `None`: all of it.
    pub only: Option<Only>,
}

/// Ranges of a file, if it is still the same.
#[derive(Debug)]
pub struct Only {
    /// In order, none empty, none beyond the file's end.
    pub ranges: Vec<Range<u64>>,
    pub stamp: Stamp,
}

/// By which a file is known to be the same, and unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub size: u64,
    /// When its content was last changed: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    pub inode: u64,
}

impl Stamp {
    /// Of a file as it is.
    pub fn of(stat: &Stat) -> Stamp {
        Stamp {
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            inode: stat.st_ino,
        }
    }

    /// What differs, in words; `None` if it is the same.
    pub fn difference(&self, now: &Stamp) -> Option<&'static str> {
        if self.inode != now.inode {
            Some("it is another file now (its inode differs)")
        } else if self.size != now.size {
            Some("its size has changed")
        } else if self.mtime != now.mtime {
            Some("it was changed since (its modification time differs)")
        } else {
            None
        }
    }
}
