//! The contenders: the program alone, under `nowait run --keep-cache` by both mechanisms, and under
//! nocache.

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
    /// nowait run --keep-cache, by a control group
    Nowait,
    /// nowait run --keep-cache, where no control group can be made
    Surveys,
    /// nocache
    Nocache,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        matches!(self, Name::Nowait | Name::Surveys)
    }
}

impl Name {
    pub fn fits(self, nowait: &Path) -> Fit {
        match self {
            Name::Direct => Fit::Yes,
            Name::Nowait | Name::Surveys => match self.run(nowait).arg("true").output() {
                Err(_) => Fit::No(NO_NOWAIT.into()),
                Ok(said) if !said.stderr.is_empty() || !said.status.success() => {
                    let said = String::from_utf8_lossy(&said.stderr);
                    Fit::No(said.lines().next().unwrap_or_default().to_owned())
                }
                Ok(_) => Fit::Yes,
            },
            Name::Nocache => installed("nocache", "nocache"),
        }
    }

    /// The command of a turn.
    pub fn command(self, nowait: &Path, program: Program) -> Command {
        let mut command = match self {
            Name::Nowait | Name::Surveys => self.run(nowait),
            Name::Direct => self.in_namespace(),
            Name::Nocache => {
                let mut command = self.in_namespace();
                command.arg("nocache");
                command
            }
        };
        command.arg("sh");
        command.args(["-c", program.script()]);
        command
    }

    fn run(self, nowait: &Path) -> Command {
        let mut command = self.in_namespace();
        command
            .arg(nowait)
            .args(["run", "--wait", "--keep-cache", "--"]);
        command
    }

    /// Runs a command in a mount namespace in which a directory hides the control groups. The one
    /// that needs them has another directory hidden, since the namespace takes time.
    fn in_namespace(self) -> Command {
        const HIDE: &str = r#"mount -t tmpfs none "$0" && exec "$@""#;
        let hidden = match self {
            Name::Nowait => "/sys/firmware",
            _ => "/sys/fs/cgroup",
        };
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", HIDE, hidden]);
        command
    }
}
