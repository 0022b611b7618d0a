//! `nowait-bench chart`: a chart of a report as an SVG file, for a document.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use nowait_cli::problem::Problem;
use serde_json::Value;

use crate::harness::plot::Chart;

/// Draws a chart of a report as an SVG file
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The report.json of a report
    #[arg(value_name = "REPORT")]
    report: PathBuf,

    /// The part of the report
    #[arg(value_name = "PART")]
    part: String,

    /// The name of the chart
    #[arg(value_name = "CHART")]
    chart: String,

    /// The title, in place of the chart's own
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// The second line of the title, in place of the machine and the settings
    #[arg(long, value_name = "TEXT")]
    subtitle: Option<String>,

    /// The label of the x axis, in place of the chart's own
    #[arg(long, value_name = "TEXT")]
    x: Option<String>,

    /// Write the name of each line beside it, and draw no legend
    #[arg(long)]
    label_lines: bool,

    /// Draw only these lines, with these names
    #[arg(long, value_name = "LINE=NAME,…", value_delimiter = ',', value_parser = renamed)]
    lines: Vec<(String, String)>,
}

pub const AFTER: &str = "\
The file is written to standard output.

Exit codes: 0 done, 1 failed, 2 usage.";

fn renamed(text: &str) -> Result<(String, String), String> {
    let (line, name) = text.split_once('=').ok_or("write LINE=NAME")?;
    Ok((line.to_owned(), name.to_owned()))
}

/// Prints the chart.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let failed = |why: String| Problem::Failed(format!("{}: {why}", args.report.display()));
    let text = fs::read_to_string(&args.report).map_err(|e| failed(e.to_string()))?;
    let report: Value = serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?;
    let charts = report.get(&args.part).and_then(|part| part.get("charts"));
    let charts = charts.ok_or_else(|| failed(format!("there is no part {}", args.part)))?;
    let charts: Vec<Chart> =
        serde_json::from_value(charts.clone()).map_err(|e| failed(e.to_string()))?;
    let names: Vec<_> = charts.iter().map(|chart| chart.name.clone()).collect();
    let chart = charts.into_iter().find(|chart| chart.name == args.chart);
    let mut chart = chart.ok_or_else(|| {
        let names = names.join(", ");
        failed(format!(
            "there is no chart {}; there are {names}",
            args.chart
        ))
    })?;
    for (text, place) in [
        (&args.title, &mut chart.title),
        (&args.subtitle, &mut chart.subtitle),
        (&args.x, &mut chart.x.label),
    ] {
        if let Some(text) = text {
            place.clone_from(text);
        }
    }
    if !args.lines.is_empty() {
        let mut kept = Vec::new();
        for (line, name) in &args.lines {
            let found = chart.lines.iter().find(|other| other.name == *line);
            let mut found = found
                .ok_or_else(|| failed(format!("there is no line {line} in {}", args.chart)))?
                .clone();
            found.name.clone_from(name);
            kept.push(found);
        }
        chart.lines = kept;
    }
    let svg = match args.label_lines {
        true => chart.labelled_svg(),
        false => chart.svg(),
    };
    print!("{svg}");
    Ok(ExitCode::SUCCESS)
}
