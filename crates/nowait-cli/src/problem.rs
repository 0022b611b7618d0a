//! Why a verb stops before its end, and the exit code of each reason.

use std::fmt::Display;
use std::process::ExitCode;

/// What keeps a verb from going on.
#[derive(Debug)]
pub enum Problem {
    /// What was asked for makes no sense: exit code 2.
    Usage(String),
    /// Something failed: exit code 1.
    Failed(String),
    /// Ctrl-C, before anything was done: exit code 130.
    Interrupted,
    /// Whoever reads standard output has read enough: exit code 0, and nothing is said.
    Closed,
}

/// The exit code of an interrupted verb, as shells have it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

impl Problem {
    /// A failure of an operation on something.
    pub fn of(what: impl Display, error: impl Display) -> Problem {
        Problem::Failed(format!("{what}: {error}"))
    }

    /// Says it on standard error.
    pub fn report(&self) -> ExitCode {
        let (message, code) = match self {
            Problem::Usage(message) => (message.as_str(), 2),
            Problem::Failed(message) => (message.as_str(), 1),
            Problem::Interrupted => ("interrupted before anything was done", INTERRUPTED),
            Problem::Closed => return ExitCode::SUCCESS,
        };
        eprintln!("nowait: {message}");
        ExitCode::from(code)
    }
}

impl From<nowait::Error> for Problem {
    fn from(error: nowait::Error) -> Problem {
        Problem::Failed(error.to_string())
    }
}
