//! The contenders: the library's scan and readahead, getdents+stat, and common programs.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;

use super::inside::Way;
use super::window::Window;
use crate::harness;
use crate::harness::contender::{Fit, Word, installed, once_each};
use nowait_cli::problem::Problem;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// the same with 32 threads, with bfs 3 or newer
    #[value(name = "bfs-j32")]
    BfsThreads,
    /// du -s
    Du,
    /// dust, which is parallel
    Dust,
    /// pdu, which is parallel
    Pdu,
}

/// How newer programs than those of the system are installed.
const PEERS: &str = "run scripts/peers.sh, and put target/peers/bin first in PATH, or leave it out";

/// Returns if bfs takes a number of threads.
fn takes_threads(bfs: &str) -> Fit {
    let mut command = Command::new(bfs);
    command.args(["-j2", "/dev/null"]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Fit::Yes,
        _ => Fit::No(format!(
            "{bfs} of version 3 or newer is not installed: {PEERS}"
        )),
    }
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
            Name::BfsThreads => {
                Who::Program("bfs", &["-j32", "-maxdepth", "1", "-printf", "%i %s %p\\n"])
            }
            Name::Du => Who::Program("du", &["-s"]),
            Name::Dust => Who::Program("dust", &["-d", "0", "-P"]),
            Name::Pdu => Who::Program("pdu", &["--max-depth", "1"]),
        }
    }

    /// Returns if the contender is available.
    pub fn fits(self) -> Fit {
        match (self.who(), self) {
            (Who::Own(..), _) => Fit::Yes,
            (Who::Program(name, _), Name::Bfs) => installed(name, "bfs"),
            (Who::Program(name, _), Name::BfsThreads) => takes_threads(name),
            (Who::Program(name, _), Name::Dust | Name::Pdu) => match installed(name, "") {
                Fit::Yes => Fit::Yes,
                _ => Fit::No(format!("{name} is not installed: {PEERS}")),
            },
            (Who::Program(name, _), Name::Find) => installed(name, "findutils"),
            (Who::Program(name, _), _) => installed(name, "coreutils"),
        }
    }

    /// The contenders of this name: one for each window of a scan, one otherwise.
    pub fn contenders(self, windows: &[Window]) -> Vec<Contender> {
        if self != Name::Xgetdents {
            return vec![Contender {
                name: self.word(),
                who: self.who(),
            }];
        }
        let of_window = |window| Contender {
            name: match window {
                Window::Default => self.word(),
                window => format!("{} {window}", self.word()),
            },
            who: Who::Own(Way::Xgetdents, window),
        };
        once_each(windows).into_iter().map(of_window).collect()
    }
}

impl harness::contender::Contender for Contender {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn is_ours(&self) -> bool {
        matches!(self.who, Who::Own(way, _) if way != Way::Getdents)
    }
}

impl Contender {
    /// True for other programs.
    pub fn is_program(&self) -> bool {
        matches!(self.who, Who::Program(..))
    }

    /// True if a chart shows the requests of the contender.
    pub fn is_drawn(&self) -> bool {
        matches!(self.who, Who::Own(_, Window::Default))
    }

    /// The command of a turn in a directory.
    pub fn command(&self, directory: &Path) -> Result<Command, Problem> {
        match self.who {
            Who::Own(way, window) => {
                let program = std::env::current_exe()
                    .map_err(|e| Problem::of("cannot find this program", e))?;
                let mut command = Command::new(program);
                command
                    .args(["dir-inside", &way.word(), &window.to_string()])
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
