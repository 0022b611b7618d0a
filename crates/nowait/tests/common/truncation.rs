//! A file that another thread truncates.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::files::pattern;

/// Truncates a patterned file and writes it again, until `over` is set.
pub fn cut_off_until(path: &Path, len: usize, over: &AtomicBool) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let bytes = pattern(0, len);
    while !over.load(Ordering::Relaxed) {
        for len in [300_000, 5000, 0] {
            file.set_len(len).unwrap();
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    }
}
