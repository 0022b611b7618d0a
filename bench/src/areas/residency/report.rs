//! The results: counts and shares of races, the cost of each way to read, charts, and the answer in
//! words. The verb's help has the shape of `findings`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::cell::{Cell, Outcome, Paid, Place, Strict, Tally, Turn, Way};
use super::pressure::Pressure;
use super::share::{Count, Share};
use crate::harness::delay::Delay;
use crate::harness::interval::middle;
use crate::harness::plot::{Axis, Chart, Line, Stroke};
use crate::harness::run::Run;
use crate::harness::table::{Entry, Table};
use nowait_cli::size::Size;

/// All that was measured under one pressure.
pub struct Pressed {
    pub pressure: Pressure,
    /// The limit of the cgroup in the last round, in bytes; `None` without a cgroup.
    pub limit: Option<u64>,
    /// The number of a turn, its round, and its result.
    pub outcomes: Vec<(usize, usize, Outcome)>,
}

impl Pressed {
    pub fn new(pressure: Pressure) -> Pressed {
        Pressed {
            pressure,
            limit: None,
            outcomes: Vec::new(),
        }
    }
}

/// All results: the findings of the run.
#[derive(Serialize)]
pub struct Report {
    answer: String,
    pressures: Vec<Limit>,
    cells: Vec<Row<Cell>>,
    /// The sums over all kinds of questions.
    by_delay: Vec<Row<AllKinds>>,
    ways: Vec<Costs>,
    strict: Vec<StrictRow>,
}

/// The limit of memory under one pressure.
#[derive(Serialize)]
struct Limit {
    pressure: Pressure,
    /// The limit of the cgroup in bytes; `null` without a cgroup.
    limit: Option<u64>,
}

/// The key of a row of `by_delay` within its pressure.
#[derive(Clone, Copy, PartialEq, Serialize)]
struct AllKinds {
    delay_us: Delay,
}

/// The results of one kind of question over all rounds.
#[derive(Serialize)]
struct Row<K> {
    pressure: Pressure,
    #[serde(flatten)]
    kind: K,
    #[serde(flatten)]
    figures: Figures,
}

/// Sums, the share of races with its range, and medians of the rounds' medians.
#[derive(Serialize)]
struct Figures {
    asked: u64,
    yes: u64,
    races: u64,
    at_touch: u64,
    early: Option<u64>,
    #[serde(flatten)]
    share: Option<Share>,
    /// The share of races that were not early.
    gone: Option<Share>,
    waited_us: Option<f64>,
    cost_ns: CostNs,
    rounds: Vec<InRound>,
}

#[derive(Serialize)]
struct CostNs {
    ask_yes: Option<f64>,
    ask_no: Option<f64>,
    read_all: Option<f64>,
    read_short: Option<f64>,
}

/// The counts of one round.
#[derive(Clone, Default, Serialize)]
struct InRound {
    asked: u64,
    yes: u64,
    races: u64,
    early: Option<u64>,
}

/// The cost of a way to read.
#[derive(Serialize)]
struct Costs {
    pressure: Pressure,
    #[serde(flatten)]
    place: Place,
    way: Way,
    #[serde(flatten)]
    paid: Paid,
}

/// The counts of the library.
#[derive(Serialize)]
struct StrictRow {
    pressure: Pressure,
    #[serde(flatten)]
    strict: Strict,
    /// The share of races in the reads whose pages were reported as cached: hits and races.
    #[serde(flatten)]
    share: Option<Share>,
}

impl Figures {
    /// The figures of turns with their rounds; `None` if there are no turns.
    fn of(tallies: &[(usize, &Tally)]) -> Option<Figures> {
        let last = tallies.iter().map(|(round, _)| *round).max()?;
        let mut rounds = vec![InRound::default(); last + 1];
        for (round, tally) in tallies {
            let sum = &mut rounds[*round];
            sum.asked += tally.asked;
            sum.yes += tally.yes;
            sum.races += tally.races;
            sum.early = match (sum.early, tally.early) {
                (a, None) => a,
                (a, Some(b)) => Some(a.unwrap_or(0) + b),
            };
        }
        let share = |races: fn(&InRound) -> Option<u64>| {
            let of = |round: &InRound| {
                Some(Count {
                    of: round.yes,
                    happened: races(round)?,
                })
            };
            let played = rounds.iter().filter(|round| round.asked > 0);
            let counts: Option<Vec<Count>> = played.map(of).collect();
            Share::of(&counts?)
        };
        let sum = |figure: fn(&Tally) -> u64| tallies.iter().map(|(_, t)| figure(t)).sum();
        let median = |figure: fn(&Tally) -> Option<f64>| {
            let mut figures: Vec<f64> = tallies.iter().filter_map(|(_, t)| figure(t)).collect();
            (!figures.is_empty()).then(|| middle(&mut figures))
        };
        Some(Figures {
            asked: sum(|t| t.asked),
            yes: sum(|t| t.yes),
            races: sum(|t| t.races),
            at_touch: sum(|t| t.at_touch),
            early: tallies
                .iter()
                .filter_map(|(_, t)| t.early)
                .reduce(|a, b| a + b),
            share: share(|round| Some(round.races)),
            gone: share(|round| Some(round.races - round.early?)),
            waited_us: median(|t| t.waited_us),
            cost_ns: CostNs {
                ask_yes: median(|t| t.ask_yes_ns),
                ask_no: median(|t| t.ask_no_ns),
                read_all: median(|t| t.read_all_ns),
                read_short: median(|t| t.read_short_ns),
            },
            rounds,
        })
    }
}

