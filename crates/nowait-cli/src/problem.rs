//! The reasons for which a verb stops early, and the exit code of each.

use std::fmt::{self, Display};
use std::process::ExitCode;

use crate::messages::say;

/// The reason why a verb stopped early.
#[derive(Debug)]
pub enum Problem {
    /// Wrong usage: exit code 2.
    Usage(String),
    /// An operation failed: exit code 1.
    Failed(String),
    /// Ctrl-C, before anything was done: exit code 130.
    Interrupted,
    /// A program could not be run: the exit code is 126 or 127, as in shells.
    NotRun(u8, String),
    /// The reader of standard output closed it: exit code 0, without a message.
    Closed,
}

/// The exit code of an interrupted verb, as in shells: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

impl Problem {
    /// An operation that failed: `what` is the operation or its object.
    pub fn of(what: impl Display, error: impl Display) -> Problem {
        Problem::Failed(format!("{what}: {error}"))
    }

    /// Prints the message on standard error and returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.report_as("nowait")
    }

    /// The same for a program of another name.
    pub fn report_as(&self, program: &str) -> ExitCode {
        let code = match self {
            Problem::Usage(_) => 2,
            Problem::Failed(_) => 1,
            Problem::Interrupted => INTERRUPTED,
            Problem::NotRun(code, _) => *code,
            Problem::Closed => return ExitCode::SUCCESS,
        };
        say(format_args!("{program}: {self}"));
        ExitCode::from(code)
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::Usage(message) | Problem::Failed(message) | Problem::NotRun(_, message) => {
                message
            }
            Problem::Interrupted => "interrupted before anything was done",
            Problem::Closed => "standard output was closed",
        })
    }
}

impl From<nowait_residency::Error> for Problem {
    fn from(error: nowait_residency::Error) -> Problem {
        nowait::Error::from(error).into()
    }
}

impl From<nowait::Error> for Problem {
    fn from(error: nowait::Error) -> Problem {
        Problem::Failed(error.to_string())
    }
}
