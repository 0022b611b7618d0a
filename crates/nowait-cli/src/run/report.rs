//! The report of --stats.

use super::follow::Activity;
use super::trees::Summary;
use crate::name::plural;

/// Prints the sums on standard error.
pub fn print(summary: &Summary, activity: Option<Activity>) {
    let wasted = summary.inodes - summary.used;
    eprintln!(
        "nowait: read ahead {} in {}: {} used, {wasted} wasted",
        plural(summary.inodes, "inode"),
        plural(summary.directories, "directory"),
        summary.used,
    );
    if let Some(Activity { counts, lost }) = activity {
        let mean = counts.nanoseconds.checked_div(counts.timed).unwrap_or(0) as f64 / 1e3;
        eprintln!(
            "nowait: the program called stat(2) {}, {mean:.1} µs each by a sample of {}",
            plural(counts.stats, "time"),
            counts.timed,
        );
        if lost > 0 {
            eprintln!("nowait: {} lost", plural(lost, "event"));
        }
    }
}
