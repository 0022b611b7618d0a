//! The contenders: the program alone, under `nowait run --keep-cache`, and under nocache.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use super::program::Program;
use crate::harness::contender::{Fit, Named, installed};
use crate::harness::processes::NO_NOWAIT;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The program alone
    Direct,
    /// nowait run --keep-cache
    Nowait,
    /// nocache
    Nocache,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self == Name::Nowait
    }
}

impl Name {
    pub fn fits(self, nowait: &Path) -> Fit {
        match self {
            Name::Direct => Fit::Yes,
            Name::Nowait => {
                let mut command = Command::new(nowait);
                match command.args(["run", "--keep-cache", "--", "true"]).output() {
                    Err(_) => Fit::No(NO_NOWAIT.into()),
                    Ok(said) if !said.stderr.is_empty() || !said.status.success() => {
                        let said = String::from_utf8_lossy(&said.stderr);
                        Fit::No(said.lines().next().unwrap_or_default().to_owned())
                    }
                    Ok(_) => Fit::Yes,
                }
            }
            Name::Nocache => installed("nocache", "nocache"),
        }
    }

    /// The command of a turn.
    pub fn command(self, nowait: &Path, program: Program) -> Command {
        let mut command = match self {
            Name::Direct => Command::new("sh"),
            Name::Nowait => {
                let mut command = Command::new(nowait);
                command.args(["run", "--keep-cache", "--", "sh"]);
                command
            }
            Name::Nocache => {
                let mut command = Command::new("nocache");
                command.arg("sh");
                command
            }
        };
        command.args(["-c", program.script()]);
        command
    }
}
