//! The report of --stats.

use super::directories;
use super::files;
use super::follow::Activity;
use crate::name::plural;
use crate::size::Size;

/// Prints the sums on standard error.
pub fn print(
    inodes: &directories::Summary,
    data: Option<files::Summary>,
    activity: Option<&Activity>,
) {
    let wasted = inodes.inodes - inodes.used;
    eprintln!(
        "nowait: read ahead {} in {}: {} used, {wasted} wasted",
        plural(inodes.inodes, "inode"),
        plural(inodes.directories, "directory"),
        inodes.used,
    );
    if let Some(data) = data {
        eprintln!(
            "nowait: read ahead {} of {}: {} used, {} wasted",
            Size(data.bytes),
            plural(data.files, "file"),
            Size(data.used),
            Size(data.bytes - data.used),
        );
    }
    if let Some(Activity {
        counts,
        lost,
        comparison,
    }) = activity
    {
        let seconds = counts.nanoseconds as f64 / 1e9;
        // Calls within the C library are counted, and not timed.
        let took = match counts.nanoseconds {
            0 => String::new(),
            _ => format!(", which took {seconds:.2} s"),
        };
        eprintln!(
            "nowait: the program called stat(2) {}{took}",
            plural(counts.stats, "time"),
        );
        let (read_ahead, control) = comparison.sums();
        if let (Some(ahead), Some(alone)) = (read_ahead.per_stat(), control.per_stat()) {
            eprintln!(
                "nowait: one call in {:.1} µs in directories that were read ahead, in {:.1} µs in {} left alone{}",
                ahead.as_secs_f64() * 1e6,
                alone.as_secs_f64() * 1e6,
                plural(control.directories.into(), "directory"),
                if comparison.is_useless() {
                    ": readahead ended"
                } else {
                    ""
                },
            );
        }
        if *lost > 0 {
            eprintln!("nowait: {} lost", plural(*lost, "event"));
        }
    }
}
