//! The page cache.

use std::path::Path;

/// Writes a file's pages back and drops them from the page cache.
pub fn evict(path: &Path) {
    slowdisk::evict(&std::fs::File::open(path).unwrap()).unwrap();
}
