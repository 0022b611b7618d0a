//! The contenders: the program alone, under `nowait run`, and beside `nowait warm --metadata`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use nowait_cli::problem::Problem;

use super::workload::Program;
use crate::harness::contender::{Fit, Named};
use crate::harness::processes::{LIBRARIES, NO_NOWAIT, find_nowait};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The program alone
    Direct,
    /// nowait run --ahead; for restic nowait run --walk
    Run,
    /// nowait run --ahead --data, for tar, cp, grep and restic
    Data,
    /// nowait run --learn, which has learnt a run, in the area programs
    Learn,
    /// nowait warm --metadata, started at the same time as the program
    Warm,
}

/// The programs and libraries that the contenders need.
#[derive(Clone, Debug)]
pub struct Tools {
    nowait: PathBuf,
    libraries: Option<PathBuf>,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        matches!(self, Name::Run | Name::Data | Name::Learn)
    }
}

impl Name {
    /// True if the contender takes part in the measurement of a program.
    pub fn does(self, program: Program) -> bool {
        self != Name::Data || program.reads_data()
    }

    pub fn fits(self, tools: &Tools) -> Fit {
        let help = |words: &[&str]| {
            let said = Command::new(&tools.nowait).args(words).output().ok()?;
            Some(String::from_utf8_lossy(&said.stdout).into_owned())
        };
        let works = || tools.nowait(&["run", "--ahead", "--", "true"]).output();
        match self {
            Name::Direct => Fit::Yes,
            _ if help(&["--version"]).is_none() => Fit::No(NO_NOWAIT.into()),
            Name::Data if help(&["run", "--help"]).is_none_or(|text| !text.contains("--data")) => {
                Fit::No("this nowait run has no --data".into())
            }
            Name::Learn if help(&["learn", "--help"]).is_none_or(|text| text.is_empty()) => {
                Fit::No("this nowait run has no --learn".into())
            }
            Name::Run | Name::Data | Name::Learn
                if works().is_ok_and(|said| !said.status.success()) =>
            {
                Fit::No(
                    "nowait run does not find libnowait_ahead.so: build it (make build), \
                 and name its directory with --libraries"
                        .into(),
                )
            }
            _ => Fit::Yes,
        }
    }
}

impl Tools {
    /// The tools that the options name, or those of this system.
    pub fn find(nowait: Option<&Path>, libraries: Option<&Path>) -> Result<Tools, Problem> {
        let libraries = libraries.map(|path| {
            path.canonicalize()
                .map_err(|e| Problem::of(path.display(), e))
        });
        Ok(Tools {
            nowait: find_nowait(nowait)?,
            libraries: libraries.transpose()?,
        })
    }

    fn nowait(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.nowait);
        command.args(words);
        if let Some(libraries) = &self.libraries {
            command.env(LIBRARIES, libraries);
        }
        command
    }

    /// The command of a turn.
    pub fn turn(&self, name: Name, program: Program, tree: &Path) -> Command {
        match (name, program) {
            (Name::Warm, _) => {
                let mut beside = Command::new("sh");
                let script = r#""$NOWAIT" warm --metadata -r "$TREE" >/dev/null 2>&1 & "$@"; end=$?; kill $! 2>/dev/null; wait; exit $end"#;
                beside.args(["-c", script, "sh", "sh", "-c", program.script()]);
                beside.env("NOWAIT", &self.nowait);
                beside
            }
            (Name::Run | Name::Data, Program::Restic) => {
                let mut command = self.nowait(&["run", "--walk"]);
                command.arg(tree);
                if name == Name::Data {
                    command.arg("--data");
                }
                command.args(["--", "sh", "-c", program.script()]);
                command
            }
            _ => self.command(name, "", program.script()),
        }
    }

    /// A shell script: alone, or under nowait run. `word` is for the name of its profile.
    pub fn command(&self, name: Name, word: &str, script: &str) -> Command {
        let mut command = match name {
            Name::Learn => self.nowait(&[
                "run",
                "--wait",
                &format!("--learn={}", profile(word)),
                "--",
                "sh",
            ]),
            Name::Direct | Name::Warm => Command::new("sh"),
            Name::Run => self.nowait(&["run", "--ahead", "--", "sh"]),
            Name::Data => self.nowait(&["run", "--ahead", "--data", "--", "sh"]),
        };
        command.args(["-c", script]);
        command
    }

    /// Removes the profile of a script.
    pub fn forget(&self, word: &str) {
        // There is none if nothing was learnt.
        let _ = self.nowait(&["learn", "forget", &profile(word)]).output();
    }
}

fn profile(word: &str) -> String {
    format!("nowait-bench-{word}")
}
