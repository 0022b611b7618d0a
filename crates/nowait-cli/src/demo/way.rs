//! The two ways in which blocks are read: cached and cold.

/// The bytes of one read.
pub const BLOCK: u64 = 4096;
/// The number of cold reads in flight, for contenders that can have several.
const IN_FLIGHT: usize = 32;

/// The state of the page cache, and how reads follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All blocks are cached. They are read one at a time.
    Cached,
    /// No block is cached. Each is read at most once.
    Cold,
}

impl Way {
    /// The number of reads at a time, for contenders that can have several.
    pub fn in_flight(self) -> usize {
        match self {
            Way::Cached => 1,
            Way::Cold => IN_FLIGHT,
        }
    }

    /// One read in this many is timed. The clock would take a part of the time of a cached read.
    pub fn timed(self) -> u64 {
        match self {
            Way::Cached => 16,
            Way::Cold => 1,
        }
    }
}
