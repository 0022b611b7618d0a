//! `nowait-bench compare`: two runs of the same area, for example before and after a change.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait_cli::problem::Problem;
use serde::Serialize;
use serde_json::Value;

use crate::harness::cell::{at, more_is_better};
use crate::harness::print::print;
use crate::harness::run::Run;
use crate::harness::table::{Entry, Table};
use nowait_cli::interval::Interval;

/// Compares two runs of one area, by the JSON that they printed
///
/// Each ratio is a figure of NEW divided by that of OLD. The rounds of different runs are not
/// paired, so the range is that of the quotient of both medians' 95 % ranges. A figure has
/// regressed if its whole range is worse by more than --bound.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The JSON of the earlier run
    old: PathBuf,

    /// The JSON of the later run
    new: PathBuf,

    /// How much worse a figure may be, in per cent
    #[arg(long, value_name = "%", default_value_t = 5.0, value_parser = per_cent)]
    bound: f64,

    /// Only figures of this name, for example ops_per_s or lat_us/p99
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    figures: Vec<String>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub const AFTER: &str = "\
JSON (--json): {\"area\", \"bound\" (a fraction), \"regressions\": number, \"ratios\": [{\"cell\", \"contender\",
\"figure\", \"median\", \"low95\", \"high95\", \"regressed\": bool}]}.

Exit codes: 0 no regression, 1 a regression, 2 the runs cannot be compared.";

/// All ratios of two runs.
#[derive(Debug, Serialize)]
struct Comparison {
    area: String,
    bound: f64,
    regressions: usize,
    ratios: Vec<Ratio>,
}

/// A figure of a contender in the new run divided by that in the old run.
#[derive(Debug, Serialize)]
struct Ratio {
    cell: String,
    contender: String,
    figure: String,
    #[serde(flatten)]
    ratio: Interval,
    regressed: bool,
}

fn per_cent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(bound) if (0.0..=1000.0).contains(&bound) => Ok(bound),
        _ => Err("per cent: a number from 0 to 1000".into()),
    }
}

/// Compares the runs and prints their ratios.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    if old.area != new.area {
        return Err(Problem::Usage(format!(
            "{} is a run of {}, {} one of {}: give two runs of the same area",
            args.old.display(),
            old.area,
            args.new.display(),
            new.area
        )));
    }
    let comparison = Comparison::of(&old, &new, args);
    if comparison.ratios.is_empty() {
        return Err(Problem::Usage(
            "the runs have no cell, contender and figure in common: use the same options for both"
                .into(),
        ));
    }
    print(&comparison, args.json, |paint| {
        let mut text = format!("{}\n", comparison.table().text(paint));
        text += &format!(
            "NEW / OLD; a regression is worse by more than {} %: {}\n",
            args.bound, comparison.regressions
        );
        if old.machine != new.machine {
            text += &format!("OLD on {}\nNEW on {}\n", old.machine, new.machine);
        }
        text
    })?;
    Ok(ExitCode::from(u8::from(comparison.regressions > 0)))
}

/// Reads the JSON of a run.
fn read(path: &Path) -> Result<Run, Problem> {
    let shown = path.display();
    let file = File::open(path).map_err(|e| Problem::Usage(format!("{shown}: {e}")))?;
    serde_json::from_reader(BufReader::new(file)).map_err(|e| {
        Problem::Usage(format!(
            "{shown}: {e}: give a file with the output of nowait-bench AREA --json"
        ))
    })
}

impl Comparison {
    fn of(old: &Run, new: &Run, args: &Args) -> Comparison {
        let bound = args.bound / 100.0;
        let wanted = |figure: &&String| args.figures.is_empty() || args.figures.contains(figure);
        let mut ratios = Vec::new();
        for cell in &new.cells {
            let Some(before) = old.cells.iter().find(|old| old.name == cell.name) else {
                continue;
            };
            for contender in &cell.contenders {
                let Some(earlier) = before.contender(&contender.name) else {
                    continue;
                };
                for figure in contender.spread.keys().filter(wanted) {
                    let rounds = |of: &[Value]| of.iter().filter_map(|r| at(r, figure)).collect();
                    let Some(ratio) = quotient(rounds(&contender.rounds), rounds(&earlier.rounds))
                    else {
                        continue;
                    };
                    let regressed = match more_is_better(figure) {
                        true => ratio.high95 < 1.0 / (1.0 + bound),
                        false => ratio.low95 > 1.0 + bound,
                    };
                    ratios.push(Ratio {
                        cell: cell.name.clone(),
                        contender: contender.name.clone(),
                        figure: figure.clone(),
                        ratio,
                        regressed,
                    });
                }
            }
        }
        Comparison {
            area: new.area.clone(),
            bound,
            regressions: ratios.iter().filter(|ratio| ratio.regressed).count(),
            ratios,
        }
    }

    fn table(&self) -> Table {
        let row = |ratio: &Ratio| {
            let mut entry = Entry::ratio(Some(ratio.ratio), more_is_better(&ratio.figure));
            if ratio.regressed {
                entry.text += " regression";
            }
            let name = format!("{} {}", ratio.cell, ratio.contender);
            vec![name.trim().into(), ratio.figure.as_str().into(), entry]
        };
        Table {
            title: self.area.clone(),
            columns: ["", "figure", "NEW / OLD"].map(str::to_owned).into(),
            rows: self.ratios.iter().map(row).collect(),
            ..Table::default()
        }
    }
}

/// The quotient of two medians, with the range that follows from both ranges. `None` if there are
/// no rounds, or if a figure is 0.
fn quotient(mut new: Vec<f64>, mut old: Vec<f64>) -> Option<Interval> {
    let (new, old) = (Interval::of(&mut new), Interval::of(&mut old));
    (new.low95 > 0.0 && old.low95 > 0.0).then(|| Interval {
        median: new.median / old.median,
        low95: new.low95 / old.high95,
        high95: new.high95 / old.low95,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_follows_from_both_ranges() {
        let ratio = quotient(vec![2.0, 4.0, 3.0], vec![1.0, 1.0, 2.0]).unwrap();
        assert_eq!((ratio.low95, ratio.median, ratio.high95), (1.0, 3.0, 4.0));
        assert_eq!(quotient(Vec::new(), vec![1.0]), None);
        assert_eq!(quotient(vec![1.0], vec![0.0]), None);
    }
}
