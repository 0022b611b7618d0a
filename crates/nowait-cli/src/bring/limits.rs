//! The words by which `warm` and `cache restore` are told how much, how fast and how.

use super::budget::Allowed;
use crate::size::Size;

/// How much, how fast and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Limits {
    /// How many opens and reads are under way at once; each read takes up to 256K of memory
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub depth: u32,

    /// Read no more than so many bytes a second (as 500K, 20M, 1G: so for every size here)
    #[arg(long, value_name = "BYTES")]
    pub rate: Option<Size>,

    /// Bring no more than so many bytes, or this share of the memory that is available (to the
    /// cgroup, if that has a limit)
    #[arg(long, value_name = "BYTES|N%", default_value_t = Allowed::Percent(75))]
    pub budget: Allowed,

    /// Only say what would be brought
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
