//! The contenders: nowait, vmtouch, util-linux fincore and cat.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use super::tree::{Table, Tree, Work};
use crate::harness::contender::{Fit, available, installed};
use nowait_cli::problem::Problem;

/// The contenders.
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

/// A contender that takes part.
#[derive(Clone, Debug)]
pub struct Contender {
    pub name: Name,
    pub program: PathBuf,
}

impl Name {
    /// The name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Name::Nowait => "nowait",
            Name::Vmtouch => "vmtouch",
            Name::Fincore => "fincore",
            Name::Cat => "cat",
        }
    }

    fn does(self, work: Work) -> bool {
        match self {
            Name::Nowait | Name::Vmtouch => true,
            Name::Fincore => work == Work::Count,
            Name::Cat => work == Work::Read,
        }
    }

    fn program(self, nowait: &Path) -> PathBuf {
        match self {
            Name::Nowait => nowait.into(),
            Name::Vmtouch => "vmtouch".into(),
            Name::Fincore => "fincore".into(),
            Name::Cat => "find".into(),
        }
    }

    fn fits(self, nowait: &Path) -> Fit {
        match self {
            Name::Nowait => match Command::new(nowait).arg("--version").output() {
                Ok(_) => Fit::Yes,
                Err(_) => Fit::No(
                    "the program nowait is neither in the directory of this program nor in PATH: build it \
                     (cargo build --release -p nowait-cli), and name it with --nowait"
                        .into(),
                ),
            },
            Name::Vmtouch => installed("vmtouch", "vmtouch"),
            Name::Fincore => installed("fincore", "util-linux-extra"),
            Name::Cat => installed("find", "findutils"),
        }
    }
}

/// Returns the contenders that are available, and adds notes on the others.
pub fn choose(
    asked: &[Name],
    nowait: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<Vec<Contender>, Problem> {
    let nowait = find_nowait(nowait)?;
    let fits = |name: Name| name.fits(&nowait);
    let names = available(asked, Name::value_variants(), Name::word, fits, notes)?;
    let contender = |name: Name| Contender {
        name,
        program: name.program(&nowait),
    };
    Ok(names.into_iter().map(contender).collect())
}

/// The program nowait: the one that the user names, the one beside this program, or the one in PATH.
fn find_nowait(named: Option<&Path>) -> Result<PathBuf, Problem> {
    if let Some(path) = named {
        return path.canonicalize().map_err(|e| {
            Problem::Failed(format!(
                "--nowait {}: {e}; build it with cargo build --release -p nowait-cli",
                path.display()
            ))
        });
    }
    let here = std::env::current_exe().map_err(|e| Problem::of("cannot find this program", e))?;
    let beside = here.with_file_name("nowait");
    Ok(match beside.exists() {
        true => beside,
        false => "nowait".into(),
    })
}

/// Those of the contenders that do the work of a table.
pub fn of_table(table: Table, contenders: &[Contender]) -> Result<Vec<Contender>, Problem> {
    let does = |contender: &&Contender| contender.name.does(table.work());
    let those: Vec<Contender> = contenders.iter().filter(does).cloned().collect();
    if those.is_empty() {
        let all = Name::value_variants().iter();
        let all: Vec<&str> = all
            .filter(|name| name.does(table.work()))
            .map(|name| name.word())
            .collect();
        return Err(Problem::Usage(format!(
            "no contender of the table {}: choose one of {}, or leave the table out",
            table.word(),
            all.join(", ")
        )));
    }
    Ok(those)
}

impl Contender {
    /// The command of a turn on a tree. Paths are relative to the directory of all trees.
    pub fn command(&self, work: Work, tree: &Tree) -> Command {
        let mut command = Command::new(&self.program);
        match (self.name, work) {
            (Name::Nowait, Work::Count) => command.args(["fincore", "-r", tree.name]),
            (Name::Nowait, Work::Read) => command.args(["warm", "-r", tree.name]),
            (Name::Vmtouch, Work::Count) => command.args(["-q", tree.name]),
            (Name::Vmtouch, Work::Read) => command.args(["-qt", tree.name]),
            // It does not walk trees.
            (Name::Fincore, _) => command.args(tree.files.iter().map(|(path, _)| path)),
            (Name::Cat, _) => command.args([tree.name, "-type", "f", "-exec", "cat", "{}", "+"]),
        };
        command.env("LC_ALL", "C");
        command
    }
}
