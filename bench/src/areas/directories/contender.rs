//! Who takes part: the library's scan and readahead, the plain way, and the programs that people use.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde::Serialize;

use super::inside::Way;
use super::window::Window;
use crate::harness::contender::{Fit, once_each};
use crate::harness::plot::Stroke;
use nowait_cli::problem::Problem;

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// getdents64(2), and statx(2) of each name in turn: what programs do
    #[value(name = "getdents+stat")]
    Getdents,
    /// nowait's scan, once for each of --windows
    Xgetdents,
    /// nowait's readahead of the directory, and getdents+stat at the same time
    Dirreadahead,
    /// ls -lU
    Ls,
    /// find -printf, with the size, which takes a stat
    Find,
    /// bfs -printf likewise
    Bfs,
    /// du -s
    Du,
}

/// One who takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// A stable word.
    pub name: String,
    who: Who,
}

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
            Name::Dirreadahead => own(Way::Dirreadahead),
            Name::Ls => Who::Program("ls", &["-lU"]),
            Name::Find => Who::Program("find", &["-maxdepth", "1", "-printf", "%i %s %p\\n"]),
            Name::Bfs => Who::Program("bfs", &["-maxdepth", "1", "-printf", "%i %s %p\\n"]),
            Name::Du => Who::Program("du", &["-s"]),
        }
    }

    /// Whether it can do the same as the others.
    fn fits(self, xattr: bool, subdirectories: bool) -> Fit {
        match self.who() {
            Who::Own(..) => Fit::Yes,
            Who::Program(name, _) if xattr && self != Name::Ls => Fit::No(format!(
                "{name} does not ask for extended attributes: leave it or --xattr out"
            )),
            Who::Program(name, _) if subdirectories && self == Name::Du => Fit::No(format!(
                "{name} goes into the subdirectories of this directory, the others don't: leave it out"
            )),
            Who::Program(name, _) => match is_here(name) {
                true => Fit::Yes,
                false => Fit::No(format!(
                    "{name} is not installed: install it, or leave it out"
                )),
            },
        }
    }
}

fn is_here(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Those who can take part of those who are wanted, and why others can't.
pub fn choose(
    wanted: &[Name],
    windows: &[Window],
    xattr: bool,
    subdirectories: bool,
) -> Result<(Vec<Contender>, Vec<String>), Problem> {
    let (names, asked_for) = match wanted {
        [] => (Name::value_variants().to_vec(), false),
        names => (once_each(names), true),
    };
    let (mut contenders, mut notes) = (Vec::new(), Vec::new());
    for name in names {
        match name.fits(xattr, subdirectories) {
            Fit::No(why) if asked_for => return Err(Problem::Failed(why)),
            Fit::No(why) => {
                notes.push(format!("`{}` is left out: {why}", word(name)));
                continue;
            }
            Fit::Yes | Fit::With(_) => {}
        }
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

/// As it is written on the command line.
fn word(name: Name) -> String {
    let value = name.to_possible_value();
    value.map_or(String::new(), |value| value.get_name().to_owned())
}

impl Contender {
    /// True for nowait.
    pub fn is_ours(&self) -> bool {
        matches!(self.who, Who::Own(way, _) if way != Way::Getdents)
    }

    /// True for the programs that are not ours.
    pub fn is_program(&self) -> bool {
        matches!(self.who, Who::Program(..))
    }

    /// Whether it prints what it has to say of itself.
    pub fn says(&self) -> bool {
        !self.is_program()
    }

    /// Whether its requests are worth a picture: the plain way, a scan, a readahead.
    pub fn is_drawn(&self) -> bool {
        matches!(self.who, Who::Own(_, Window::Default))
    }

    /// How its line is drawn: there are more contenders than inks.
    pub fn stroke(&self) -> Stroke {
        match self.is_program() {
            true => Stroke::Dashed,
            false => Stroke::Solid,
        }
    }

    /// What does its turn in a directory.
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
                // find and bfs take the directory first; ls and du take it there as well.
                command.arg(directory).args(words).env("LC_ALL", "C");
                Ok(command)
            }
        }
    }
}
