//! Contenders that did the same work: their rounds, medians and ratios.
//!
//! A figure below an object has a path for its name: `lat_us/p99`. A ratio is the figure of A
//! divided by the figure of B in the same round; `median`, `low95` and `high95` are over the
//! rounds, and `coverage` is the probability that the range holds the true median. There are ratios
//! of each of nowait's contenders to every other, and of every contender to the cell's base.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use nowait_cli::interval::{Interval, middle};

/// Fewer rounds than this make no ratio.
pub const FEWEST: usize = 3;

/// Contenders that did the same work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cell {
    pub name: String,
    /// The title of its tables.
    #[serde(skip)]
    pub title: String,
    pub parameters: Map<String, Value>,
    pub contenders: Vec<Contender>,
    pub absent: Vec<Absent>,
    pub ratios: BTreeMap<String, Ratio>,
}

/// One contender of one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contender {
    pub name: String,
    /// True for nowait.
    pub ours: bool,
    pub rounds: Vec<Value>,
    pub median: Value,
    pub spread: BTreeMap<String, Spread>,
}

/// A contender that cannot take part, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    pub name: String,
    pub why: String,
}

/// The smallest and the largest value over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub min: f64,
    pub max: f64,
}

/// The figures of one contender divided by those of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub rounds: usize,
    pub coverage: f64,
    #[serde(flatten)]
    pub figures: BTreeMap<String, Interval>,
}

impl Cell {
    /// A cell without results. `parameters` is an object.
    pub fn new(name: impl Into<String>, parameters: Value) -> Cell {
        let name = name.into();
        Cell {
            title: name.clone(),
            name,
            parameters: object(parameters),
            ..Cell::default()
        }
    }

    /// Adds a contender with its rounds, if it has any.
    pub fn add<R: Serialize>(&mut self, name: &str, ours: bool, rounds: &[R]) {
        let rounds: Vec<Value> = rounds.iter().map(|round| json!(round)).collect();
        if !rounds.is_empty() {
            self.contenders.push(Contender {
                name: name.into(),
                ours,
                median: median(&rounds),
                spread: BTreeMap::new(),
                rounds,
            });
        }
    }

    /// Computes the spreads and ratios of these figures: the ratios of nowait's contenders to all
    /// others, and of all contenders to the bases.
    pub fn compare(&mut self, figures: &[&str], bases: &[&str]) {
        for contender in &mut self.contenders {
            for figure in figures {
                let all = || {
                    contender
                        .rounds
                        .iter()
                        .filter_map(|round| at(round, figure))
                };
                if let (Some(min), Some(max)) = (all().reduce(f64::min), all().reduce(f64::max)) {
                    let spread = Spread { min, max };
                    contender.spread.insert((*figure).to_owned(), spread);
                }
            }
        }
        for a in &self.contenders {
            for b in &self.contenders {
                if a.name == b.name || !(a.ours || bases.contains(&b.name.as_str())) {
                    continue;
                }
                if let Some(ratio) = Ratio::of(a, b, figures) {
                    self.ratios.insert(format!("{}/{}", a.name, b.name), ratio);
                }
            }
        }
    }

    /// The contender of this name.
    pub fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.iter().find(|c| c.name == name)
    }

    /// The contender with the most of a figure, of those that `takes_part` accepts.
    pub fn best(
        &self,
        figure: &str,
        takes_part: impl Fn(&Contender) -> bool,
    ) -> Option<&Contender> {
        let those = self.contenders.iter().filter(|c| takes_part(c));
        let rates = those.filter_map(|c| Some((c.figure(figure)?, c)));
        let most = rates.max_by(|a, b| a.0.total_cmp(&b.0));
        most.map(|(_, contender)| contender)
    }

    /// The name of that contender, which also becomes the parameter `best`.
    pub fn name_best(&mut self, figure: &str, takes_part: impl Fn(&Contender) -> bool) -> String {
        let best = self
            .best(figure, takes_part)
            .map(|contender| contender.name.clone());
        self.parameters.insert("best".into(), json!(best));
        best.unwrap_or_default()
    }

    /// A figure of A divided by that of B.
    pub fn ratio(&self, a: &str, b: &str, figure: &str) -> Option<Interval> {
        let ratio = self.ratios.get(&format!("{a}/{b}"))?;
        ratio.figures.get(figure).copied()
    }
}

