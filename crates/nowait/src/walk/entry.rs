//! Entries of a tree, and batches of them.

use std::path::PathBuf;
use std::sync::Arc;

use super::place::Place;
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
    pub fn get(&self, at: usize) -> Option<Entry> {
        let place = self.place.clone();
        self.batch.get(at).map(|entry| Entry { place, entry })
    }
}

/// One name in a tree.
#[derive(Clone, Debug)]
pub struct Entry {
    place: Arc<Place>,
    entry: scan::Entry,
}

impl Entry {
    /// The directory that it is in.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Its name, kind and metadata.
    pub fn entry(&self) -> &scan::Entry {
        &self.entry
    }

    /// Its path: that of its directory, and its name.
    pub fn path(&self) -> PathBuf {
        self.place.path().join(self.entry.name())
    }

    /// How many directories it is below the root: 1 for what is in the root itself.
    pub fn depth(&self) -> usize {
        self.place.depth() + 1
    }
}
