//! Entries of a tree, and batches of them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use super::place::Place;
use crate::error::Result;
use crate::metadata::{FileType, Metadata};
use crate::scan::{self, Batch};

/// Entries of one directory that were returned together.
#[derive(Clone, Debug)]
pub struct Found {
    place: Arc<Place>,
    batch: Batch,
}

impl Found {
    pub(super) fn new(place: Arc<Place>, batch: Batch) -> Found {
        Found { place, batch }
    }

    /// The directory of the entries.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The entries.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The entry at index `at` of the batch, if there is one.
    pub fn get(&self, at: usize) -> Option<DirEntry> {
        let place = self.place.clone();
        self.batch.get(at).map(|entry| DirEntry { place, entry })
    }
}

/// A name in a tree.
#[derive(Clone, Debug)]
pub struct DirEntry {
    place: Arc<Place>,
    entry: scan::DirEntry,
}

impl DirEntry {
    /// The directory of the entry.
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

    /// The file type; see [`scan::DirEntry::file_type`].
    pub fn file_type(&self) -> FileType {
        self.entry.file_type()
    }

    /// The metadata of the file; see [`scan::DirEntry::metadata`].
    ///
    /// # Errors
    /// As [`scan::DirEntry::metadata`].
    pub fn metadata(&self) -> Option<Result<&Metadata>> {
        self.entry.metadata()
    }

    /// The path: that of the directory, joined with the name.
    pub fn path(&self) -> PathBuf {
        self.place.path().join(self.entry.file_name())
    }

    /// The depth below the root: 1 for an entry of the root itself.
    pub fn depth(&self) -> usize {
        self.place.depth() + 1
    }
}
