//! Copies, renames and deletions of objects.
//!
//! All functions block.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::durable::{self, Sync};
use crate::error::Error;
use crate::staged::{Replace, link, staged_path};

/// Gives the file of an object a second name: a hard link. An object that has the name is replaced at once or not
/// at all.
pub(crate) fn copy(from: &Path, to: &Path, replace: Replace, sync: Sync) -> Result<(), Error> {
    match replace {
        Replace::No => with_parents(from, to, sync, || link(from, to))?,
        // link(2) does not replace files, and rename(2) does.
        Replace::Yes => {
            let staged = with_parents(from, to, sync, || link_staged(from, to))?;
            // If both names are those of one file, rename(2) does nothing, and the name is left.
            let renamed = fs::rename(&staged, to).map_err(Error::io("rename", to));
            let _ = fs::remove_file(&staged);
            renamed?;
        }
    }
    match sync {
        Sync::No => Ok(()),
        Sync::Yes => durable::sync_parent(to),
    }
}

/// Gives a file a further name, which is not that of an object, and which no other copy uses.
fn link_staged(from: &Path, to: &Path) -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = u64::from(std::process::id()) << 32 | u64::from(next);
        let staged = staged_path(to, number);
        match link(from, &staged) {
            Ok(()) => return Ok(staged),
            Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Renames an object. An object that has the new name is replaced.
pub(crate) fn rename(from: &Path, to: &Path, sync: Sync) -> Result<(), Error> {
    let rename = || fs::rename(from, to).map_err(Error::io("rename", to));
    with_parents(from, to, sync, rename)?;
    if sync == Sync::Yes {
        durable::sync_parent(to)?;
        if from.parent() != to.parent() {
            durable::sync_parent(from)?;
        }
    }
    Ok(())
}

/// Makes a change from one path to another. If the directory of the latter is missing, it is created.
fn with_parents<T>(
    from: &Path,
    to: &Path,
    sync: Sync,
    change: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        match change() {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                if !from.exists() {
                    let path = from.to_owned();
                    return Err(Error::NotFound { path, source });
                }
                durable::create_parents(to, sync)?;
            }
            result => return result,
        }
    }
}

/// Removes an object, and then the empty directories above it, up to `clean_up_to`.
pub(crate) fn delete(path: PathBuf, clean_up_to: Option<&Path>, sync: Sync) -> Result<(), Error> {
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotFound { path, source });
        }
        Err(source) => return Err(Error::io("unlink", &path)(source)),
    }
    if sync == Sync::Yes {
        durable::sync_parent(&path)?;
    }
    if let Some(root) = clean_up_to {
        let mut above = path.ancestors().skip(1);
        while let Some(dir) = above.next()
            && dir != root
            && fs::remove_dir(dir).is_ok()
        {}
    }
    Ok(())
}
