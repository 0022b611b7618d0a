//! The report of --stats.

use std::fmt::Write;

use nowait_ahead_policy::{Activity, Evictions, Report};

use crate::name::{plural, shown};
use crate::size::Size;

/// The lines of the report.
pub fn text(report: &Report) -> String {
    let mut lines = String::new();
    // A string takes all that is written.
    let _ = write(&mut lines, report);
    lines
}

/// The lines for the page cache that was kept by surveys.
pub fn kept(kept: &Evictions) -> String {
    let mut lines = String::new();
    let why = [
        (!kept.has_reports, "no program has loaded the library"),
        (
            kept.is_filtered,
            "a process had a filter of system calls (seccomp(2))",
        ),
        (
            kept.has_other_rights,
            "a process had other rights than nowait run",
        ),
    ];
    let why = why.iter().filter(|(is_so, _)| *is_so);
    let why: String = why
        .map(|(_, why)| format!("page cache: not all is known: {why}\n"))
        .collect();
    let is_known = why.is_empty() && kept.unseen.is_empty() && kept.lost == 0;
    if is_known && kept.mounts.is_empty() {
        lines.push_str("page cache: no pages were added\n");
    }
    lines += &why;
    lines += &kept_mounts(kept);
    for (program, bytes) in &kept.unseen {
        let (bytes, program) = (Size(*bytes), shown(&program));
        lines += &format!(
            "page cache of {bytes} or more that {program} read: not known, no library sees its calls\n"
        );
    }
    if kept.lost > 0 {
        lines += &format!("page cache: {} lost\n", plural(kept.lost, "event"));
    }
    lines
}

/// The lines for the files of each mount.
pub fn kept_mounts(kept: &Evictions) -> String {
    let mut lines = String::new();
    for (mount, sums) in &kept.mounts {
        let mount = shown(mount);
        let (before, after, left) = (Size(sums.before), Size(sums.after), Size(sums.left));
        lines += &format!(
            "page cache of {} on {mount}: {before} before, {after} after, {left} left behind\n",
            plural(sums.files, "file"),
        );
        if sums.unknown > 0 {
            let files = plural(sums.unknown, "file");
            lines += &format!("page cache of {files} on {mount}: not known any more\n");
        }
    }
    lines
}

fn write(f: &mut String, report: &Report) -> std::fmt::Result {
    let inodes = &report.inodes;
    let wasted = inodes.inodes - inodes.used;
    writeln!(
        f,
        "nowait: read ahead {} in {}: {} used, {wasted} wasted",
        plural(inodes.inodes, "inode"),
        plural(inodes.directories, "directory"),
        inodes.used,
    )?;
    if let Some(data) = &report.data {
        writeln!(
            f,
            "nowait: read ahead {} of {}: {} used, {} wasted",
            Size(data.bytes),
            plural(data.files, "file"),
            Size(data.used),
            Size(data.bytes - data.used),
        )?;
    }
    if let Some(Activity {
        counts,
        lost,
        comparison,
    }) = &report.activity
    {
        let seconds = counts.nanoseconds as f64 / 1e9;
        // Calls within the C library are counted, and not timed.
        let took = match counts.nanoseconds {
            0 => String::new(),
            _ => format!(", which took {seconds:.2} s"),
        };
        writeln!(
            f,
            "nowait: the program called stat(2) {}{took}",
            plural(counts.stats, "time"),
        )?;
        let (read_ahead, control) = comparison.sums();
        if let (Some(ahead), Some(alone)) = (read_ahead.per_stat(), control.per_stat()) {
            writeln!(
                f,
                "nowait: one call in {:.1} µs in directories that were read ahead, in {:.1} µs in {} without readahead{}",
                ahead.as_secs_f64() * 1e6,
                alone.as_secs_f64() * 1e6,
                plural(control.directories.into(), "directory"),
                if comparison.gives_no_gain() {
                    ": readahead ended"
                } else {
                    ""
                },
            )?;
        }
        if *lost > 0 {
            writeln!(f, "nowait: {} lost", plural(*lost, "event"))?;
        }
    }
    Ok(())
}