impl Pressed {
    /// The turns of this kind of question, with their rounds.
    fn tallies(&self, turns: &[Turn], is: impl Fn(&Cell) -> bool) -> Vec<(usize, &Tally)> {
        self.outcomes
            .iter()
            .filter_map(
                |(number, round, outcome)| match (&turns[*number], outcome) {
                    (Turn::Race(cell), Outcome::Race(tally)) if is(cell) => Some((*round, tally)),
                    _ => None,
                },
            )
            .collect()
    }

    fn row<K>(&self, turns: &[Turn], kind: K, is: impl Fn(&Cell) -> bool) -> Option<Row<K>> {
        Some(Row {
            pressure: self.pressure,
            kind,
            figures: Figures::of(&self.tallies(turns, is))?,
        })
    }

    fn paid(&self, turn: usize) -> Option<Paid> {
        let paid: Vec<&Paid> = self
            .outcomes
            .iter()
            .filter_map(|(number, _, outcome)| match outcome {
                Outcome::Cost(paid) if *number == turn => Some(paid),
                _ => None,
            })
            .collect();
        let sum = |figure: fn(&Paid) -> u64| paid.iter().map(|p| figure(p)).sum();
        let median = |figure: fn(&Paid) -> Option<f64>| {
            let mut figures: Vec<f64> = paid.iter().filter_map(|p| figure(p)).collect();
            (!figures.is_empty()).then(|| middle(&mut figures))
        };
        (!paid.is_empty()).then(|| Paid {
            hits: sum(|p| p.hits),
            misses: sum(|p| p.misses),
            races: sum(|p| p.races),
            hit_ns: median(|p| p.hit_ns),
            hit_p99_ns: median(|p| p.hit_p99_ns),
            miss_ns: median(|p| p.miss_ns),
        })
    }

    fn strict(&self) -> Option<StrictRow> {
        let rounds: Vec<&Strict> = self
            .outcomes
            .iter()
            .filter_map(|(_, _, outcome)| match outcome {
                Outcome::Strict(strict) => Some(strict),
                _ => None,
            })
            .collect();
        let counts: Vec<Count> = rounds
            .iter()
            .map(|s| Count {
                of: s.hits + s.races,
                happened: s.races,
            })
            .collect();
        let sum = |figure: fn(&Strict) -> u64| rounds.iter().map(|s| figure(s)).sum();
        (!rounds.is_empty()).then(|| StrictRow {
            pressure: self.pressure,
            strict: Strict {
                reads: sum(|s| s.reads),
                hits: sum(|s| s.hits),
                misses: sum(|s| s.misses),
                races: sum(|s| s.races),
            },
            share: Share::of(&counts),
        })
    }
}

impl Report {
    /// The results; `None` if no question was answered.
    pub fn new(turns: &[Turn], pressed: &[Pressed]) -> Option<Report> {
        let mut cells = Vec::new();
        let mut by_delay: Vec<Row<AllKinds>> = Vec::new();
        let mut ways = Vec::new();
        for pressed in pressed {
            for (number, turn) in turns.iter().enumerate() {
                match *turn {
                    Turn::Race(cell) => {
                        cells.extend(pressed.row(turns, cell, |other| *other == cell));
                        let kind = AllKinds {
                            delay_us: cell.delay_us,
                        };
                        let known = by_delay
                            .iter()
                            .any(|row| row.pressure == pressed.pressure && row.kind == kind);
                        if !known {
                            let all = |other: &Cell| other.delay_us == cell.delay_us;
                            by_delay.extend(pressed.row(turns, kind, all));
                        }
                    }
                    Turn::Cost(place, way) => ways.extend(pressed.paid(number).map(|paid| Costs {
                        pressure: pressed.pressure,
                        place,
                        way,
                        paid,
                    })),
                    Turn::Strict => {}
                }
            }
        }
        Some(Report {
            answer: answer(&by_delay)?,
            pressures: pressed
                .iter()
                .map(|p| Limit {
                    pressure: p.pressure,
                    limit: p.limit,
                })
                .collect(),
            strict: pressed.iter().filter_map(Pressed::strict).collect(),
            cells,
            by_delay,
            ways,
        })
    }

