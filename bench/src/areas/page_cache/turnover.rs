//! A file whose hit rate turns over: after how many reads its history follows.
//!
//! One open file is read as a server would, many reads in flight: first blocks that are cached,
//! then blocks that are not, then again cached ones. Before each read the file is asked for its
//! plan; a sliding window over these decisions tells from when on it decides like the better way.

use std::collections::VecDeque;

use futures_util::stream::{self, StreamExt};
use nowait::read::Plan;
use serde::Serialize;

use crate::contenders::future::Asked;
use crate::harness::cache::{evict, warm_blocks};
use crate::harness::files::Files;
use crate::harness::offsets::{Offsets, Order};
use nowait_cli::problem::Problem;

/// Decisions in the window.
const WINDOW: usize = 100;
/// How many of them must be the better one.
const ENOUGH: usize = 90;
/// Reads before each turn and after the last one.
const READS: u64 = 2_000;

/// How many reads until the decisions followed; `None` if they did not within the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TurnOver {
    /// From hits to misses.
    pub to_misses: Option<u64>,
    /// And back.
    pub to_hits: Option<u64>,
    /// How many reads it had for each.
    pub of: u64,
}

/// True where trying the page cache is better: among hits, and among misses.
#[derive(Clone, Copy, Debug)]
pub struct Better {
    pub at_hits: bool,
    pub at_misses: bool,
}

/// Has an adaptive file turn over twice. `None` if the file is too small for it.
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
    crate::harness::settings::Advice::Random.give(&file)?;
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

/// After how many decisions the window first has enough of the better one.
fn followed(tried: &[bool], better: bool) -> Option<u64> {
    let mut window = VecDeque::with_capacity(WINDOW);
    for (i, &tried) in tried.iter().enumerate() {
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(tried == better);
        let right = window.iter().filter(|right| **right).count();
        if window.len() == WINDOW && right >= ENOUGH {
            // The window's own length is not a delay.
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
        // Ten of the window may still be the other way.
        assert_eq!(followed(&tried, false), Some(190));
    }
}
