//! The status as a text file for the textfile collector of Prometheus' node_exporter.

use prometheus::core::Collector;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

use super::status::{Numbers, Status};

/// A metric of each path: its name without the prefix, its meaning, and its value. A name that ends with
/// `_total` is a counter.
type Metric = (&'static str, &'static str, fn(&Numbers) -> u64);

const METRICS: [Metric; 9] = [
    ("files", "Files of the path.", |n| n.files),
    ("size_bytes", "Size of the files without holes.", |n| n.size),
    (
        "budget_bytes",
        "Part of the budget that the path gets.",
        |n| n.budget,
    ),
    (
        "resident_estimated_bytes",
        "Planned bytes that were resident at the last sweep or read.",
        |n| n.resident_estimated,
    ),
    ("locked_bytes", "Bytes that are locked in memory.", |n| {
        n.locked
    }),
    (
        "unknown_bytes",
        "Size of the files of unknown residency.",
        |n| n.unknown_size,
    ),
    ("failed_files", "Files that could not be opened.", |n| {
        n.failed
    }),
    ("read_bytes_total", "Bytes that were read.", |n| n.read),
    (
        "read_again_estimated_bytes_total",
        "Bytes that were read again after an eviction that a sweep has found.",
        |n| n.read_again_estimated,
    ),
];

/// The beginning of the file, by which it is known.
pub const BEGIN: &str = "# `nowait keep` ";

/// The text of the file. `name` tells the files of several processes apart.
pub fn text(status: &Status, name: &str) -> String {
    let begin = format!("{BEGIN}writes this file while it runs, and removes it at its end.\n");
    // The names of metrics and labels are constant, and right.
    let metrics = metrics(status, name).unwrap_or_default();
    begin + &metrics
}

fn metrics(status: &Status, name: &str) -> prometheus::Result<String> {
    let registry = Registry::new();
    // Paths that are not UTF-8 are told apart by the label `path_hex`.
    for (metric, meaning, value) in METRICS {
        let labels = ["keep", "path", "path_hex"];
        let paths = status.paths.iter().map(|path| {
            let hex = path.path_hex.as_deref().unwrap_or("");
            ([name, &path.path, hex], value(&path.numbers))
        });
        registry.register(collector(metric, meaning, &labels, paths)?)?;
    }
    let of_all = [
        ("limit_bytes", "Bytes that may be kept now.", status.limit),
        (
            "pressure_reports_total",
            "Reports of memory pressure.",
            status.pressure.unwrap_or(0),
        ),
        (
            "last_sweep_timestamp_seconds",
            "Time of the last sweep.",
            status.swept,
        ),
    ];
    for (metric, meaning, value) in of_all {
        let values = std::iter::once(([name], value));
        registry.register(collector(metric, meaning, &["keep"], values)?)?;
    }
    TextEncoder::new().encode_to_string(&registry.gather())
}

/// A metric with a value for each set of labels.
fn collector<'a, const LABELS: usize>(
    name: &str,
    meaning: &str,
    labels: &[&str],
    values: impl Iterator<Item = ([&'a str; LABELS], u64)>,
) -> prometheus::Result<Box<dyn Collector>> {
    let options = Opts::new(format!("nowait_keep_{name}"), meaning);
    if name.ends_with("_total") {
        let metric = IntCounterVec::new(options, labels)?;
        for (labels, value) in values {
            metric.with_label_values(&labels).inc_by(value);
        }
        Ok(Box::new(metric))
    } else {
        let metric = IntGaugeVec::new(options, labels)?;
        for (labels, value) in values {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            metric.with_label_values(&labels).set(value);
        }
        Ok(Box::new(metric))
    }
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
        let line = "nowait_keep_size_bytes{keep=\"web\",path=\"a\\\"\\\\\\nb\",path_hex=\"\"} 7\n";
        assert!(text.contains(line), "{text}");
        let count = |start| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(count("# TYPE "), METRICS.len() + 3);
        assert_eq!(count("nowait_keep_"), 2 * METRICS.len() + 3);
    }
}
