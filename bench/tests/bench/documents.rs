//! The figures of the documents: `bench/figures.txt` has the key of each one. The key names a part, a
//! cell, contenders and a figure of bench/runs/*/report.json.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The documents with figures.
fn documents() -> Vec<PathBuf> {
    let docs = ["docs", "docs/book"].map(|dir| fs::read_dir(root().join(dir)).unwrap());
    let docs = docs
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|e| e == "md"));
    docs.chain([root().join("README.md")]).collect()
}

/// The directory of the committed run.
fn committed() -> PathBuf {
    let runs = fs::read_dir(root().join("bench/runs")).unwrap();
    let runs: Vec<PathBuf> = runs.map(|entry| entry.unwrap().path()).collect();
    let [run] = &runs[..] else {
        panic!("one run is kept, not {runs:?}");
    };
    run.clone()
}

/// The aggregate of the committed run.
fn run() -> Value {
    let run = committed();
    let size: u64 = fs::read_dir(&run)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 1 << 20, "{size} bytes; at most 1 MiB is kept");
    serde_json::from_slice(&fs::read(run.join("report.json")).unwrap()).unwrap()
}

/// The figures behind a key: a median, or a ratio with its range. `1/` before the name of a figure means its inverse.
fn figures(run: &Value, key: &str) -> Option<Vec<f64>> {
    let [part, cell, contenders, figure] = key.split(';').map(str::trim).collect::<Vec<_>>()[..]
    else {
        panic!("a key is PART; CELL; CONTENDERS; FIGURE, not {key}");
    };
    let inverse = figure.strip_prefix("1/");
    let figure = inverse.unwrap_or(figure);
    let cell = run.get(part)?.get("cells")?.get(cell)?;
    let Some(ratio) = cell["ratios"].get(contenders) else {
        return Some(vec![
            cell["medians"].get(contenders)?.get(figure)?.as_f64()?,
        ]);
    };
    let all = ratio.get(figure)?.as_array()?.iter();
    let all: Vec<f64> = all.filter_map(Value::as_f64).collect();
    match (inverse, &all[..]) {
        (Some(_), [median, low, high]) => Some(vec![1.0 / median, 1.0 / high, 1.0 / low]),
        _ => Some(all),
    }
}

/// A figure of a document, and its key.
struct Figure {
    document: PathBuf,
    shown: String,
    key: String,
}

/// The figures that `bench/figures.txt` lists.
fn listed() -> Vec<Figure> {
    let text = fs::read_to_string(root().join("bench/figures.txt")).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let figure = |line: &str| match line.split(" | ").collect::<Vec<_>>()[..] {
        [document, shown, key] => Figure {
            document: root().join(document),
            shown: shown.into(),
            key: key.into(),
        },
        _ => panic!("a line is DOCUMENT | FIGURE | KEY, not {line}"),
    };
    lines.map(figure).collect()
}

/// The numbers of a text: `4.1 (3.9–4.3)` has three, `17` has one.
fn numbers(text: &str) -> Vec<&str> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .filter(|number| !number.is_empty())
        .collect()
}

/// Returns true if `shown` is `value` with as many decimals as `shown` has.
fn is_rounded(shown: &str, value: f64) -> bool {
    let decimals = shown
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    let shown: f64 = shown.parse().unwrap();
    // The aggregate has four digits itself.
    (shown - value).abs() <= 0.5 * 10f64.powi(-(decimals as i32)) + value.abs() * 1e-3
}

/// A text without code, in which no figure of a run stands.
fn prose(text: &str) -> String {
    let mut outside = String::new();
    for (number, piece) in text.split("```").enumerate() {
        if number % 2 == 0 {
            for (number, piece) in piece.split('`').enumerate() {
                if number % 2 == 0 {
                    outside += piece;
                }
            }
        }
    }
    outside
}

#[test]
fn each_figure_is_that_of_the_committed_run() {
    let run = run();
    for Figure {
        document,
        shown,
        key,
    } in listed()
    {
        let text = fs::read_to_string(&document).unwrap();
        assert!(text.contains(&shown), "{document:?} does not have {shown}");
        let values = figures(&run, &key).unwrap_or_else(|| panic!("no result has the key {key}"));
        let is_difference = values.len() < 3 || values[1] > 1.0 || values[2] < 1.0;
        assert_eq!(
            is_difference,
            !shown.contains("no difference"),
            "{document:?}: {key} is {values:?}, shown as {shown}"
        );
        let values = if is_difference {
            &values[..]
        } else {
            &values[1..]
        };
        let shown = numbers(&shown);
        let is_rounded = (shown.iter().zip(values)).all(|(shown, value)| is_rounded(shown, *value));
        assert!(
            is_rounded && (shown.len() == values.len() || shown.len() == 1),
            "{document:?}: {key} is {values:?}, not {shown:?}"
        );
    }
}

#[test]
fn no_figure_is_without_a_key() {
    let listed = listed();
    for path in documents() {
        let mut text = prose(&fs::read_to_string(&path).unwrap());
        for figure in listed.iter().filter(|figure| figure.document == path) {
            text = text.replace(&figure.shown, "");
        }
        let mut rest = text.as_str();
        while let Some(dot) = rest.find('.') {
            let (before, after) = rest.split_at(dot);
            let whole = before
                .chars()
                .rev()
                .take_while(char::is_ascii_digit)
                .count();
            let fraction = after[1..].chars().take_while(char::is_ascii_digit).count();
            if whole > 0 && fraction > 0 {
                let words = before[..before.len() - whole].trim_end();
                let is_version = [
                    "Linux", "Rust", "CPython", "glibc", "Samba", "Ubuntu", "and", "about",
                    "version", "Version", "before", "since", "from",
                ]
                .iter()
                .any(|word| words.ends_with(word));
                let tail = &after[1 + fraction..];
                assert!(
                    is_version || tail.starts_with('.') || words.ends_with('-'),
                    "{path:?}: a figure without a key: …{}…",
                    &rest[dot.saturating_sub(whole)..dot + 1 + fraction]
                );
            }
            rest = &after[1..];
        }
    }
}

/// docs/testing.md has the same command.
#[test]
fn the_picture_is_that_of_the_committed_run() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.arg("chart").arg(committed().join("report.json"));
    command.args(["mix", "f1", "--label-lines", "--title"]);
    command.arg("99 % of cached reads take at most 16 µs, not 750");
    command.args([
        "--subtitle",
        "16 KiB each, in a program that also waits for the disk",
    ]);
    command.args(["--x", "time of a read, µs"]);
    command.args(["--lines", "pool=a pool of 16 threads,eager-uring=nowait"]);
    let drawn = command.output().unwrap();
    assert!(drawn.status.success(), "{drawn:?}");
    let kept = fs::read(root().join("docs/latency.svg")).unwrap();
    assert!(drawn.stdout == kept, "docs/latency.svg is not of this run");
}

#[test]
fn a_number_is_compared_with_its_digits() {
    assert_eq!(numbers("4.1 (3.9–4.3)"), ["4.1", "3.9", "4.3"]);
    assert_eq!(numbers("no difference (0.9–1.1)"), ["0.9", "1.1"]);
    assert!(is_rounded("3.77", 3.772) && !is_rounded("3.77", 3.79));
    assert_eq!(prose("a `1.5` b ```2.5``` c"), "a  b  c");
}
