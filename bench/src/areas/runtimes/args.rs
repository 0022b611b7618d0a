//! The command line.

use std::path::PathBuf;

use nowait_cli::size::Size;

use super::peer::Peer;
use crate::harness::output::Output;
use crate::harness::settings::Rounds;

/// nowait for tokio beside tokio::fs, tokio-uring, compio and spawn_blocking
///
/// Each cell is one kind of work. In each round of a cell every contender does it once, in a separate
/// process, on the same file, at the same places, with the same advice (POSIX_FADV_RANDOM) and with the
/// page cache in the same state. Another task of the same runtime waits for a timer that fires every
/// millisecond. Its lateness shows how long the event loop was blocked.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("rounds", |a| a.default_value("9")))]
pub struct Run {
    /// The file to read. A missing file is made and kept. Writes go to FILE.write, which is removed at
    /// the end
    #[arg(long, value_name = "FILE", default_value = "target/bench.dat")]
    pub file: PathBuf,

    /// The size of a file that is made, and the part that is read of an existing one
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub size: Size,

    #[command(flatten)]
    pub rounds: Rounds,

    /// How long each contender runs in each round, but for cells of mixed hit rates, which make a fixed
    /// number of reads
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    pub seconds: f64,

    /// The cells to measure: names, or the beginnings of names. An unknown name prints all names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values = ["cached", "cold", "mixed", "write"])]
    pub cells: Vec<String>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',')]
    pub peers: Vec<Peer>,

    #[command(flatten)]
    pub output: Output,

    /// A build of this program with RUSTFLAGS="--cfg tokio_unstable" and --features tokio-ring, which
    /// tokio-fs-ring needs [default: the one that `make bench-tokio` makes]
    #[arg(long, value_name = "PROGRAM")]
    pub ring_build: Option<PathBuf>,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round. Ratios are taken within rounds. `tick` is the lateness of the event
loop for its timer. Ctrl-C prints what was measured; a second one ends the program at once.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"work\", \"block\" and
\"tasks\". A round has lat_us and tick_us {p50 … max}; tick_us is null without an event loop.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// A size with room for the cells of large blocks.
fn size(text: &str) -> Result<Size, String> {
    match text.parse()? {
        Size(..LEAST) => Err(format!("give at least {}", Size(LEAST))),
        size => Ok(size),
    }
}

/// The least size of the file.
const LEAST: u64 = 4 << 20;

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Result<f64, _> = text.parse();
    seconds
        .ok()
        .filter(|s| (0.001..=60.0).contains(s))
        .ok_or_else(|| "give 0.001 to 60 seconds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_below_the_least_is_refused() {
        assert_eq!(size("4M"), Ok(Size(LEAST)));
        assert!(size("3M").is_err());
    }
}
