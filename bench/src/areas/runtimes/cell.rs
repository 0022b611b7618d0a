//! The kinds of work that are measured, each with a name.

use serde::{Deserialize, Serialize};

/// One kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub name: String,
    pub work: Work,
    /// Bytes of one read or write.
    pub block: u64,
    /// The number of tasks, which have one read or write in flight each.
    pub tasks: u64,
}

/// The operations of the tasks, and the state of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Random reads of cached blocks.
    Cached,
    /// Random reads of uncached blocks, each once.
    Cold,
    /// Random reads of blocks, each once, of which this percentage is cached.
    Mixed(u64),
    /// Sequential writes, at the file's position if the peer has one.
    Sequential,
    /// Writes at random places. A task waits for each write before it makes the next one.
    Positional,
}

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
const M1: u64 = 1 << 20;
/// The number of misses in a turn of mixed reads.
const MISSES: u64 = 3000;
/// The most reads of a turn of mixed reads.
const READS: u64 = 12_000;
/// The part of the file that cached reads use. It stays in the page cache.
const CACHED: u64 = 256 << 20;
/// The part of the file that is written: so small that the kernel does not begin to write it back.
const WRITTEN: u64 = 64 << 20;

impl Cell {
    /// All cells.
    pub fn all() -> Vec<Cell> {
        let mut all = Vec::new();
        for block in [K4, K64, M1] {
            for tasks in [1, 32, 1024] {
                all.push(Cell::new(Work::Cached, block, tasks));
            }
        }
        for tasks in [1, 32, 256] {
            all.push(Cell::new(Work::Cold, K4, tasks));
        }
        for rate in [0, 25, 50, 75, 90, 99, 100] {
            all.push(Cell::new(Work::Mixed(rate), K4, 32));
        }
        for block in [K4, K64] {
            all.push(Cell::new(Work::Sequential, block, 1));
            all.push(Cell::new(Work::Positional, block, 1));
            all.push(Cell::new(Work::Positional, block, 32));
        }
        all
    }

    fn new(work: Work, block: u64, tasks: u64) -> Cell {
        let size = match block {
            M1 => "1M".to_owned(),
            _ => format!("{}K", block >> 10),
        };
        let name = match work {
            Work::Cached => format!("cached-{size}-{tasks}"),
            Work::Cold => format!("cold-{size}-{tasks}"),
            Work::Mixed(rate) => format!("mixed-{rate}"),
            Work::Sequential => format!("write-sequential-{size}-{tasks}"),
            Work::Positional => format!("write-positional-{size}-{tasks}"),
        };
        Cell {
            name,
            work,
            block,
            tasks,
        }
    }

    pub fn is_write(&self) -> bool {
        matches!(self.work, Work::Sequential | Work::Positional)
    }

    /// The bytes at the start of a file of this size that the cell uses.
    pub fn span(&self, size: u64) -> u64 {
        match self.work {
            Work::Cold | Work::Mixed(_) => size,
            Work::Cached => size.min(CACHED),
            Work::Sequential | Work::Positional => size.min(WRITTEN),
        }
    }

    /// The blocks at the start of a file of this size that the cell uses.
    pub fn blocks(&self, size: u64) -> u64 {
        self.span(size) / self.block
    }

    /// The number of reads of all tasks together; `None` if a turn takes a fixed time.
    pub fn reads(&self, size: u64) -> Option<u64> {
        let Work::Mixed(rate) = self.work else {
            return None;
        };
        let most = self.blocks(size) - self.lead() * self.tasks;
        Some((100 * MISSES / (100 - rate).max(1)).min(READS).min(most))
    }

    /// The number of operations of each task that are not measured: they start threads and touch
    /// the buffers.
    pub fn lead(&self) -> u64 {
        match (self.work, self.block) {
            (Work::Cached, K4) if self.tasks == 1 => 2000,
            (Work::Cached, _) => (2000 / self.tasks).clamp(2, 50),
            _ => 4,
        }
    }

    /// One operation in this many is timed: one in eight if reading the clock would take a
    /// noticeable part of the time.
    pub fn timed(&self) -> u64 {
        match (self.work, self.block, self.tasks) {
            (Work::Cached | Work::Sequential | Work::Positional, K4, ..=32) => 8,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = Cell::all().into_iter().map(|cell| cell.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_small_file_has_room_for_all() {
        for cell in Cell::all() {
            let blocks = cell.blocks(4 << 20);
            assert!(blocks >= 1, "{}", cell.name);
            if let Some(reads) = cell.reads(4 << 20) {
                assert!(reads >= 100, "{}", cell.name);
                assert!(reads + cell.lead() * cell.tasks <= blocks, "{}", cell.name);
            }
        }
    }
}
