//! The contenders: the library's scan and readahead, getdents+stat, and common programs.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use serde::Serialize;

use super::inside::Way;
use super::window::Window;
use crate::harness::contender::{Fit, available, installed, once_each};
use crate::harness::plot::Stroke;
use nowait_cli::problem::Problem;

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// getdents64(2), and statx(2) for each name in turn, as most programs do
    #[value(name = "getdents+stat")]
    Getdents,
    /// nowait's scan, one contender for each of --windows
    Xgetdents,
    /// the same scan through nw_xgetdents of the C library
    NwXgetdents,
    /// nowait's readahead of the directory, with getdents+stat at the same time
    Dirreadahead,
    /// ls -lU
    Ls,
    /// find -printf with the size, for which it calls stat
    Find,
    /// bfs -printf with the size
    Bfs,
    /// du -s
    Du,
}

/// A contender that takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The name in the results.
    pub name: String,
    who: Who,
}

/// A way within this program, or another program with its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Own(Way, Window),
    Program(&'static str, &'static [&'static str]),
}

impl Name {
    fn who(self) -> Who {
        let own = |way| Who::Own(way, Window::Default);
        match self {
            Name::Getdents => own(Way::Getdents),
            Name::Xgetdents => own(Way::Xgetdents),
            Name::NwXgetdents => own(Way::NwXgetdents),
            Name::Dirreadahead => own(Way::Dirreadahead),
            Name::Ls => Who::Program("ls", &["-lU"]),
            Name::Find => Who::Program("find", &["-maxdepth", "1", "-printf", "%i %s %p\\n"]),
            Name::Bfs => Who::Program("bfs", &["-maxdepth", "1", "-printf", "%i %s %p\\n"]),
            Name::Du => Who::Program("du", &["-s"]),
        }
    }

    /// Returns if the contender is available and does the same work as the others.
    fn fits(self, xattr: bool, subdirectories: bool) -> Fit {
        match self.who() {
            Who::Own(..) => Fit::Yes,
            Who::Program(name, _) if xattr && self != Name::Ls => Fit::No(format!(
                "{name} does not ask for extended attributes: leave it or --xattr out"
            )),
            Who::Program(name, _) if subdirectories && self == Name::Du => Fit::No(format!(
                "{name} goes into the subdirectories of this directory, the others don't: leave it out"
            )),
            Who::Program(name, _) => installed(
                name,
                match self {
                    Name::Bfs => "bfs",
                    Name::Find => "findutils",
                    _ => "coreutils",
                },
            ),
        }
    }
}

/// Returns the contenders that are available, with notes on the others.
pub fn choose(
    wanted: &[Name],
    windows: &[Window],
    xattr: bool,
    subdirectories: bool,
) -> Result<(Vec<Contender>, Vec<String>), Problem> {
    let (mut contenders, mut notes) = (Vec::new(), Vec::new());
    let fits = |name: Name| name.fits(xattr, subdirectories);
    for name in available(wanted, Name::value_variants(), word, fits, &mut notes)? {
        if name == Name::Xgetdents {
            contenders.extend(once_each(windows).into_iter().map(|window| Contender {
                name: match window {
                    Window::Default => word(name),
                    window => format!("{} {window}", word(name)),
                },
                who: Who::Own(Way::Xgetdents, window),
            }));
        } else {
            contenders.push(Contender {
                name: word(name),
                who: name.who(),
            });
        }
    }
    Ok((contenders, notes))
}

/// The name on the command line.
fn word(name: Name) -> String {
    let value = name.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
}

impl Contender {
    /// True for nowait.
    pub fn is_ours(&self) -> bool {
        matches!(self.who, Who::Own(way, _) if way != Way::Getdents)
    }

    /// True for other programs.
    pub fn is_program(&self) -> bool {
        matches!(self.who, Who::Program(..))
    }

    /// True if the process prints a report of its turn.
    pub fn says(&self) -> bool {
        !self.is_program()
    }

    /// True if a chart shows the requests of the contender.
    pub fn is_drawn(&self) -> bool {
        matches!(self.who, Who::Own(_, Window::Default))
    }

    /// The stroke of its line: there are more contenders than inks.
    pub fn stroke(&self) -> Stroke {
        match self.is_program() {
            true => Stroke::Dashed,
            false => Stroke::Solid,
        }
    }

    /// The command of a turn in a directory.
    pub fn command(&self, directory: &Path, xattr: bool) -> Result<Command, Problem> {
        match self.who {
            Who::Own(way, window) => {
                let program = std::env::current_exe()
                    .map_err(|e| Problem::of("cannot find this program", e))?;
                let mut command = Command::new(program);
                command
                    .args(["dir-inside", way.word(), &window.to_string()])
                    .args(xattr.then_some("--xattr"))
                    .arg(directory);
                Ok(command)
            }
            Who::Program(name, words) => {
                let mut command = Command::new(name);
                // find and bfs require the directory first; ls and du accept it there.
                command.arg(directory).args(words).env("LC_ALL", "C");
                Ok(command)
            }
        }
    }
}
