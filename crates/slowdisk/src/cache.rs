//! Making files cold.

use std::fs::{self, File};

use rustix::fs::{Advice, fadvise};

use crate::error::{Doing, Result};

/// Writes dirty pages back, then drops the page cache, dentries and inodes of the whole machine.
///
/// This slows down other tests that run at the same time, and waits for any disk that is stalled;
/// [`evict`] concerns one file.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").doing(|| "dropping caches".into())
}

/// Writes a file's dirty pages back, then drops its pages from the page cache.
///
/// Pages that are mapped, locked or being read stay.
pub fn evict(file: &File) -> Result<()> {
    file.sync_all().doing(|| "syncing a file".into())?;
    fadvise(file, 0, None, Advice::DontNeed).doing(|| "evicting a file".into())
}
