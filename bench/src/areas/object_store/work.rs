//! The kinds of work.

use clap::ValueEnum;

/// The work of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// One task reads cached ranges of 4 KiB
    #[value(name = "warm-4K-1")]
    WarmOne,
    /// 32 tasks read cached ranges of 4 KiB
    #[value(name = "warm-4K-32")]
    WarmMany,
    /// 32 tasks read ranges of 64 KiB that are not cached
    #[value(name = "cold-64K-32")]
    Cold,
    /// One task reads 100 cached ranges of 8 KiB at a time
    #[value(name = "ranges-8K-100")]
    Ranges,
    /// 1,000 tasks read cached ranges of 20 KiB, in a runtime of 4 threads, as a server of map tiles
    #[value(name = "tiles-20K-1000")]
    Tiles,
    /// The same with ranges that are not cached
    #[value(name = "cold-tiles-20K-1000")]
    ColdTiles,
    /// One task lists objects whose metadata is not cached
    #[value(name = "list")]
    List,
}

impl Work {
    /// The number of tasks.
    pub fn tasks(self) -> u64 {
        match self {
            Work::WarmOne | Work::Ranges | Work::List => 1,
            Work::WarmMany | Work::Cold => 32,
            Work::Tiles | Work::ColdTiles => 1_000,
        }
    }

    /// The length of a range in bytes; 0 for a list.
    pub fn block(self) -> u64 {
        match self {
            Work::WarmOne | Work::WarmMany => 4 << 10,
            Work::Cold => 64 << 10,
            Work::Ranges => 8 << 10,
            Work::Tiles | Work::ColdTiles => 20 << 10,
            Work::List => 0,
        }
    }

    /// The number of ranges of an operation.
    pub fn ranges(self) -> u64 {
        match self {
            Work::Ranges => 100,
            _ => 1,
        }
    }

    /// Returns true if nothing is cached before a turn.
    pub fn is_cold(self) -> bool {
        matches!(self, Work::Cold | Work::ColdTiles | Work::List)
    }

    /// The threads of the runtime.
    pub fn threads(self) -> usize {
        match self {
            Work::Tiles | Work::ColdTiles => 4,
            _ => 2,
        }
    }
}
