//! The paths that this process has open.

use std::path::{Path, PathBuf};

/// The paths of open descriptors that are a directory or below it.
pub fn open_below(dir: &Path) -> Vec<PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter(|target| target.starts_with(dir))
        .collect()
}
