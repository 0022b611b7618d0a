//! `nowait doctor`: what kernel, sandbox and filesystem allow here, and what that means.

use std::process::ExitCode;

/// What this kernel, this sandbox and the filesystem of a path allow.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_: &Args) -> Result<ExitCode, String> {
    Ok(ExitCode::SUCCESS)
}
