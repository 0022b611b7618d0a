//! The turns under one pressure, and their results.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::harness::delay::Delay;
use nowait_cli::scramble::mix;
use nowait_cli::size::Size;

/// The order of the pages, and the advice on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// All pages in order, then from the start again; POSIX_FADV_NORMAL.
    Linear,
    /// Random pages; POSIX_FADV_RANDOM.
    Seeky,
}

/// The pages and the size of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub pattern: Pattern,
    /// Bytes of one read; at most a page.
    pub block: u64,
}

/// The parameters of questions that are followed by a read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    #[serde(flatten)]
    pub place: Place,
    /// True if a NOWAIT read of one byte touches the page before the delay.
    pub touch: bool,
    /// The time from the answer to the read.
    pub delay_us: Delay,
}

/// One way to read without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// fincore, and pread if it says yes.
    Ask,
    /// A NOWAIT read.
    Try,
    /// fincore, and a NOWAIT read if it says yes.
    Both,
}

/// The work of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// Questions with a delay.
    Race(Cell),
    /// The cost of a way to read.
    Cost(Place, Way),
    /// Strict reads by the library, which counts its own races.
    Strict,
}

/// The results of questions. A question whose answer is yes is followed by a read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    pub asked: u64,
    pub yes: u64,
    /// Reads and touches that missed after a yes.
    pub races: u64,
    /// The races that the touch found.
    pub at_touch: u64,
    /// The races in which the kernel was still reading the page when the answer was yes. `None` if
    /// mincore(2) is not reliable here.
    pub early: Option<u64>,
    /// The time from the answer to the start of the read (median).
    pub waited_us: Option<f64>,
    pub cost_ns: Costs,
}

/// The times of questions and reads (medians).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Questions whose answer was yes, and no.
    pub ask_yes: Option<f64>,
    pub ask_no: Option<f64>,
    /// Complete reads, and reads that missed.
    pub read_all: Option<f64>,
    pub read_short: Option<f64>,
}

/// The results of a way to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Paid {
    pub hits: u64,
    pub misses: u64,
    /// NOWAIT reads that missed after a yes. A pread waits instead, and counts as a slow hit.
    pub races: u64,
    /// The medians of hits and misses, and the 99th percentile of hits.
    pub hit_ns: Option<f64>,
    pub hit_p99_ns: Option<f64>,
    pub miss_ns: Option<f64>,
}

/// The library's `Stats` of strict reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Strict {
    pub reads: u64,
    pub hits: u64,
    pub misses: u64,
    /// The misses that came after a yes.
    pub races: u64,
}

impl Place {
    /// The offset of question number `i` in a file of this many pages.
    pub fn offset(self, i: u64, pages: u64, page: u64, seed: u64) -> u64 {
        let index = match self.pattern {
            Pattern::Linear => seed.wrapping_add(i),
            Pattern::Seeky => mix(seed.wrapping_add(i)),
        };
        index % pages * page
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = match self.pattern {
            Pattern::Linear => "linear",
            Pattern::Seeky => "seeky",
        };
        write!(f, "{pattern} {}", Size(self.block))?;
        if self.block < 1024 {
            f.write_str("B")
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.place,
            if self.touch { ", touched" } else { "" }
        )
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Turn::Race(cell) => write!(f, "{cell}, {}", cell.delay_us),
            Turn::Cost(place, _) => write!(f, "cost of {place}"),
            Turn::Strict => f.write_str("strict reads"),
        }
    }
}
