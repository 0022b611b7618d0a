//! The places of reads: the same random ones for every contender of a round.
//!
//! [`Order::Once`] visits every block of the files once, in a random order, before any comes a
//! second time, as fio's random map does: in a cold file no read is served by an earlier one,
//! however fast the contender is. [`Order::Rising`] does so from the first block to the last.
//! [`Order::Any`] draws blocks independently, for a cache that has them all. [`Order::Mix`] draws
//! from three files, each in its own way.

use super::draws::{Draws, Mix};
use super::place::Place;
use nowait_cli::scramble::{Random, mix, permute};

/// How the places are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Each block once.
    Once,
    /// Each block once, from the first one on.
    Rising,
    /// Any block at any time.
    Any,
    /// Three classes of reads, each of a file of its own.
    Mix(Mix),
}

impl Order {
    /// True if no block is read again before all were read.
    pub fn once(self) -> bool {
        matches!(self, Order::Once | Order::Rising)
    }
}

/// A stream of places; only a mix's may end.
#[derive(Clone, Debug)]
pub struct Offsets {
    way: Way,
    block: u64,
    /// Blocks of each file, where all have as many.
    per_file: u64,
    /// Blocks of all files.
    blocks: u64,
}

#[derive(Clone, Debug)]
enum Way {
    Once { seed: u64, next: u64, step: u64 },
    Rising { next: u64, step: u64 },
    Any(Random),
    Mix(Box<Draws>),
}

impl Offsets {
    /// Places in files that each have so many blocks of `block` bytes. Of `lanes` threads with one
    /// seed this is number `lane`; no two get the same block in one pass. A mix has one lane.
    pub fn new(
        order: Order,
        (files, block): (&[u64], u64),
        seed: u64,
        (lane, lanes): (usize, usize),
    ) -> Offsets {
        let way = match (order, files) {
            (Order::Mix(mix), &[f1, f2, f3]) => {
                Way::Mix(Box::new(Draws::new(mix, [f1, f2, f3], block, seed)))
            }
            (Order::Once, _) => Way::Once {
                seed,
                next: lane as u64,
                step: lanes as u64,
            },
            (Order::Rising, _) => Way::Rising {
                next: lane as u64,
                step: lanes as u64,
            },
            (Order::Any | Order::Mix(_), _) => {
                Way::Any(Random::new(seed.wrapping_add((lane as u64) << 32)))
            }
        };
        Offsets {
            way,
            block,
            per_file: files.iter().copied().min().unwrap_or(0),
            blocks: files.iter().sum(),
        }
    }

    /// The next place.
    #[inline]
    pub fn place(&mut self) -> Option<Place> {
        let index = match &mut self.way {
            Way::Any(random) => random.below(self.blocks),
            Way::Rising { next, step } => {
                let at = *next % self.blocks;
                *next += *step;
                at
            }
            Way::Once { seed, next, step } => {
                let pass = *next / self.blocks;
                let at = *next % self.blocks;
                *next += *step;
                permute(at, self.blocks, mix(seed.wrapping_add(pass)))
            }
            Way::Mix(draws) => return draws.place(),
        };
        let (file, block) = if index < self.per_file {
            (0, index)
        } else {
            ((index / self.per_file) as usize, index % self.per_file)
        };
        Some(Place {
            file,
            offset: block * self.block,
            booked: None,
        })
    }

    /// Records that a place was read.
    pub fn landed(&mut self, place: Place) {
        if let Way::Mix(draws) = &mut self.way {
            draws.landed(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_block_once_also_over_files_and_lanes() {
        let mut seen = HashSet::new();
        for lane in 0..2 {
            let mut offsets = Offsets::new(Order::Once, (&[100; 3], 512), 7, (lane, 2));
            for _ in 0..150 {
                let place = offsets.place().unwrap();
                assert!(
                    place.file < 3 && place.offset < 51_200 && place.offset.is_multiple_of(512)
                );
                assert!(seen.insert((place.file, place.offset)));
            }
        }
        assert_eq!(seen.len(), 300);
    }

    #[test]
    fn rising_places_follow_each_other() {
        let mut offsets = Offsets::new(Order::Rising, (&[3, 3], 512), 7, (0, 1));
        let places: Vec<_> = (0..7).filter_map(|_| offsets.place()).collect();
        let at = |i: usize| (places[i].file, places[i].offset);
        assert_eq!(
            [at(0), at(1), at(3), at(6)],
            [(0, 0), (0, 512), (1, 0), (0, 0)]
        );
    }

    #[test]
    fn a_seed_is_a_sequence() {
        for order in [Order::Once, Order::Any] {
            let draw = |seed, lane| {
                let mut offsets = Offsets::new(order, (&[5000; 2], 4096), seed, (lane, 2));
                (0..50)
                    .map(|_| offsets.place().unwrap().offset)
                    .collect::<Vec<_>>()
            };
            assert_eq!(draw(1, 0), draw(1, 0));
            assert_ne!(draw(1, 0), draw(2, 0));
            assert_ne!(draw(1, 0), draw(1, 1));
            assert!(draw(1, 0).windows(2).any(|w| w[0] > w[1]));
        }
    }
}
