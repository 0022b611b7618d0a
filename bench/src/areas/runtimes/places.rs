//! Where the operations of a turn go: a random order of all blocks, the same for every peer.

/// All numbers below a bound, each once, in an order that a seed decides.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    blocks: u64,
    /// Half the bits that numbers below the bound have, at least.
    half: u32,
    seed: u64,
}

impl Places {
    pub fn new(blocks: u64, seed: u64) -> Places {
        let blocks = blocks.max(1);
        let bits = 64 - (blocks - 1).leading_zeros();
        Places {
            blocks,
            half: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// The place of the `i`th operation; beyond the last block it begins again.
    pub fn block(&self, i: u64) -> u64 {
        // A Feistel network permutes the numbers of twice `half` bits; walking on from those beyond
        // the bound permutes the numbers below it.
        let mut at = i % self.blocks;
        loop {
            at = self.shuffled(at);
            if at < self.blocks {
                return at;
            }
        }
    }

    /// Whether the `i`th operation is to find its block in the page cache, where so many per cent are:
    /// of each hundred exactly so many.
    pub fn is_hit(&self, i: u64, percent: u64) -> bool {
        Places::new(100, mixed(self.seed ^ (i / 100))).block(i % 100) < percent
    }

    fn shuffled(&self, at: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (at >> self.half, at & mask);
        for round in 0..4 {
            let next = left ^ (mixed(right ^ (self.seed << 8) ^ (round << 60)) & mask);
            (left, right) = (right, next);
        }
        left << self.half | right
    }
}

/// A number from which nobody guesses the one it was made of: the finalizer of SplitMix64.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
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