impl Contender {
    /// The median of a figure over the rounds.
    pub fn figure(&self, figure: &str) -> Option<f64> {
        at(&self.median, figure)
    }
}

impl Ratio {
    /// The ratios of A to B, paired by round; `None` if there are too few rounds.
    pub fn of(a: &Contender, b: &Contender, figures: &[&str]) -> Option<Ratio> {
        let rounds = a.rounds.len().min(b.rounds.len());
        let pair = |figure: &str| -> Option<Interval> {
            let each = a.rounds.iter().zip(&b.rounds);
            let each: Option<Vec<f64>> = each
                .map(|(a, b)| Some(at(a, figure)? / at(b, figure)?.max(1e-12)))
                .collect();
            Some(Interval::of(&mut each?))
        };
        let figures = figures
            .iter()
            .filter_map(|figure| Some(((*figure).to_owned(), pair(figure)?)));
        (rounds >= FEWEST).then(|| Ratio {
            rounds,
            coverage: Interval::coverage(rounds),
            figures: figures.collect(),
        })
    }
}

/// The keys of an object; no keys of another value.
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(keys) => keys,
        _ => Map::new(),
    }
}

/// The figure at a path, for example `lat_us/p99`.
pub fn at(figures: &Value, path: &str) -> Option<f64> {
    let mut value = figures;
    for key in path.split('/') {
        value = value.get(key)?;
    }
    value.as_f64()
}

/// Returns true if a contender with more of this figure is the better one: rates. Other figures are
/// times and costs.
pub fn more_is_better(figure: &str) -> bool {
    figure.ends_with("per_s") || figure.ends_with("iops")
}

/// The median of each figure, in the shape of the rounds. A value that is not a number is kept if
/// it is the same in all rounds.
pub fn median(rounds: &[Value]) -> Value {
    match rounds.first() {
        Some(Value::Object(first)) => {
            let mut all = Map::new();
            for key in first.keys() {
                let each: Vec<Value> = rounds.iter().filter_map(|v| v.get(key).cloned()).collect();
                all.insert(key.clone(), median(&each));
            }
            Value::Object(all)
        }
        Some(Value::Number(_)) => {
            let mut figures: Vec<f64> = rounds.iter().filter_map(Value::as_f64).collect();
            middle(&mut figures).into()
        }
        Some(other) if rounds.iter().all(|v| v == other) => other.clone(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_keep_the_shape() {
        let rounds = [
            json!({"a": 1, "b": {"c": 9.0}, "s": "x"}),
            json!({"a": 5, "b": {"c": 1.0}, "s": "x"}),
            json!({"a": 3, "b": {"c": 2.0}, "s": "x"}),
        ];
        let want = json!({"a": 3.0, "b": {"c": 2.0}, "s": "x"});
        assert_eq!(median(&rounds), want);
        assert_eq!(median(&rounds[..2])["a"], 3.0);
        assert_eq!(median(&[]), Value::Null);
    }

    #[test]
    fn rounds_are_paired() {
        let rounds = |rates: &[f64]| -> Vec<Value> {
            let round = |rate: &f64| json!({"ops_per_s": rate, "lat_us": {"p99": 1.0 / rate}});
            rates.iter().map(round).collect()
        };
        let mut cell = Cell::default();
        // The machine gets slower and slower; within a round A is twice as fast.
        cell.add("a", true, &rounds(&[8.0, 4.0, 2.0]));
        cell.add("b", false, &rounds(&[4.0, 2.0, 1.0]));
        cell.add("c", false, &rounds(&[4.0, 2.0]));
        cell.add("none", false, &rounds(&[]));
        cell.compare(&["ops_per_s", "lat_us/p99", "missing"], &["c"]);
        let rate = cell.ratio("a", "b", "ops_per_s").unwrap();
        assert_eq!((rate.low95, rate.median, rate.high95), (2.0, 2.0, 2.0));
        assert_eq!(cell.ratio("a", "b", "lat_us/p99").unwrap().median, 0.5);
        assert_eq!(cell.ratio("a", "b", "missing"), None);
        assert_eq!(cell.ratio("a", "c", "ops_per_s"), None, "two rounds");
        assert_eq!(
            cell.ratios.len(),
            1,
            "b is not ours, and not beside the base"
        );
        assert_eq!(cell.contenders.len(), 3);
    }
}
