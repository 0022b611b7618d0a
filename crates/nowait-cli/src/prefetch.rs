//! The options and the output of verbs that read files into the page cache: `warm` and
//! `cache restore`.

mod limits;
mod report;

pub use limits::Limits;
pub use report::{JSON_FORMAT, print};

use nowait_page_cache as page_cache;

use crate::progress::Progress;
use crate::size::Size;

/// Shows how far a run is.
pub fn show(progress: &mut Progress, run: page_cache::Progress) {
    let (read, rate) = (Size(run.read_bytes), Size(run.bytes_per_s));
    progress.at(run.files, format!("{read} read, {rate}/s"));
}