    /// Adds the results to a run.
    pub fn add_to(&self, run: &mut Run) {
        for limit in &self.pressures {
            let rows: Vec<_> = of(&self.by_delay, limit.pressure).collect();
            if rows.is_empty() {
                continue;
            }
            let (word, allowed) = (limit.pressure.word(), limit.limit.map(Size));
            let how = match (limit.pressure, allowed) {
                (Pressure::None, _) => "all of the file stays cached".into(),
                (Pressure::Evict, _) => {
                    "a thread evicts parts of the file and reads them back".into()
                }
                (_, Some(size)) => {
                    format!("a memory cgroup of {size}, and a thread that takes some of it")
                }
                (_, None) => "a thread that takes memory; see the note".into(),
            };
            run.note(format!("{word}: {how}"));
            run.tables.push(delays(word, &rows));
            let cells: Vec<_> = of(&self.cells, limit.pressure).collect();
            run.tables.push(kinds(word, &cells));
        }
        run.tables.push(self.costs());
        run.tables.push(self.library());
        run.note(format!("answer: {}", self.answer));
        run.charts.extend(self.charts(run));
        if let Ok(Value::Object(findings)) = serde_json::to_value(self) {
            run.findings = findings;
        }
    }

    /// The time of a hit and of a miss, for each way to read.
    fn costs(&self) -> Table {
        let mut rows = Vec::new();
        let alike = |a: &Costs, b: &Costs| a.pressure == b.pressure && a.place == b.place;
        for same in self.ways.chunk_by(alike) {
            let name = format!("{}, {}", same[0].pressure.word(), same[0].place);
            let paid = |way: Way| -> Entry {
                let paid = same.iter().find(|costs| costs.way == way);
                let paid = paid.map(|costs| pair(costs.paid.hit_ns, costs.paid.miss_ns));
                paid.unwrap_or_else(|| "-".into()).into()
            };
            let ways = [Way::Ask, Way::Try, Way::Both].map(paid);
            rows.push([vec![name.into()], ways.into()].concat());
        }
        table(
            "ns, hit / miss",
            &["fincore + pread", "NOWAIT alone", "fincore + NOWAIT"],
            rows,
        )
    }

    /// The reads that the library counted in strict mode.
    fn library(&self) -> Table {
        let row = |row: &StrictRow| {
            let Strict {
                reads,
                hits,
                misses,
                races,
            } = row.strict;
            let counts = [reads, hits, misses, races].map(|n| Entry::from(n.to_string()));
            let share = row.share.as_ref().map_or("-".into(), ranged);
            [
                vec![row.pressure.word().into()],
                counts.into(),
                vec![share.into()],
            ]
            .concat()
        };
        table(
            "strict, seeky 4K",
            &["reads", "hits", "misses", "races", "% of yes"],
            self.strict.iter().map(row).collect(),
        )
    }

    /// Two charts of the share of races against the delay, with a line for each pressure: of all races,
    /// and of those in which the page was gone.
    fn charts(&self, run: &Run) -> [Chart; 2] {
        let all = "Reported as cached, and the NOWAIT read missed";
        let gone = "Reported as cached, and gone before the NOWAIT read";
        [
            self.chart("race", all, run, |figures| figures.share),
            self.chart("race-gone", gone, run, |figures| figures.gone),
        ]
    }

    fn chart(
        &self,
        name: &str,
        title: &str,
        run: &Run,
        share: fn(&Figures) -> Option<Share>,
    ) -> Chart {
        let lines = self.pressures.iter().map(|limit| {
            let shares: Vec<(f64, Share)> = of(&self.by_delay, limit.pressure)
                .filter_map(|row| Some((row.figures.waited_us?, share(&row.figures)?)))
                .collect();
            let word = limit.pressure.word();
            // A log axis cannot show 0. It shows the upper end of the range instead.
            let never = shares.iter().all(|(_, share)| share.share == 0.0);
            Line {
                name: if never {
                    format!("{word}: less than")
                } else {
                    word.into()
                },
                points: shares
                    .iter()
                    .map(|(us, s)| (*us, 100.0 * if never { s.high95 } else { s.share }))
                    .collect(),
                stroke: if never { Stroke::Dashed } else { Stroke::Solid },
            }
        });
        Chart {
            name: name.into(),
            title: title.into(),
            subtitle: format!(
                "{}, {} of file; points at 0 are not shown",
                run.machine,
                Size(run.settings["size"].as_u64().unwrap_or_default())
            ),
            x: Axis {
                label: "us from the answer to the read (median)".into(),
                log: true,
            },
            y: Axis {
                label: "% of the yeses".into(),
                log: true,
            },
            lines: lines.collect(),
            marks: Vec::new(),
        }
    }
}

