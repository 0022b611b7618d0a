//! The options that several areas have.

use std::path::PathBuf;

use serde::Serialize;

use super::output::Output;
use nowait_cli::scramble::mix;
use nowait_cli::size::Size;

/// The number of reads of a turn in an area without a default time.
const READS: u64 = 8_000;

/// The options of areas that read files. An area sets its own defaults in `#[command(mut_arg)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Read this file. An existing file is not changed, and --size is ignored; a missing one is
    /// made and kept. Without this option a file is made in the current directory and removed at
    /// the end
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// The size of the file to make, or of all files together: bytes, or a number with K, M, G or T
    #[arg(long, default_value = "1G")]
    pub size: Size,

    /// How many reads are in flight at once, for contenders that can have more than one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub depth: u32,

    /// How many reads each contender makes in each round
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,

    /// How long each contender reads in each round
    #[arg(long, value_name = "S", default_value = "2", value_parser = positive)]
    pub seconds: Option<f64>,

    #[command(flatten)]
    pub rounds: Rounds,

    #[command(flatten)]
    pub output: Output,
}

/// The number of rounds.
#[derive(Clone, Debug, clap::Args)]
pub struct RoundCount {
    /// How many rounds. Ratios need 3; ranges that cover 95 % need 6
    #[arg(id = "rounds", long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
}

/// The rounds, and the seed of their random numbers.
#[derive(Clone, Debug, clap::Args)]
pub struct Rounds {
    #[command(flatten)]
    rounds: RoundCount,

    /// The seed of the random places
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Rounds {
    /// The number of rounds.
    pub fn count(&self) -> u32 {
        self.rounds.count
    }

    /// The seed of one round.
    pub fn seed_of(&self, round: usize) -> u64 {
        mix(self.seed.wrapping_add(round as u64))
    }
}

/// The options of areas whose turns last a given time. An area sets its own defaults in
/// `#[command(mut_arg)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Timed {
    /// How long each contender runs in each round
    #[arg(long, value_name = "S", default_value = "1", value_parser = positive)]
    pub seconds: f64,

    #[command(flatten)]
    pub rounds: Rounds,

    #[command(flatten)]
    pub output: Output,
}

/// Parses the seconds of a turn.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds: a number from 0.001 to 86400".into()),
    }
}

impl Common {
    /// The amount of work of each contender in a round.
    pub fn amount(&self) -> Amount {
        match (self.ops, self.seconds) {
            (Some(ops), _) => Amount::Ops(ops),
            (None, Some(seconds)) => Amount::Seconds(seconds),
            (None, None) => Amount::Ops(READS),
        }
    }
}

/// The amount of work of one contender in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// A number of operations.
    Ops(u64),
    /// The operations that begin within this time.
    Seconds(f64),
}
