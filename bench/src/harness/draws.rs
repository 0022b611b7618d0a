//! The mix of reads with which preadv2's RWF_NONBLOCK was proposed (Tanski, 2015): a database whose
//! popular data is cached, beside reads that are not cached.
//!
//! | class | file | drawn |
//! |---|---|---|
//! | `f1` | medium, mostly cached | zipf: the block of rank r in proportion to r^-theta |
//! | `f2` | large, mostly not cached | uniform; no block twice in a turn |
//! | `f3` | large | sequential, with the kernel's readahead |
//!
//! The blocks that are cached before a turn and the blocks that are drawn in it follow from the
//! same seed. The bench thus knows which blocks are cached: the blocks that it has read before the
//! turn, and the blocks that the turn has read.

use serde::Serialize;

use super::place::Place;
use nowait_cli::scramble::{Random, mix, permute};

/// The classes, in the order of their files.
pub const CLASSES: [&str; 3] = ["f1", "f2", "f3"];
pub const F1: usize = 0;
pub const F2: usize = 1;
pub const F3: usize = 2;

/// The parameters of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mix {
    /// The weights with which the classes are drawn; at least one is not 0.
    pub weights: [u32; 3],
    /// The exponent of the popularity of f1's blocks.
    pub theta: f64,
    /// The share of f1's draws, 0 to 1, whose blocks are cached when a turn begins.
    pub f1_hits: f64,
    /// The share of f2's blocks, 0 to 1, that are cached when a turn begins.
    pub f2_hits: f64,
}

impl Mix {
    /// The blocks of each file that are cached when a turn with this seed begins.
    pub fn warm(&self, blocks: &[u64], seed: u64) -> [Vec<u64>; 3] {
        let popular = popularity(blocks[F1], self.theta);
        let ranks = popular.partition_point(|&share| share < self.f1_hits) as u64 + 1;
        let ranks = if self.f1_hits > 0.0 { ranks } else { 0 };
        let f1 = (0..ranks.min(blocks[F1])).map(|rank| f1_block(rank, blocks[F1], seed));
        let f2 = (0..blocks[F2]).filter(|&block| {
            let drawn = mix(seed ^ mix(block)) as f64 / u64::MAX as f64;
            drawn < self.f2_hits
        });
        [f1.collect(), f2.collect(), Vec::new()]
    }
}

/// The share of f1's draws that go to the blocks up to each rank.
fn popularity(blocks: u64, theta: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut shares: Vec<f64> = (1..=blocks)
        .map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        })
        .collect();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

/// The block of this rank of popularity: a random one.
fn f1_block(rank: u64, blocks: u64, seed: u64) -> u64 {
    permute(rank, blocks, mix(!seed))
}

/// The draws of one turn.
#[derive(Clone, Debug)]
pub struct Draws {
    weights: [u32; 3],
    blocks: [u64; 3],
    block: u64,
    popular: Vec<f64>,
    seed: u64,
    random: Random,
    /// The numbers of blocks of f2 and f3 that were drawn.
    f2_drawn: u64,
    f3_drawn: u64,
    /// For each block of f1 and f2, true if it is cached.
    book: [Vec<bool>; 2],
}

impl Draws {
    /// The draws of files with this many blocks of `block` bytes.
    pub fn new(of: Mix, blocks: [u64; 3], block: u64, seed: u64) -> Draws {
        let mut book = [F1, F2].map(|class| vec![false; blocks[class] as usize]);
        let warm = of.warm(&blocks, seed);
        for (known, warm) in book.iter_mut().zip(warm) {
            for block in warm {
                known[block as usize] = true;
            }
        }
        Draws {
            weights: of.weights,
            blocks,
            block,
            popular: popularity(blocks[F1], of.theta),
            seed,
            random: Random::new(seed),
            f2_drawn: 0,
            f3_drawn: 0,
            book,
        }
    }

    fn random(&mut self) -> u64 {
        mix(self.random.number())
    }

