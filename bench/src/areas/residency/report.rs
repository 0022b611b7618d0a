//! The results: counts and shares of races, the cost of each way to read, charts, and the answer in
//! words. The verb's help has the shape of `findings`.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::cell::{Cell, Place, Turn};
use super::pressure::Pressure;
use super::share::{Count, Share};
use crate::harness::cell::{Contender, at, object};
use crate::harness::contender::Word;
use crate::harness::delay::Delay;
use crate::harness::plot::{Axis, Chart, Line};
use crate::harness::run::Run;
use crate::harness::table::{Entry, Table};
use nowait_cli::interval::middle;
use nowait_cli::size::Size;

/// One round of one pressure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// The limit of the cgroup, in bytes; `None` without a cgroup.
    pub limit: Option<u64>,
    /// The number of a turn, and its result.
    pub outcomes: Vec<(usize, Value)>,
}

/// All that was measured under one pressure.
pub struct Pressed {
    pressure: Pressure,
    /// The limit of the cgroup in the last round.
    limit: Option<u64>,
    /// The number of a turn, its round, and its result.
    outcomes: Vec<(usize, usize, Value)>,
}

impl Pressed {
    /// The rounds of a pressure.
    pub fn of(contender: &Contender) -> Option<Pressed> {
        let mut pressed = Pressed {
            pressure: Pressure::from_str(&contender.name, false).ok()?,
            limit: None,
            outcomes: Vec::new(),
        };
        for (number, round) in contender.rounds.iter().enumerate() {
            let round: Round = of_row(round)?;
            pressed.limit = round.limit;
            let outcomes = round.outcomes.into_iter();
            pressed
                .outcomes
                .extend(outcomes.map(|(turn, outcome)| (turn, number, outcome)));
        }
        Some(pressed)
    }

    /// The results of some turns, with their rounds.
    fn outcomes(&self, is_of: impl Fn(usize) -> bool) -> Vec<(usize, &Value)> {
        let those = self.outcomes.iter().filter(|(number, ..)| is_of(*number));
        those.map(|(_, round, outcome)| (*round, outcome)).collect()
    }

    /// A row with the pressure, the key `kind`, and sums and medians over some turns; `None`
    /// without results.
    fn row(&self, kind: Value, outcomes: &[(usize, &Value)]) -> Option<Map<String, Value>> {
        let all: Vec<&Value> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
        let mut row = object(json!({"pressure": self.pressure}));
        row.extend(object(kind));
        row.extend(object(merged(&all)));
        (!all.is_empty()).then_some(row)
    }

    /// The row of a kind of questions.
    fn races(&self, kind: Value, turns: &[Turn], is: impl Fn(&Cell) -> bool) -> Option<Value> {
        let outcomes =
            self.outcomes(|number| matches!(&turns[number], Turn::Race(cell) if is(cell)));
        let mut row = self.row(kind, &outcomes)?;
        let last = outcomes.iter().map(|(round, _)| *round).max()?;
        let rounds: Vec<Value> = (0..=last).map(|round| in_round(&outcomes, round)).collect();
        let all = share(&rounds, |round| round["races"].as_u64());
        let gone = |round: &Value| Some(round["races"].as_u64()? - round["early"].as_u64()?);
        row.extend(object(json!(all)));
        row.insert("gone".into(), json!(share(&rounds, gone)));
        row.insert("rounds".into(), rounds.into());
        Some(row.into())
    }

    /// The reads that the library counted in strict mode. Its share is that of races in the reads
    /// whose pages were reported as cached: hits and races.
    fn strict(&self, turns: &[Turn]) -> Option<Value> {
        let outcomes = self.outcomes(|number| turns[number] == Turn::Strict);
        let mut row = self.row(json!({}), &outcomes)?;
        let counts = outcomes.iter().map(|(_, counts)| {
            let [hits, races] = ["hits", "races"].map(|key| counts[key].as_u64().unwrap_or(0));
            Count {
                of: hits + races,
                happened: races,
            }
        });
        row.extend(object(json!(Share::of(&counts.collect::<Vec<_>>()))));
        Some(row.into())
    }
}