fn of<K>(rows: &[Row<K>], pressure: Pressure) -> impl Iterator<Item = &Row<K>> {
    rows.iter().filter(move |row| row.pressure == pressure)
}

/// A table with an empty head over its first column.
fn table(title: &str, columns: &[&str], rows: Vec<Vec<Entry>>) -> Table {
    let columns = [&[""], columns].concat();
    Table {
        title: title.into(),
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows,
        ..Table::default()
    }
}

/// Counts, shares and costs against the delay.
fn delays(pressure: &str, rows: &[&Row<AllKinds>]) -> Table {
    let row = |row: &&Row<AllKinds>| {
        let f = &row.figures;
        vec![
            row.kind.delay_us.to_string().into(),
            f.asked.to_string().into(),
            f.yes.to_string().into(),
            f.races.to_string().into(),
            f.share.as_ref().map_or("-".into(), ranged).into(),
            f.early.map_or("-".into(), |n| n.to_string()).into(),
            f.waited_us.map_or("-".into(), figures).into(),
            pair(f.cost_ns.ask_yes, f.cost_ns.ask_no).into(),
            pair(f.cost_ns.read_all, f.cost_ns.read_short).into(),
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
    table(&title, &columns, rows.iter().map(row).collect())
}

/// The share of answers that were yes whose page was gone, by kind of question and delay.
fn kinds(pressure: &str, cells: &[&Row<Cell>]) -> Table {
    let alike = |a: &&Row<Cell>, b: &&Row<Cell>| {
        a.kind.place == b.kind.place && a.kind.touch == b.kind.touch
    };
    let mut columns = Vec::new();
    let mut rows = Vec::new();
    for kind in cells.chunk_by(alike) {
        let delays = kind.iter().map(|row| row.kind.delay_us.to_string());
        columns = delays.collect();
        let shown = kind.iter().map(|row| {
            let share = match row.figures.gone.or(row.figures.share) {
                None => "-".into(),
                Some(s) if s.share == 0.0 => format!("<{}", percent(s.high95)),
                Some(s) => percent(s.share),
            };
            Entry::from(share)
        });
        let name = Entry::from(kind[0].kind.to_string());
        rows.push(std::iter::once(name).chain(shown).collect());
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    table(&format!("{pressure}, % of yes gone"), &columns, rows)
}

/// The answer in words: a sentence for shortage of memory, and one for each other pressure.
fn answer(rows: &[Row<AllKinds>]) -> Option<String> {
    let short = |p: Pressure| matches!(p, Pressure::Light | Pressure::Heavy);
    let groups: [(&str, &dyn Fn(Pressure) -> bool); 3] = [
        ("when memory was short", &short),
        ("without pressure", &|p| p == Pressure::None),
        ("while the file was being evicted", &|p| {
            p == Pressure::Evict
        }),
    ];
    let mut sentences = Vec::new();
    for (when, belongs) in groups {
        let rows: Vec<_> = rows.iter().filter(|row| belongs(row.pressure)).collect();
        let sum =
            |figure: fn(&Figures) -> u64| rows.iter().map(|r| figure(&r.figures)).sum::<u64>();
        let (races, yes, early) = (
            sum(|f| f.races),
            sum(|f| f.yes),
            sum(|f| f.early.unwrap_or(0)),
        );
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
        let most = rows
            .iter()
            .filter_map(|row| Some((row, row.figures.share?)))
            .filter(|(_, share)| share.share > 0.0)
            .max_by(|a, b| a.1.share.total_cmp(&b.1.share));
        if let Some((row, share)) = most {
            let _ = write!(
                sentence,
                "; most under `{}` with {} in between: {} % of the yeses",
                row.pressure.word(),
                row.kind.delay_us,
                ranged(&share)
            );
        }
        sentences.push(sentence + ".");
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn ranged(share: &Share) -> String {
    format!(
        "{} ({}-{})",
        percent(share.share),
        percent(share.low95),
        percent(share.high95)
    )
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
fn pair(a: Option<f64>, b: Option<f64>) -> String {
    let one = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.0}"));
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
