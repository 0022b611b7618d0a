//! The files with the most cached memory, of any number of files.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::row::Row;

/// Keeps so many rows and no more.
pub struct Top {
    most: usize,
    heap: BinaryHeap<Reverse<Ranked>>,
}

impl Top {
    /// For this many.
    pub fn new(most: usize) -> Top {
        Top {
            most,
            heap: BinaryHeap::new(),
        }
    }

    /// Keeps a file if it is among the first. A file's second name is not, nor one of which nothing
    /// is known to be cached.
    pub fn consider(&mut self, row: Row) {
        let row = Ranked(row);
        if !row.0.counted || row.0.looked.cached_bytes() == 0 {
            return;
        }
        if self.heap.len() < self.most {
            self.heap.push(Reverse(row));
        } else if let Some(mut least) = self.heap.peek_mut()
            && row > least.0
        {
            *least = Reverse(row);
        }
    }

    /// What was kept, the file with the most first.
    pub fn into_rows(self) -> impl Iterator<Item = Row> {
        // Ascending in what is reversed.
        self.heap.into_sorted_vec().into_iter().map(|row| row.0.0)
    }
}

/// A row in the order of cached memory; among equals the path that sorts first is the greater, so
/// that the answer does not depend on the order of files.
struct Ranked(Row);

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        let by_memory = a.looked.cached_bytes().cmp(&b.looked.cached_bytes());
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
