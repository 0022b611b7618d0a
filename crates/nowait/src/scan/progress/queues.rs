//! The entries of a scan between its steps: listed, being queried, and not yet returned.

use std::collections::{BTreeMap, VecDeque};

use crate::error::Error;
use crate::scan::entry::EntryTable;

/// Entries that are listed and not yet sorted into batches.
#[derive(Debug, Default)]
pub(super) struct Unsorted {
    pub(super) rows: Vec<EntryTable>,
    pub(super) entries: usize,
    /// True while a worker sorts.
    pub(super) sorting: bool,
}

/// Batches whose metadata is being queried.
#[derive(Debug, Default)]
pub(super) struct Queries {
    pub(super) waiting: VecDeque<NumberedBatch>,
    /// Batches whose first entry has been queried, so that the block of the others is cached.
    pub(super) prefetched: VecDeque<NumberedBatch>,
    /// The number of workers that query.
    pub(super) running: usize,
    /// True while a worker queries the rest of a prefetched batch.
    pub(super) following: bool,
    /// The number of the next entry to be put into a batch.
    pub(super) next: u64,
}

impl Queries {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.prefetched.is_empty() && self.running == 0
    }

    /// Returns true if a worker may query the rest of a prefetched batch.
    pub(super) fn may_follow(&self) -> bool {
        !self.following && !self.prefetched.is_empty()
    }

    /// The next batch to query, and the part of it.
    pub(super) fn pop(&mut self, prefetch: bool) -> Option<(NumberedBatch, BatchPart)> {
        let (batch, part) = if self.may_follow() {
            (self.prefetched.pop_front()?, BatchPart::Rest)
        } else if prefetch {
            (self.waiting.pop_front()?, BatchPart::First)
        } else {
            (self.waiting.pop_front()?, BatchPart::Whole)
        };
        self.running += 1;
        self.following |= part == BatchPart::Rest;
        Some((batch, part))
    }
}

/// The entries of a scan by name.
#[derive(Debug, Default)]
pub(super) struct ByName {
    pub(super) rows: Vec<EntryTable>,
    pub(super) sorting: bool,
    pub(super) sorted: bool,
}

/// Results that have not been returned.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Complete batches, by the number of their first entry.
    pub(super) ready: BTreeMap<u64, EntryTable>,
    pub(super) errors: VecDeque<Error>,
    /// True if batches are returned in the order of their numbers.
    pub(super) in_order: bool,
    /// The number of the next entry to be returned.
    pub(super) next: u64,
}

impl Output {
    pub(super) fn has_batch(&self) -> bool {
        let first = self.ready.first_key_value();
        first.is_some_and(|(number, _)| !self.in_order || *number == self.next)
    }

    pub(super) fn pop_batch(&mut self) -> Option<EntryTable> {
        if !self.has_batch() {
            return None;
        }
        let (_, rows) = self.ready.pop_first()?;
        self.next += rows.len() as u64;
        Some(rows)
    }
}

/// Entries and bytes that are listed and not yet returned.
#[derive(Debug)]
pub(super) struct Buffered {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    pub(super) has_metadata: bool,
}

impl Buffered {
    pub(super) fn add(&mut self, rows: &EntryTable) {
        self.entries += rows.len();
        self.bytes += rows.bytes(self.has_metadata);
    }

    pub(super) fn remove(&mut self, rows: &EntryTable) {
        self.entries = self.entries.saturating_sub(rows.len());
        self.bytes = self.bytes.saturating_sub(rows.bytes(self.has_metadata));
    }

    /// Returns true if so many entries with names of ordinary length are within the limits of
    /// entries and bytes.
    pub(super) fn has_room(&self, entries: usize, most: (usize, usize)) -> bool {
        let bytes = entries * EntryTable::bytes_of_an_entry(self.has_metadata);
        self.entries + entries <= most.0 && self.bytes + bytes <= most.1
    }
}

/// A batch and the number of its first entry, in the order of return.
#[derive(Debug)]
pub(crate) struct NumberedBatch {
    pub(super) number: u64,
    pub(super) rows: EntryTable,
}

/// The part of a batch that is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchPart {
    Whole,
    /// Its first entry, whose query loads the block.
    First,
    /// All other entries, after the first.
    Rest,
}