/// The sums of whole numbers and the medians of others, in the shape of the values. A value that is
/// missing in some is left out.
fn merged(values: &[&Value]) -> Value {
    let known: Vec<&Value> = values
        .iter()
        .copied()
        .filter(|value| !value.is_null())
        .collect();
    match known.first() {
        None => Value::Null,
        Some(Value::Object(first)) => {
            let of_key =
                |key: &String| merged(&known.iter().map(|value| &value[key]).collect::<Vec<_>>());
            Value::Object(first.keys().map(|key| (key.clone(), of_key(key))).collect())
        }
        Some(_) if known.iter().all(|value| value.is_u64()) => known
            .iter()
            .filter_map(|value| value.as_u64())
            .sum::<u64>()
            .into(),
        Some(_) => middle(
            &mut known
                .iter()
                .filter_map(|value| value.as_f64())
                .collect::<Vec<_>>(),
        )
        .into(),
    }
}

/// The counts of one round.
fn in_round(outcomes: &[(usize, &Value)], round: usize) -> Value {
    let those = outcomes.iter().filter(|(of, _)| *of == round);
    let all = merged(&those.map(|(_, outcome)| *outcome).collect::<Vec<_>>());
    let count = |key: &str| all[key].as_u64().unwrap_or(0);
    json!({"asked": count("asked"), "yes": count("yes"), "races": count("races"), "early": all["early"]})
}

/// The share of events over all rounds with questions; `None` if a round does not have their
/// number.
fn share(rounds: &[Value], happened: impl Fn(&Value) -> Option<u64>) -> Option<Share> {
    let played = rounds.iter().filter(|round| round["asked"] != 0);
    let count = |round: &Value| {
        Some(Count {
            of: round["yes"].as_u64()?,
            happened: happened(round)?,
        })
    };
    Share::of(&played.map(count).collect::<Option<Vec<_>>>()?)
}

/// The findings; `None` if no question was answered.
pub fn findings(turns: &[Turn], pressed: &[Pressed]) -> Option<Map<String, Value>> {
    let (mut cells, mut by_delay, mut ways) = (Vec::new(), Vec::new(), Vec::new());
    for pressed in pressed {
        let mut delays = Vec::new();
        for (number, turn) in turns.iter().enumerate() {
            match turn {
                Turn::Race(cell) => {
                    cells.extend(pressed.races(json!(cell), turns, |other| other == cell));
                    let delay = cell.delay_us;
                    if !delays.contains(&delay) {
                        delays.push(delay);
                        let kind = json!({"delay_us": delay});
                        by_delay
                            .extend(pressed.races(kind, turns, |other| other.delay_us == delay));
                    }
                }
                Turn::Cost(place, way) => {
                    let mut kind = json!(place);
                    kind["way"] = json!(way);
                    ways.extend(pressed.row(kind, &pressed.outcomes(|of| of == number)));
                }
                Turn::Strict => {}
            }
        }
    }
    let limit = |pressed: &Pressed| json!({"pressure": pressed.pressure, "limit": pressed.limit});
    let strict = pressed.iter().filter_map(|pressed| pressed.strict(turns));
    Some(object(json!({
        "answer": answer(&by_delay)?,
        "pressures": pressed.iter().map(limit).collect::<Vec<_>>(),
        "cells": cells,
        "by_delay": by_delay,
        "ways": ways,
        "strict": strict.collect::<Vec<_>>(),
    })))
}

/// Adds the tables, notes and charts of the findings of a run.
pub fn complete(run: &mut Run) {
    let findings = run.findings.clone();
    let rows = |key: &str| findings[key].as_array().map_or(&[][..], Vec::as_slice);
    for limit in rows("pressures") {
        let of = |key: &str| -> Vec<&Value> {
            rows(key)
                .iter()
                .filter(|row| row["pressure"] == limit["pressure"])
                .collect()
        };
        if of("by_delay").is_empty() {
            continue;
        }
        let word = limit["pressure"].as_str().unwrap_or_default();
        let how = match (word, limit["limit"].as_u64().map(Size)) {
            ("none", _) => "all of the file stays cached".into(),
            ("evict", _) => "a thread evicts parts of the file and reads them back".into(),
            (_, Some(size)) => {
                format!("a memory cgroup of {size}, and a thread that takes some of it")
            }
            (_, None) => "a thread that takes memory; see the note".into(),
        };
        run.note(format!("{word}: {how}"));
        run.tables.push(delays(word, &of("by_delay")));
        run.tables.push(kinds(word, &of("cells")));
    }
    run.tables.push(costs(rows("ways")));
    run.tables.push(library(rows("strict")));
    run.note(format!(
        "answer: {}",
        findings["answer"].as_str().unwrap_or_default()
    ));
    // Of all races, and of those in which the page was gone.
    for (name, title, prefix) in [
        ("race", "Reported as cached, and the NOWAIT read missed", ""),
        (
            "race-gone",
            "Reported as cached, and gone before the NOWAIT read",
            "gone/",
        ),
    ] {
        let chart = chart(run, name, title, prefix);
        run.charts.push(chart);
    }
}

