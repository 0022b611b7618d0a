//! The options on output that all areas share, and the end of every measurement.

use std::process::ExitCode;

use nowait_cli::problem::{INTERRUPTED, Problem};

use super::plot::Svg;
use super::print::print;
use super::run::Run;

/// The form of the results.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Print Markdown instead of tables
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    #[command(flatten)]
    svg: Svg,
}

impl Output {
    /// Checks that charts can be written, before time is spent on measuring.
    pub fn prepare(&self) -> Result<(), Problem> {
        self.svg.prepare().map_err(Problem::Failed)
    }

    /// Draws the charts, prints the run and returns the exit code.
    pub fn finish(&self, mut run: Run) -> Result<ExitCode, Problem> {
        if run.is_empty() && run.interrupted {
            return Err(Problem::Interrupted);
        }
        if run.is_empty() {
            let why = run.notes.join("; ");
            return Err(Problem::Failed(format!("nothing was measured: {why}")));
        }
        if run.charts.is_empty() && self.svg.is_wanted() {
            run.note("--svg: this run has no chart");
        }
        for chart in std::mem::take(&mut run.charts) {
            let drawn = self.svg.draw(&chart.name, &chart);
            if let Some(path) = drawn.map_err(Problem::Failed)? {
                run.note(format!("drawn: {}", path.display()));
            }
            run.charts.push(chart);
        }
        match self.markdown {
            true => print(&run, false, |_| run.markdown())?,
            false => print(&run, self.json, |paint| run.text(paint))?,
        }
        Ok(match run.interrupted {
            true => ExitCode::from(INTERRUPTED),
            false => ExitCode::SUCCESS,
        })
    }
}
