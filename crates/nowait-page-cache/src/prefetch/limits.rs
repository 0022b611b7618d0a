//! The limits of a run: memory, rate, and operations in flight.

use super::budget::Allowed;

/// The largest depth.
const MAX_DEPTH: u32 = 512;

/// The limits of a [`Prefetcher`](super::Prefetcher).
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of opens and reads in flight. Each read uses up to 256 KiB of memory.
    pub depth: u32,
    /// The maximum number of bytes that are read per second.
    pub rate: Option<u64>,
    /// The number of bytes that may be read.
    pub budget: Allowed,
    /// True if nothing is read, and the bytes that would be read are counted.
    pub dry_run: bool,
}

impl Default for Limits {
    /// 64 operations in flight, 75 % of the available memory, and no limit of the rate.
    fn default() -> Limits {
        Limits {
            depth: 64,
            rate: None,
            budget: Allowed::Percent(75),
            dry_run: false,
        }
    }
}

impl Limits {
    /// The depth, within 1 and [`MAX_DEPTH`].
    pub(super) fn operations(&self) -> usize {
        self.depth.clamp(1, MAX_DEPTH) as usize
    }
}