    /// The next place; `None` if all blocks of f2 or f3 were read.
    pub fn place(&mut self) -> Option<Place> {
        let total: u64 = self.weights.iter().map(|&w| u64::from(w)).sum();
        let at = self.random() % total;
        let (f1, f2) = (u64::from(self.weights[F1]), u64::from(self.weights[F2]));
        let (file, block) = if at < f1 {
            let share = self.random() as f64 / u64::MAX as f64;
            let rank = self.popular.partition_point(|&upto| upto < share) as u64;
            let rank = rank.min(self.blocks[F1] - 1);
            (F1, f1_block(rank, self.blocks[F1], self.seed))
        } else if at < f1 + f2 {
            if self.f2_drawn == self.blocks[F2] {
                return None;
            }
            self.f2_drawn += 1;
            let block = permute(self.f2_drawn - 1, self.blocks[F2], mix(self.seed));
            (F2, block)
        } else {
            if self.f3_drawn == self.blocks[F3] {
                return None;
            }
            self.f3_drawn += 1;
            (F3, self.f3_drawn - 1)
        };
        Some(Place {
            file,
            offset: block * self.block,
            booked: self.book.get(file).map(|known| known[block as usize]),
        })
    }

    /// Records that a block was read, and is cached now.
    pub fn landed(&mut self, place: Place) {
        if let Some(known) = self.book.get_mut(place.file) {
            known[(place.offset / self.block) as usize] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MIX: Mix = Mix {
        weights: [73, 18, 9],
        theta: 1.1,
        f1_hits: 0.9,
        f2_hits: 0.02,
    };
    const BLOCKS: [u64; 3] = [4096, 32768, 16384];

    #[test]
    fn classes_are_drawn_by_their_weights_and_cached_blocks_are_known() {
        let mut draws = Draws::new(MIX, BLOCKS, 4096, 7);
        let (mut count, mut booked) = ([0u32; 3], [0u32; 3]);
        let (mut f2, mut last) = (HashSet::new(), None);
        for _ in 0..100_000 {
            let place = draws.place().unwrap();
            count[place.file] += 1;
            booked[place.file] += u32::from(place.booked == Some(true));
            match place.file {
                F1 => assert!(place.offset / 4096 < BLOCKS[F1]),
                F2 => assert!(f2.insert(place.offset), "a block of f2 comes once"),
                _ => {
                    let follows = last.map_or(0, |offset: u64| offset + 4096);
                    assert_eq!((place.offset, place.booked), (follows, None));
                    last = Some(place.offset);
                }
            }
        }
        for (count, want) in count.iter().zip(MIX.weights) {
            assert!(count.abs_diff(want * 1000) < 600, "{count} {want}");
        }
        let share = |class: usize| f64::from(booked[class]) / f64::from(count[class]);
        assert!((share(F1) - 0.9).abs() < 0.01, "{}", share(F1));
        assert!((share(F2) - 0.02).abs() < 0.005, "{}", share(F2));
    }

    #[test]
    fn blocks_that_were_read_are_known_and_f3_ends() {
        let only = |weights| Draws::new(Mix { weights, ..MIX }, [2, 2, 3], 512, 1);
        let mut f1 = only([1, 0, 0]);
        let mut last = None;
        for _ in 0..100 {
            let place = f1.place().unwrap();
            f1.landed(place);
            last = place.booked;
        }
        assert_eq!(last, Some(true));
        let mut f3 = only([0, 0, 1]);
        assert_eq!((0..9).map_while(|_| f3.place()).count(), 3);
    }

    #[test]
    fn nothing_and_everything_can_be_warm() {
        let warm = |hits| {
            let all = Mix {
                f1_hits: hits,
                f2_hits: hits,
                ..MIX
            };
            all.warm(&BLOCKS, 3).map(|blocks| blocks.len() as u64)
        };
        assert_eq!(warm(0.0), [0, 0, 0]);
        assert_eq!(warm(1.0), [BLOCKS[F1], BLOCKS[F2], 0]);
    }
}
