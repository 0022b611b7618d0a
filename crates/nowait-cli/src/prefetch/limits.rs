//! The arguments of `warm` and `cache restore` that limit memory, rate and depth.

use nowait_page_cache::{self as page_cache, Allowed};

use crate::size::Size;

/// The limits, and the form of the output.
#[derive(Clone, Debug, clap::Args)]
pub struct Limits {
    /// Maximum number of opens and reads in flight. Each read uses up to 256K of memory
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub depth: u32,

    /// Read at most BYTES per second. Sizes may have a unit: 500K, 20M, 1G
    #[arg(long, value_name = "BYTES")]
    pub rate: Option<Size>,

    /// Read at most BYTES in total, or N percent of the available memory. In a cgroup with a memory
    /// limit, this is the memory available to the cgroup
    #[arg(long, value_name = "BYTES|N%", default_value_t = Allowed::Percent(75))]
    pub budget: Allowed,

    /// Read nothing; print how much would be read
    #[arg(long)]
    pub dry_run: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

impl From<&Limits> for page_cache::Limits {
    fn from(limits: &Limits) -> page_cache::Limits {
        page_cache::Limits {
            depth: limits.depth,
            rate: limits.rate.map(|Size(rate)| rate),
            budget: limits.budget,
            dry_run: limits.dry_run,
        }
    }
}