/// The share of races against the delay, with a line for each pressure.
fn chart(run: &Run, name: &str, title: &str, prefix: &str) -> Chart {
    let rows = run.findings["by_delay"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let line = |rows: &[Value]| {
        let figure = |row: &Value, key: &str| at(row, &format!("{prefix}{key}"));
        // A log axis cannot show 0: the chart has the upper end of the range instead.
        let never = rows
            .iter()
            .all(|row| figure(row, "share").is_none_or(|share| share == 0.0));
        let key = if never { "high95" } else { "share" };
        let point = |row: &Value| Some((at(row, "waited_us")?, 100.0 * figure(row, key)?));
        let word = rows[0]["pressure"].as_str().unwrap_or_default();
        let name = if never {
            format!("{word}: less than")
        } else {
            word.into()
        };
        Line::new(&name, rows.iter().filter_map(point).collect(), !never)
    };
    Chart {
        name: name.into(),
        title: title.into(),
        subtitle: format!(
            "{}, {} of file; points at 0 are not shown",
            run.machine,
            Size(run.settings["size"].as_u64().unwrap_or_default())
        ),
        x: Axis::log("us from the answer to the read (median)"),
        y: Axis::log("% of the yeses"),
        lines: rows
            .chunk_by(|a, b| a["pressure"] == b["pressure"])
            .map(line)
            .collect(),
        marks: Vec::new(),
    }
}

/// Returns true if two rows have the same values of these keys.
fn alike(a: &Value, b: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| a[*key] == b[*key])
}

/// A value that a row has between other keys.
fn of_row<T: for<'de> Deserialize<'de>>(row: &Value) -> Option<T> {
    serde_json::from_value(row.clone()).ok()
}

/// A whole number of a row.
fn whole(row: &Value, key: &str) -> Entry {
    row[key]
        .as_u64()
        .map_or("-".into(), |n| n.to_string())
        .into()
}

/// The time of a hit and of a miss, for each way to read.
fn costs(ways: &[Value]) -> Table {
    let row = |same: &[Value]| {
        let place = of_row::<Place>(&same[0]).map_or(String::new(), |place| place.to_string());
        let name = format!(
            "{}, {place}",
            same[0]["pressure"].as_str().unwrap_or_default()
        );
        let paid = |way: &str| {
            let paid = same.iter().find(|costs| costs["way"] == way);
            let paid = paid.map(|costs| pair(costs, "hit_ns", "miss_ns"));
            paid.unwrap_or_else(|| "-".into()).into()
        };
        std::iter::once(name.into())
            .chain(["ask", "try", "both"].map(paid))
            .collect()
    };
    let columns = ["fincore + pread", "NOWAIT alone", "fincore + NOWAIT"];
    let groups = ways.chunk_by(|a, b| alike(a, b, &["pressure", "pattern", "block"]));
    Table::new("ns, hit / miss", columns, groups.map(row).collect())
}

/// The reads that the library counted in strict mode.
fn library(strict: &[Value]) -> Table {
    let row = |row: &Value| {
        let counts = ["reads", "hits", "misses", "races"].map(|key| whole(row, key));
        let name = row["pressure"].as_str().unwrap_or_default().into();
        std::iter::once(name)
            .chain(counts)
            .chain([ranged(row).into()])
            .collect()
    };
    let columns = ["reads", "hits", "misses", "races", "% of yes"];
    Table::new(
        "strict, seeky 4K",
        columns,
        strict.iter().map(row).collect(),
    )
}

/// The delay of a row, for people.
fn delay(row: &Value) -> String {
    of_row::<Delay>(&row["delay_us"]).map_or(String::new(), |delay| delay.to_string())
}

