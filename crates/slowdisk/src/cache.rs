//! Functions that evict files from the page cache.

use std::fs::{self, File};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::error::{Doing, Result};
use crate::sys;

/// Writes dirty pages back, then drops the page cache, dentries and inodes of the whole machine.
///
/// This slows down other tests that run at the same time, and it waits for any stalled disk.
/// [`evict`] affects one file.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").doing(|| "dropping caches".into())
}

/// Writes a file's dirty pages back, then drops its pages from the page cache.
///
/// The kernel skips pages that are in use, even for a moment, for example at the end of writeback.
/// The call is therefore repeated for some milliseconds until no page is left. Pages that are
/// mapped, locked or being read stay, and so do all pages of tmpfs.
pub fn evict(file: &File) -> Result<()> {
    const AGAIN: [u64; 6] = [0, 1, 2, 4, 8, 16];
    file.sync_all().doing(|| "syncing a file".into())?;
    for ms in AGAIN {
        std::thread::sleep(Duration::from_millis(ms));
        fadvise(file, 0, None, Advice::DontNeed).doing(|| "evicting a file".into())?;
        // A sandbox may deny mincore(2).
        if matches!(sys::any_resident(file), Ok(false)) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_page_that_was_read_is_resident_and_evicted() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [7; 300_000]).unwrap();
        let mut file = File::open(&path).unwrap();
        assert!(sys::any_resident(&file).unwrap());
        evict(&file).unwrap();
        assert!(!sys::any_resident(&file).unwrap());
        file.read_exact(&mut [0]).unwrap();
        assert!(sys::any_resident(&file).unwrap());
    }

    #[test]
    fn an_empty_file_has_no_page() {
        assert!(!sys::any_resident(&tempfile::tempfile().unwrap()).unwrap());
    }
}
