//! The option on output that all areas share, and the end of every measurement.

use std::process::ExitCode;

use nowait_cli::problem::{INTERRUPTED, Problem};

use super::print::print;
use super::run::Run;

/// The form of the results.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Prints the run and returns the exit code.
    pub fn finish(&self, run: &Run) -> Result<ExitCode, Problem> {
        if run.is_empty() && run.interrupted {
            return Err(Problem::Interrupted);
        }
        if run.is_empty() {
            let why = run.notes.join("; ");
            return Err(Problem::Failed(format!("nothing was measured: {why}")));
        }
        print(run, self.json, |paint| run.text(paint))?;
        Ok(match run.interrupted {
            true => ExitCode::from(INTERRUPTED),
            false => ExitCode::SUCCESS,
        })
    }
}
