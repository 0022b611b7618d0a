//! The files of the demo: some are kept in the page cache, and the others are evicted before each turn.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

/// The number of cached files.
pub const CACHED: usize = 50;
/// The number of files that are not cached.
pub const UNCACHED: usize = 1000;

const CACHED_BYTES: usize = 16 << 10;
const UNCACHED_BYTES: usize = 64 << 10;

/// The name of a cached file.
pub fn cached(number: usize) -> String {
    format!("cached-{number:04}")
}

/// The name of a file that is not cached.
pub fn uncached(number: usize) -> String {
    format!("uncached-{number:04}")
}

fn paths(root: &Path, count: usize, name: fn(usize) -> String) -> impl Iterator<Item = PathBuf> {
    (0..count).map(move |number| root.join(name(number)))
}

/// Makes the files that are missing. They stay when the program ends.
pub fn make(root: &Path) -> io::Result<()> {
    let all = paths(root, CACHED, cached).map(|path| (path, CACHED_BYTES));
    let all = all.chain(paths(root, UNCACHED, uncached).map(|path| (path, UNCACHED_BYTES)));
    for (path, len) in all {
        if fs::metadata(&path).is_ok_and(|there| there.len() == len as u64) {
            continue;
        }
        fs::write(&path, vec![b'.'; len])?;
    }
    // A file cannot be evicted before it is written to the device.
    rustix::fs::syncfs(File::open(root)?)?;
    Ok(())
}

/// Puts the page cache into the state for a turn.
pub async fn prepare(root: &Path) -> io::Result<()> {
    let root = root.to_owned();
    let prepared = tokio::task::spawn_blocking(move || {
        for path in paths(&root, CACHED, cached) {
            fs::read(path)?;
        }
        for path in paths(&root, UNCACHED, uncached) {
            fadvise(File::open(path)?, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    });
    prepared.await?
}
