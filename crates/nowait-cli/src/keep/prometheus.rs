//! The status as a text file for the textfile collector of Prometheus' node_exporter.

use std::fmt::Write;

use super::status::{Numbers, Status};

/// A metric of each path: its name, type and meaning, and its value.
type Metric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Numbers) -> u64,
);

const METRICS: [Metric; 9] = [
    ("files", "gauge", "Files of the path.", |n| n.files),
    (
        "size_bytes",
        "gauge",
        "Size of the files without holes.",
        |n| n.size,
    ),
    (
        "budget_bytes",
        "gauge",
        "Part of the budget that the path gets.",
        |n| n.budget,
    ),
    (
        "resident_estimated_bytes",
        "gauge",
        "Planned bytes that were resident at the last sweep or read.",
        |n| n.resident_estimated,
    ),
    (
        "locked_bytes",
        "gauge",
        "Bytes that are locked in memory.",
        |n| n.locked,
    ),
    (
        "unknown_bytes",
        "gauge",
        "Size of the files of unknown residency.",
        |n| n.unknown_size,
    ),
    (
        "failed_files",
        "gauge",
        "Files that could not be opened.",
        |n| n.failed,
    ),
    (
        "read_bytes_total",
        "counter",
        "Bytes that were read.",
        |n| n.read,
    ),
    (
        "read_again_estimated_bytes_total",
        "counter",
        "Bytes that were read again after an eviction that a sweep has found.",
        |n| n.read_again_estimated,
    ),
];

/// The beginning of the file, by which it is known.
pub const BEGIN: &str = "# `nowait keep` ";

/// The text of the file. `name` tells the files of several processes apart.
pub fn text(status: &Status, name: &str) -> String {
    let mut text = format!("{BEGIN}writes this file while it runs, and removes it at its end.\n");
    let keep = escaped(name);
    // Writing to a string does not fail.
    for (name, kind, meaning, value) in METRICS {
        let _ = writeln!(text, "# HELP nowait_keep_{name} {meaning}");
        let _ = writeln!(text, "# TYPE nowait_keep_{name} {kind}");
        for path in &status.paths {
            let (label, value) = (escaped(&path.path), value(&path.numbers));
            let _ = write!(text, "nowait_keep_{name}{{keep=\"{keep}\",path=\"{label}\"");
            // Paths that are not UTF-8 are told apart by it.
            if let Some(hex) = &path.path_hex {
                let _ = write!(text, ",path_hex=\"{hex}\"");
            }
            let _ = writeln!(text, "}} {value}");
        }
    }
    let of_all = [
        (
            "limit_bytes",
            "gauge",
            "Bytes that may be kept now.",
            status.limit,
        ),
        (
            "pressure_reports_total",
            "counter",
            "Reports of memory pressure.",
            status.pressure.unwrap_or(0),
        ),
        (
            "last_sweep_timestamp_seconds",
            "gauge",
            "Time of the last sweep.",
            status.swept,
        ),
    ];
    for (name, kind, meaning, value) in of_all {
        let _ = writeln!(text, "# HELP nowait_keep_{name} {meaning}");
        let _ = writeln!(text, "# TYPE nowait_keep_{name} {kind}");
        let _ = writeln!(text, "nowait_keep_{name}{{keep=\"{keep}\"}} {value}");
    }
    text
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep::status::PathStatus;

    #[test]
    fn labels_are_escaped_and_each_metric_has_a_type() {
        let path = PathStatus {
            path: "a\"\\\nb".into(),
            path_hex: None,
            numbers: Numbers {
                size: 7,
                ..Numbers::default()
            },
            unknown: None,
        };
        let other = PathStatus {
            path: "\u{fffd}".into(),
            path_hex: Some("ff".into()),
            ..path.clone()
        };
        let text = text(&Status::new(false, "1G".into(), vec![path, other]), "web");
        let hex = "nowait_keep_size_bytes{keep=\"web\",path=\"\u{fffd}\",path_hex=\"ff\"} 7\n";
        assert!(text.contains(hex), "{text}");
        let line = "nowait_keep_size_bytes{keep=\"web\",path=\"a\\\"\\\\\\nb\"} 7\n";
        assert!(text.contains(line), "{text}");
        let count = |start| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(count("# TYPE "), METRICS.len() + 3);
        assert_eq!(count("nowait_keep_"), 2 * METRICS.len() + 3);
    }
}