/// Counts, shares and costs against the delay.
fn delays(pressure: &str, rows: &[&Value]) -> Table {
    let row = |row: &&Value| {
        let costs = &row["cost_ns"];
        vec![
            delay(row).into(),
            whole(row, "asked"),
            whole(row, "yes"),
            whole(row, "races"),
            ranged(row).into(),
            whole(row, "early"),
            at(row, "waited_us").map_or("-".into(), figures).into(),
            pair(costs, "ask_yes", "ask_no").into(),
            pair(costs, "read_all", "read_short").into(),
        ]
    };
    let columns = [
        "asked",
        "yes",
        "races",
        "% of yes",
        "early",
        "waited us",
        "ask y/n ns",
        "read y/n ns",
    ];
    let title = format!("{pressure}, delay");
    Table::new(title, columns, rows.iter().map(row).collect())
}

/// The share of answers that were yes whose page was gone, by kind of question and delay.
fn kinds(pressure: &str, cells: &[&Value]) -> Table {
    let groups = || cells.chunk_by(|a, b| alike(a, b, &["pattern", "block", "touch"]));
    let row = |kind: &[&Value]| {
        let name = of_row::<Cell>(kind[0]).map_or(String::new(), |cell| cell.to_string());
        let shares = kind.iter().map(|row| {
            let of = if row["gone"].is_null() {
                row
            } else {
                &row["gone"]
            };
            let text = match (at(of, "share"), at(of, "high95")) {
                (Some(0.0), Some(high)) => format!("<{}", percent(high)),
                (Some(share), _) => percent(share),
                _ => "-".into(),
            };
            Entry::from(text)
        });
        std::iter::once(name.into()).chain(shares).collect()
    };
    let columns = groups()
        .next_back()
        .unwrap_or_default()
        .iter()
        .map(|row| delay(row));
    let title = format!("{pressure}, % of yes gone");
    Table::new(title, columns, groups().map(row).collect())
}

/// The answer in words: a sentence for shortage of memory, and one for each other pressure.
fn answer(rows: &[Value]) -> Option<String> {
    let mut sentences = Vec::new();
    for (when, pressures) in [
        (
            "when memory was short",
            &[Pressure::Light, Pressure::Heavy][..],
        ),
        ("without pressure", &[Pressure::None]),
        ("while the file was being evicted", &[Pressure::Evict]),
    ] {
        let belongs = |row: &&Value| pressures.iter().any(|p| row["pressure"] == p.word());
        let rows: Vec<&Value> = rows.iter().filter(belongs).collect();
        let sum = |key: &str| rows.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
        let (races, yes, early) = (sum("races"), sum("yes"), sum("early"));
        if yes == 0 {
            continue;
        }
        let begin = if sentences.is_empty() {
            "The race happened"
        } else {
            "It happened"
        };
        let mut sentence = format!("{begin} {races} times in {yes} yeses {when}");
        if early > 0 {
            let gone = races - early;
            let _ = write!(
                sentence,
                " ({gone} times the page was gone, {early} times the kernel was still reading it)"
            );
        }
        let shares = rows.iter().filter_map(|row| Some((row, at(row, "share")?)));
        let most = shares.max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((row, _)) = most.filter(|(_, share)| *share > 0.0) {
            let _ = write!(
                sentence,
                "; most under `{}` with {} in between: {} % of the yeses",
                row["pressure"].as_str().unwrap_or_default(),
                delay(row),
                ranged(row)
            );
        }
        sentences.push(sentence + ".");
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The share of a row, with its range.
fn ranged(row: &Value) -> String {
    let [share, low, high] = ["share", "low95", "high95"].map(|key| at(row, key).map(percent));
    match (share, low, high) {
        (Some(share), Some(low), Some(high)) => format!("{share} ({low}-{high})"),
        _ => "-".into(),
    }
}

/// A share from 0 to 1 as a percentage, with two significant digits.
fn percent(share: f64) -> String {
    figures(100.0 * share)
}

fn figures(x: f64) -> String {
    match x {
        0.0 => "0".into(),
        x if x >= 9.95 => format!("{x:.0}"),
        x => {
            let decimals = (1.0 - x.log10().floor()).max(0.0) as usize;
            format!("{x:.decimals$}")
        }
    }
}

/// Two whole numbers.
fn pair(row: &Value, a: &str, b: &str) -> String {
    let one = |key: &str| at(row, key).map_or("-".into(), |x| format!("{x:.0}"));
    format!("{}/{}", one(a), one(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_two_significant_digits() {
        let shown = [0.0, 0.000_012_3, 0.0456, 0.5, 3.21, 12.3, 100.0].map(figures);
        assert_eq!(
            shown,
            ["0", "0.000012", "0.046", "0.50", "3.2", "12", "100"]
        );
    }
}
