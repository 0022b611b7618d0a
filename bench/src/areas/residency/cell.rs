//! What is varied within one pressure: a cell, and what came of it in one turn.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::harness::delay::Delay;
use crate::harness::offsets::mix;
use nowait_cli::size::Size;

/// Where the questions go, and what the kernel is told of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Page after page, from the start again at the end; readahead as the kernel likes.
    Linear,
    /// Any page; POSIX_FADV_RANDOM.
    Seeky,
}

/// Of two reads that differ in nothing but these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    pub pattern: Pattern,
    /// Bytes that a read asks for; one page holds them.
    pub block: u64,
}

/// One way to ask first and read later.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    #[serde(flatten)]
    pub place: Place,
    /// Whether the page is touched in between: one byte of it read, with NOWAIT.
    pub touch: bool,
    /// From the answer to the read.
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

/// What one turn does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Turn {
    /// Questions with a delay.
    Race(Cell),
    /// What a way to read costs.
    Cost(Place, Way),
    /// Strict reads by the library, which counts its own races.
    Strict,
}

/// What came of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Race(Tally),
    Cost(Paid),
    Strict(Strict),
}

/// What came of questions. Each was answered no, or yes; of those answered yes some came short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    pub asked: u64,
    pub yes: u64,
    /// Came short after a yes: the races.
    pub races: u64,
    /// Races that the touch met, not the read.
    pub at_touch: u64,
    /// Races of pages that were on their way in when the answer was yes, and not there yet: the
    /// rest had gone. `None` where nobody can tell.
    pub early: Option<u64>,
    /// What the delay came to, from the answer to the start of the read (medians).
    pub waited_us: Option<f64>,
    /// Of questions that were answered yes, and no.
    pub ask_yes_ns: Option<f64>,
    pub ask_no_ns: Option<f64>,
    /// Of reads that brought all, and that came short.
    pub read_all_ns: Option<f64>,
    pub read_short_ns: Option<f64>,
}

/// What a way to read came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Paid {
    pub hits: u64,
    pub misses: u64,
    /// A yes and a short NOWAIT read; a pread waits instead, and is a hit here that took long.
    pub races: u64,
    /// Medians, and of hits what 99 % do not exceed.
    pub hit_ns: Option<f64>,
    pub hit_p99_ns: Option<f64>,
    pub miss_ns: Option<f64>,
}

/// What the library counted in strict reads: `Stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Strict {
    pub reads: u64,
    pub hits: u64,
    pub misses: u64,
    /// Of the misses, those that came after a yes.
    pub races: u64,
}

impl Place {
    /// The offset of question number `i` in a file of so many pages.
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
