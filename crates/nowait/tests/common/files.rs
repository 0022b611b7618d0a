//! Files with a known pattern of bytes.

use std::path::{Path, PathBuf};

/// A directory on a real filesystem.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The byte that [`pattern`] has at an offset: no two nearby pages are alike.
pub fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16).wrapping_mul(31)) as u8
}

/// `len` bytes of a patterned file at `offset`.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(byte_at).collect()
}

/// Makes a file of `len` patterned bytes.
pub fn patterned(dir: &Path, name: &str, len: usize) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, pattern(0, len)).unwrap();
    path
}
