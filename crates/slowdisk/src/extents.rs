//! Where on the disk the bytes of a file are.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;

use crate::error::{Doing, Result};
use crate::sys;

const FIEMAP_EXTENT_LAST: u32 = 1;

/// Byte ranges of the device that hold the file's data, in file order.
///
/// The file is written back first. On ext4 and xfs these are the ranges to inject a
/// [`Fault`](crate::Fault) on; btrfs gives addresses of its own that need not be the device's.
pub fn extents(file: &File) -> Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let batch = sys::fiemap(file.as_fd(), start).doing(|| "asking for extents".into())?;
        found.extend(batch.iter().map(|e| e.physical..e.physical + e.length));
        match batch.last() {
            Some(e) if batch.len() == sys::FIEMAP_BATCH && e.flags & FIEMAP_EXTENT_LAST == 0 => {
                start = e.logical + e.length;
            }
            _ => return Ok(found),
        }
    }
}
