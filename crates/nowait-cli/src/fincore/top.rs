//! Selects the files with the most cached memory.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::row::Row;

/// The rows with the most cached memory, at most `most` of them.
pub struct Top {
    max: usize,
    heap: BinaryHeap<Reverse<Ranked>>,
}

impl Top {
    /// An empty selection of at most `most` rows.
    pub fn new(max: usize) -> Top {
        Top {
            max,
            heap: BinaryHeap::new(),
        }
    }

    /// Keeps a row if it is among the first. Rows with another name of a counted file, and rows
    /// without cached memory, are never kept.
    pub fn consider(&mut self, row: Row) {
        let row = Ranked(row);
        if !row.0.counted || row.0.examined.cached_bytes() == 0 {
            return;
        }
        if self.heap.len() < self.max {
            self.heap.push(Reverse(row));
        } else if let Some(mut least) = self.heap.peek_mut()
            && row > least.0
        {
            *least = Reverse(row);
        }
    }

    /// The kept rows, in descending order of cached memory.
    pub fn into_rows(self) -> impl Iterator<Item = Row> {
        // Ascending order of reversed rows is descending order of rows.
        self.heap.into_sorted_vec().into_iter().map(|row| row.0.0)
    }
}

/// A row, ordered by its cached memory. Among equal rows the path that sorts first is the greater
/// one, so that the result does not depend on the order of the files.
struct Ranked(Row);

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        let by_memory = a.examined.cached_bytes().cmp(&b.examined.cached_bytes());
        by_memory.then_with(|| b.path.cmp(&a.path))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}
