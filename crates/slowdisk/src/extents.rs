//! The location of a file's bytes on the disk.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;

use crate::error::{Doing, Result};
use crate::sys;

const FIEMAP_EXTENT_LAST: u32 = 1;

/// The byte ranges of the device that hold the file's data, in the file's order.
///
/// The file is written back first. On ext4 and xfs a [`Fault`](crate::Fault) can be injected on
/// these ranges. btrfs returns logical addresses, which may differ from those of the device.
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
