//! Entries of a tree, and batches of them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use super::place::Place;
use crate::error::Result;
use crate::metadata::{FileType, Metadata};
use crate::scan::{self, Batch};

/// Entries of one directory that were handed out together.
#[derive(Clone, Debug)]
pub struct Found {
    place: Arc<Place>,
    batch: Batch,
}

impl Found {
    pub(super) fn new(place: Arc<Place>, batch: Batch) -> Found {
        Found { place, batch }
    }

    /// The directory that they are in.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The entries.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The entry at this place of the batch, if there are so many.
    pub fn get(&self, at: usize) -> Option<DirEntry> {
        let place = self.place.clone();
        self.batch.get(at).map(|entry| DirEntry { place, entry })
    }
}

/// One name in a tree.
#[derive(Clone, Debug)]
pub struct DirEntry {
    place: Arc<Place>,
    entry: scan::DirEntry,
}

impl DirEntry {
    /// The directory that it is in.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The entry as a scan of its directory returns it.
    pub fn entry(&self) -> &scan::DirEntry {
        &self.entry
    }

    /// The name of the file.
    pub fn file_name(&self) -> &OsStr {
        self.entry.file_name()
    }

    /// The type of the file: see [`scan::DirEntry::file_type`].
    pub fn file_type(&self) -> FileType {
        self.entry.file_type()
    }

    /// The metadata of the file: see [`scan::DirEntry::metadata`].
    ///
    /// # Errors
    /// As there.
    pub fn metadata(&self) -> Option<Result<&Metadata>> {
        self.entry.metadata()
    }

    /// Its path: that of its directory, and its name.
    pub fn path(&self) -> PathBuf {
        self.place.path().join(self.entry.file_name())
    }

    /// How many directories it is below the root: 1 for what is in the root itself.
    pub fn depth(&self) -> usize {
        self.place.depth() + 1
    }
}
