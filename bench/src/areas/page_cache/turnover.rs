//! A file whose hit rate changes: the number of reads after which the decisions of its history
//! follow.
//!
//! Many reads of one open file are in flight, first of blocks that are cached, then of blocks that
//! are not, then of cached ones again. Before each read the file is asked for its plan. A sliding
//! window over these plans shows when the file decides like the better of always and never.

use std::collections::VecDeque;

use futures_util::stream::{self, StreamExt};
use nowait::read::Plan;
use serde::Serialize;

use crate::contenders::future::Asked;
use crate::harness::cache::{evict, warm_blocks};
use crate::harness::files::{Files, advise_random};
use crate::harness::offsets::{Offsets, Order};
use nowait_cli::problem::Problem;

/// Decisions in the window.
const WINDOW: usize = 100;
/// The number of decisions in the window that must be the better one.
const ENOUGH: usize = 90;
/// The number of reads in each of the three phases.
const READS: u64 = 2_000;

/// The number of reads until the decisions followed; `None` if they did not within a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TurnOver {
    /// After the change from hits to misses.
    pub to_misses: Option<u64>,
    /// After the change from misses to hits.
    pub to_hits: Option<u64>,
    /// The number of reads in a phase.
    pub of: u64,
}

/// True if trying the page cache is better: for hits, and for misses.
#[derive(Clone, Copy, Debug)]
pub struct Better {
    pub at_hits: bool,
    pub at_misses: bool,
}

/// Changes the hit rate of an adaptive file twice. `None` if the file is too small.
pub fn measure(
    files: &Files,
    block: u64,
    (asked, depth): (Asked, usize),
    better: Better,
    seed: u64,
) -> Result<Option<TurnOver>, Problem> {
    let reads = READS.min(files.sizes[0] / block / 3);
    if reads < 5 * WINDOW as u64 {
        return Ok(None);
    }
    let mut offsets = Offsets::new(Order::Once, (&files.blocks(block), block), seed, (0, 1));
    let places: Vec<_> = (0..3 * reads).filter_map(|_| offsets.place()).collect();
    let open = files.open()?;
    evict(&open)?;
    let phase = |i: usize| i as u64 / reads;
    let cached = places.iter().zip(0..).filter(|&(_, i)| phase(i) != 1);
    let cached: Vec<u64> = cached.map(|(place, _)| place.offset / block).collect();
    warm_blocks(&open[0], &cached, block)?;

    let engine = asked.engine(depth)?;
    let file = nowait::OpenOptions::new()
        .read(true)
        .engine(&engine)
        .blocking_open(&files.paths[0])?;
    advise_random(&file)?;
    let mut tried = Vec::with_capacity(places.len());
    let submitted = stream::iter(&places).map(|place| {
        tried.push(matches!(
            file.plan(block as usize),
            Plan::CacheFirst | Plan::AskFirst
        ));
        file.read_at(Vec::with_capacity(block as usize), place.offset)
    });
    pollster::block_on(async {
        let mut done = submitted.buffer_unordered(depth);
        while let Some(completion) = done.next().await {
            completion.result?;
        }
        Ok::<(), Problem>(())
    })?;
    let reads = reads as usize;
    Ok(Some(TurnOver {
        to_misses: followed(&tried[reads..2 * reads], better.at_misses),
        to_hits: followed(&tried[2 * reads..], better.at_hits),
        of: reads as u64,
    }))
}

/// The number of decisions until the window has enough of the better one.
fn followed(tried: &[bool], better: bool) -> Option<u64> {
    let mut window = VecDeque::with_capacity(WINDOW);
    for (i, &tried) in tried.iter().enumerate() {
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(tried == better);
        let right = window.iter().filter(|right| **right).count();
        if window.len() == WINDOW && right >= ENOUGH {
            // The length of the window is not part of the delay.
            return Some((i + 1 - WINDOW) as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn following_begins_with_the_window_that_does() {
        let mut tried = vec![true; 300];
        assert_eq!(followed(&tried, true), Some(0));
        assert_eq!(followed(&tried, false), None);
        tried[200..].fill(false);
        // Ten decisions of the window may still be the other one.
        assert_eq!(followed(&tried, false), Some(190));
    }
}
