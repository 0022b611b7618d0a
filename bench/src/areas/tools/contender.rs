//! The contenders: nowait, vmtouch, util-linux fincore and cat.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;

use super::tree::{Table, Tree, Work};
use crate::harness::contender::{Fit, Named, Word, installed, words};
use crate::harness::processes::NO_NOWAIT;
use nowait_cli::problem::Problem;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait fincore -r, or nowait warm -r
    Nowait,
    /// vmtouch -q, or vmtouch -qt
    Vmtouch,
    /// fincore of util-linux, in the tables fincore and tiny
    Fincore,
    /// find -exec cat {} +, in the tables warm and small
    Cat,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self == Name::Nowait
    }
}

impl Name {
    fn does(self, work: Work) -> bool {
        match self {
            Name::Nowait | Name::Vmtouch => true,
            Name::Fincore => work == Work::Count,
            Name::Cat => work == Work::Read,
        }
    }

    /// Returns if the program is installed.
    pub fn fits(self, nowait: &Path) -> Fit {
        match self {
            Name::Nowait => match Command::new(nowait).arg("--version").output() {
                Ok(_) => Fit::Yes,
                Err(_) => Fit::No(NO_NOWAIT.into()),
            },
            Name::Vmtouch => installed("vmtouch", "vmtouch"),
            Name::Fincore => installed("fincore", "util-linux-extra"),
            Name::Cat => installed("find", "findutils"),
        }
    }

    /// The command of a turn on a tree. Paths are relative to the directory of all trees.
    pub fn command(self, nowait: &Path, work: Work, tree: &Tree) -> Command {
        let mut command = match self {
            Name::Nowait => Command::new(nowait),
            Name::Vmtouch => Command::new("vmtouch"),
            Name::Fincore => Command::new("fincore"),
            Name::Cat => Command::new("find"),
        };
        let name = tree.name.as_str();
        match (self, work) {
            (Name::Nowait, Work::Count) => command.args(["fincore", "-r", name]),
            (Name::Nowait, Work::Read) => command.args(["warm", "-r", name]),
            (Name::Vmtouch, Work::Count) => command.args(["-q", name]),
            (Name::Vmtouch, Work::Read) => command.args(["-qt", name]),
            // fincore(1) does not walk trees.
            (Name::Fincore, _) => command.args(tree.files.iter().map(|(path, _)| path)),
            (Name::Cat, _) => command.args([name, "-type", "f", "-exec", "cat", "{}", "+"]),
        };
        command.env("LC_ALL", "C");
        command
    }
}

/// The contenders that do the work of a table.
pub fn of_table(table: Table, names: &[Name]) -> Result<Vec<Name>, Problem> {
    let does = |name: &Name| name.does(table.work());
    let those: Vec<Name> = names.iter().copied().filter(does).collect();
    if those.is_empty() {
        let all = Name::value_variants().iter().copied();
        let all = words(&all.filter(does).collect::<Vec<_>>());
        return Err(Problem::Usage(format!(
            "no contender of the table {}: choose one of {}, or leave the table out",
            table.word(),
            all.join(", ")
        )));
    }
    Ok(those)
}
