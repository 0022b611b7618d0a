//! The places of a turn's operations: a random order of all blocks, the same for every peer.

use nowait_cli::scramble::{mix, permute};

/// All blocks of a file, each once, in an order that a seed decides.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    blocks: u64,
    seed: u64,
}

impl Places {
    pub fn new(blocks: u64, seed: u64) -> Places {
        Places {
            blocks: blocks.max(1),
            seed: mix(seed),
        }
    }

    /// The block of the `i`th operation. After the last block it begins again.
    pub fn block(&self, i: u64) -> u64 {
        permute(i % self.blocks, self.blocks, self.seed)
    }

    /// Returns true if the `i`th operation is to find its block in the page cache. Of each hundred
    /// operations exactly `percent` do.
    pub fn is_hit(&self, i: u64, percent: u64) -> bool {
        permute(i % 100, 100, mix(self.seed ^ (i / 100))) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_once_and_in_no_order() {
        for blocks in [1, 2, 3, 100, 1024, 5000] {
            let places = Places::new(blocks, 7);
            let mut all: Vec<u64> = (0..blocks).map(|i| places.block(i)).collect();
            assert_eq!(places.block(blocks), all[0]);
            if blocks >= 100 {
                let rising = all.windows(2).filter(|w| w[0] + 1 == w[1]).count() as u64;
                assert!(rising < blocks / 10, "{blocks}: {rising}");
                assert_ne!(all[0], Places::new(blocks, 8).block(0));
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..blocks), "{blocks}");
        }
    }

    #[test]
    fn of_a_hundred_so_many_hit() {
        let places = Places::new(1000, 3);
        for percent in [0, 25, 99, 100] {
            for hundred in 0..5 {
                let range = hundred * 100..(hundred + 1) * 100;
                let hits = range.filter(|&i| places.is_hit(i, percent)).count() as u64;
                assert_eq!(hits, percent);
            }
        }
    }
}
