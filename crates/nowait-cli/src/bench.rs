//! `nowait bench`: contenders side by side, interleaved, with ratios.

use std::process::ExitCode;

/// Measures reads beside what people use today.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_: &Args) -> Result<ExitCode, String> {
    Ok(ExitCode::SUCCESS)
}
