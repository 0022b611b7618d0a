//! The words that every bench takes, with one meaning each.

use std::path::PathBuf;

use clap::ValueEnum;
use nowait::engine::Backend;
use serde::Serialize;

use super::output::Output;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;

/// How many reads a turn makes in a bench that has no default time.
const READS: u64 = 8_000;

/// The options that all benches share. What a bench sets as its own default it sets in its
/// `#[command(mut_arg)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Read this file. If it is there it is only read, and its own size counts; if not, it is made
    /// and kept. Without this option a file is made in the current directory and removed at the
    /// end
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// How large a file to make (all files together): bytes, or a number with K, M, G or T
    #[arg(long, default_value = "1G")]
    pub size: Size,

    /// How many reads are in flight at once, where a contender can have more than one
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub depth: u32,

    /// How many reads each contender makes in each round
    #[arg(long, value_name = "N", conflicts_with = "seconds",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub ops: Option<u64>,

    /// How long each contender reads in each round
    #[arg(long, value_name = "S", default_value = "2", value_parser = positive)]
    pub seconds: Option<f64>,

    /// How many rounds; ratios need 3, a range that covers 95 % needs 6
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// The advice of every contender on its file: posix_fadvise(2)
    #[arg(long, value_enum, default_value_t = Advice::Random)]
    pub advice: Advice,

    /// Have the kernel drop all its clean caches before each turn (needs root; everything else on
    /// the machine gets slower for a while)
    #[arg(long)]
    pub drop_caches: bool,

    /// The seed of the random places
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    #[command(flatten)]
    pub output: Output,
}

/// A backend by its name.
pub fn backend(text: &str) -> Result<Backend, String> {
    let all = [Backend::Uring, Backend::Threads];
    let found = all.into_iter().find(|backend| backend.name() == text);
    found.ok_or_else(|| "a backend is uring or threads".into())
}

/// Seconds that a measurement can take.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds: a number from 0.001 to 86400".into()),
    }
}

impl Common {
    /// How much each contender does in a round.
    pub fn amount(&self) -> Amount {
        match (self.ops, self.seconds) {
            (Some(ops), _) => Amount::Ops(ops),
            (None, Some(seconds)) => Amount::Seconds(seconds),
            (None, None) => Amount::Ops(READS),
        }
    }

    /// Checks that involve several options.
    pub fn check(&self) -> Result<(), Problem> {
        if self.drop_caches && !rustix::process::geteuid().is_root() {
            return Err(Problem::Usage(
                "--drop-caches needs root: run it under sudo, or do without (the bench's own \
                 files are made cold anyway)"
                    .into(),
            ));
        }
        Ok(())
    }
}

/// How much one contender does in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// So many operations.
    Ops(u64),
    /// As many as begin in this time.
    Seconds(f64),
}

/// The advice on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Advice {
    /// POSIX_FADV_RANDOM: no readahead
    Random,
    /// Nothing: readahead as the kernel likes
    Normal,
}

impl Advice {
    /// Tells it.
    pub fn give(self, file: impl std::os::fd::AsFd) -> Result<(), Problem> {
        match self {
            Advice::Random => rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random)
                .map_err(|e| Problem::of("fadvise", e)),
            Advice::Normal => Ok(()),
        }
    }
}

/// Checks block sizes against each other and the depth.
pub fn check_blocks(blocks: &[Size], depth: u32) -> Result<(), Problem> {
    for &block in blocks {
        if block.0 > 1 << 30 || block.0 * u64::from(depth) > 8 << 30 {
            return Err(Problem::Usage(format!(
                "--block {block} at --depth {depth} takes too much memory for buffers (8G at most)"
            )));
        }
    }
    Ok(())
}
