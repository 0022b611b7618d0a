//! A file, or ranges of a file, to read into the page cache.

use std::ops::Range;

use rustix::fs::Stat;

use crate::file_ref::FileRef;

/// A file, and its requested ranges.
#[derive(Debug)]
pub struct Request {
    /// The file.
    pub file: FileRef,
    /// The requested ranges; `None` for the whole file.
    pub selection: Option<Selection>,
}

impl Request {
    /// The number of requested bytes of a file of this size.
    pub(super) fn bytes(&self, size: u64) -> u64 {
        self.selection.as_ref().map_or(size, Selection::bytes)
    }
}

/// Requested ranges, valid only if the file still has this stamp.
#[derive(Debug)]
pub struct Selection {
    /// The ranges in order. None is empty, and none extends beyond the end of the file.
    pub ranges: Vec<Range<u64>>,
    /// The stamp of the file when the ranges were chosen.
    pub stamp: Stamp,
}

impl Selection {
    /// The number of bytes in the ranges.
    pub fn bytes(&self) -> u64 {
        let lengths = self.ranges.iter().map(|range| range.end - range.start);
        lengths.fold(0, u64::saturating_add)
    }
}

/// The properties that show that a file is the same and unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The size in bytes.
    pub size: u64,
    /// The modification time: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// The inode number.
    pub inode: u64,
}

impl Stamp {
    /// The stamp of a file with this metadata.
    pub fn of(stat: &Stat) -> Stamp {
        Stamp {
            size: stat.st_size as u64,
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            inode: stat.st_ino,
        }
    }

    /// A description of the first difference; `None` if the stamps are equal.
    pub fn difference(&self, now: &Stamp) -> Option<&'static str> {
        if self.inode != now.inode {
            Some("it is another file now (different inode)")
        } else if self.size != now.size {
            Some("its size has changed")
        } else if self.mtime != now.mtime {
            Some("it was modified since (different modification time)")
        } else {
            None
        }
    }
}
