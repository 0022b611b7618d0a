//! The command line.

use std::path::PathBuf;

use super::peer::Peer;
use crate::harness::output::Output;

/// nowait for tokio beside what else one could read a file with
///
/// Each cell is one kind of work. In each round of a cell every peer does it once, in a process of its
/// own, on the same file, at the same places, with the same advice (FADV_RANDOM) and the page cache in
/// the same state. Beside the work a task of the same runtime waits for a timer that fires every
/// millisecond; how late it runs is the stall of the event loop.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// The file to read. It is made if it is not there, and stays. Writes go to FILE.write, which does
    /// not
    #[arg(long, value_name = "FILE", default_value = "target/bench.dat")]
    pub file: PathBuf,

    /// How large the file is made, or how much of it is read
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = crate::areas::runtimes::args::size)]
    pub size: u64,

    /// How often each peer does each cell
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=999))]
    pub rounds: u32,

    /// How long a turn measures; those of mixed hit rates make a fixed number of reads
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    pub seconds: f64,

    /// Which cells: names, or what names begin with (--cells help lists them)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values = ["cached", "cold", "mixed", "write"])]
    pub cells: Vec<String>,

    /// The contenders
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',', default_values_t = Peer::ALL)]
    pub peers: Vec<Peer>,

    #[command(flatten)]
    pub output: Output,

    /// This program built with RUSTFLAGS="--cfg tokio_unstable" and --features tokio-ring, for
    /// tokio-fs-ring [default: where `make bench-tokio` puts it]
    #[arg(long, value_name = "PROGRAM")]
    pub ring_build: Option<PathBuf>,
}

/// 4096, 64K, 1M, 2G.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|&n| n >= 4 << 20)
        .ok_or_else(|| "give at least 4M, as in 512M or 1G".into())
}

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
    fn sizes() {
        assert_eq!(size("8M"), Ok(8 << 20));
        assert_eq!(size("1G"), Ok(1 << 30));
        for wrong in ["", "M", "-1M", "1", "3M", "99999999999G", "1T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
