//! Changes of directories, which are durable if they are synced.
//!
//! All functions block.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::Error;

/// Decides if a change is on the device when its function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    No,
    Yes,
}

/// Creates the directory of the file at `path`, and all above it.
pub(crate) fn create_parents(path: &Path, sync: Sync) -> Result<(), Error> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    let missing = parent.ancestors().take_while(|dir| !dir.exists());
    let created: Vec<&Path> = match sync {
        Sync::No => Vec::new(),
        Sync::Yes => missing.collect(),
    };
    fs::create_dir_all(parent).map_err(Error::io("mkdir", parent))?;
    for dir in created {
        sync_parent(dir)?;
    }
    Ok(())
}

/// Writes the directory of the file at `path` to the device.
pub(crate) fn sync_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    let sync = || File::open(parent)?.sync_all();
    sync().map_err(Error::io("fsync", parent))
}

/// Writes an open file to the device.
pub(crate) fn sync_file(file: &File, path: &Path) -> Result<(), Error> {
    file.sync_all().map_err(Error::io("fsync", path))
}

/// Closes a file. Some filesystems report only then that data could not be written.
pub(crate) fn close(file: File, path: &Path) -> Result<(), Error> {
    nix::unistd::close(file)
        .map_err(io::Error::from)
        .map_err(Error::io("close", path))
}
