//! What is measured: the kinds of work, each with a name.

use serde::{Deserialize, Serialize};

/// One kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub name: String,
    pub work: Work,
    /// How much one read or write moves, in bytes.
    pub block: u64,
    /// How many tasks there are; each has one read or write in flight.
    pub tasks: u64,
}

/// What tasks do, and what the page cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Random reads of what is in the page cache.
    Cached,
    /// Random reads, each block once, of what is not.
    Cold,
    /// Random reads, each block once, of which so many per cent are in the page cache.
    Mixed(u64),
    /// Writes one behind the other, through the file's position where a peer has one.
    Sequential,
    /// Writes at random places, each done before the next one of its task.
    Positional,
}

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
const M1: u64 = 1 << 20;
/// How many misses a turn of mixed reads has, unless that makes more reads than this.
const MISSES: u64 = 3000;
const READS: u64 = 12_000;
/// How much of the file cached reads use: it stays in the page cache.
const CACHED: u64 = 256 << 20;
/// How much writes go to: little enough that the kernel does not begin to write back on its own.
const WRITTEN: u64 = 64 << 20;

impl Cell {
    /// All of them.
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

    /// How much of a file of this size it uses, from its start on.
    pub fn span(&self, size: u64) -> u64 {
        match self.work {
            Work::Cold | Work::Mixed(_) => size,
            Work::Cached => size.min(CACHED),
            Work::Sequential | Work::Positional => size.min(WRITTEN),
        }
    }

    /// How many blocks that is.
    pub fn blocks(&self, size: u64) -> u64 {
        self.span(size) / self.block
    }

    /// How many reads all tasks make together, where that is not a matter of time.
    pub fn reads(&self, size: u64) -> Option<u64> {
        let Work::Mixed(rate) = self.work else {
            return None;
        };
        let most = self.blocks(size) - self.lead() * self.tasks;
        Some((100 * MISSES / (100 - rate).max(1)).min(READS).min(most))
    }

    /// How many reads or writes each task makes before anything is measured: threads are started and
    /// buffers touched by them.
    pub fn lead(&self) -> u64 {
        match (self.work, self.block) {
            (Work::Cached, K4) if self.tasks == 1 => 2000,
            (Work::Cached, _) => (2000 / self.tasks).clamp(2, 50),
            _ => 4,
        }
    }

    /// One in how many operations is timed: where a look at the clock would be a share of it, one in
    /// eight.
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
