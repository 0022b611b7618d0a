//! `nowait-bench dir`: lists a directory and asks for the attributes of every entry, with the library's
//! scan and readahead (the proposed calls xgetdents and dirreadahead), with getdents+stat, and with ls,
//! find, bfs and du. Prints the table of the readdirplus thread of 2014, and draws its pictures.
//!
//! ```text
//!  Args ─► ground: directories found or made, perhaps on a slow disk
//!       ─► for each round, directory and contender:
//!            make the directory cold ─► run the program on an empty directory ─► run it on the directory
//!       ─► report ─► remove the ground
//! ```
//! Each turn is a separate process (`harness/child.rs`), also those of the library (`inside`), so that the time of
//! every contender includes its start.

mod c_scan;
mod contender;
pub mod count;
mod ground;
pub mod inside;
mod report;
mod said;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::harness::child;
use crate::harness::contender::once_each;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::run::{INTERVAL, ORDER};
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use contender::{Contender, Name};
use count::Count;
use ground::Ground;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use report::{Directory, Seeks, Turn};
use window::Window;

/// Listing a directory with the attributes of every entry: scan, readahead, ls, find, bfs, du
///
/// Makes directories of empty files in the current directory and removes them at the end. With
/// --slow-disk they are on a disk with a delay, which is a file in memory. With --dir an existing
/// directory is listed, and not changed.
///
/// The directory is cold at the start of each turn: the filesystem of a slow disk is mounted again;
/// otherwise the kernel drops all clean caches, which needs root and slows down every program on the
/// machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// List this directory instead of making directories
    #[arg(long, value_name = "PATH", conflicts_with_all = ["files", "slow_disk"])]
    dir: Option<PathBuf>,

    /// Make a directory for each of these numbers of files. Making 500k files takes minutes
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          default_values = ["10k", "50k", "100k"])]
    files: Vec<Count>,

    #[command(flatten)]
    slow: Option<Slow>,

    /// Measure cached directories: each turn is run twice, and the second run is measured
    #[arg(long)]
    warm: bool,

    /// Also list extended attributes, as ls -l does. A file that is made has one of them
    #[arg(long)]
    xattr: bool,

    /// The windows of xgetdents: `default`, or vNdM for N pages of buffer and M entries, as in 2014
    #[arg(long, value_name = "WINDOW,…", value_delimiter = ',',
          default_values = ["default", "v256d1000", "v16384d10000"])]
    windows: Vec<Window>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    contenders: Vec<Name>,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round. A turn is a process from its start to its end, also for the
library's contenders. Its output goes to /dev/null. Ratios say how many times as fast a contender is as the
fastest program of ls, find, bfs and du. CPU is processor time of the process, without kernel threads.
Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
a directory that was made here stays.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"files\" and \"best\", the
fastest program. A round has seconds, files_per_s and cpu_s; on a slow disk also reads, bytes_read and
deepest (the most requests at once); the library's contenders have entries, failed, peak_kib and workers.

--svg draws the time against the number of files (with two or more --files). On a slow disk it also draws
the offsets of the requests against time, for the largest directory in the first round.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// Measures the directories and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    args.check()?;
    args.output.prepare()?;
    let ground = Ground::prepare(args, &stop)?;
    let machine = Machine::look(&ground.directories[0].path)?;
    let (contenders, notes) = contender::choose(
        &args.contenders,
        &args.windows,
        args.xattr,
        ground.subdirectories,
    )?;
    let mut bench = Bench {
        args,
        tables: ground
            .directories
            .iter()
            .map(|directory| Directory::new(directory.files, &contenders))
            .collect(),
        ground,
        contenders,
        seeks: Vec::new(),
        stop,
    };
    bench.play()?;
    let mut run = report::run(machine, bench.settings(), &bench.tables, &bench.seeks);
    run.interrupted = bench.stop.asked();
    notes.into_iter().for_each(|note| run.note(note));
    args.output.finish(run)
}

impl Args {
    fn check(&self) -> Result<(), Problem> {
        if !self.warm && self.slow.is_none() && !rustix::process::geteuid().is_root() {
            return Err(Problem::Usage(
                "only root can have the kernel drop its caches: run it under sudo, or with --warm"
                    .into(),
            ));
        }
        Ok(())
    }

    /// The numbers of files, in rising order.
    fn counts(&self) -> Vec<Count> {
        let mut counts = once_each(&self.files);
        counts.sort_unstable();
        counts
    }
}

/// A running measurement.
struct Bench<'a> {
    args: &'a Args,
    ground: Ground,
    contenders: Vec<Contender>,
    tables: Vec<Directory>,
    seeks: Vec<Seeks>,
    stop: Stop,
}

impl Bench<'_> {
    /// All rounds; each begins with the next contender.
    fn play(&mut self) -> Result<(), Problem> {
        let (n, sizes) = (self.contenders.len(), self.tables.len());
        let rounds = self.args.rounds.count as usize;
        let mut progress = Progress::of_turns((n * sizes * rounds) as u64);
        let mut done = 0;
        if !self.settle()? {
            return Ok(());
        }
        for round in 0..rounds {
            for size in 0..sizes {
                for i in (0..n).map(|i| (i + round) % n) {
                    let (name, files) = (&self.contenders[i].name, self.tables[size].files);
                    progress.at(done, format!("round {}: {name}, {files} files", round + 1));
                    done += 1;
                    if !self.turn(size, i)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Lists each directory once, without measuring it: the first listing makes the kernel allocate
    /// memory for the inodes, which is slow in a virtual machine. Returns false after Ctrl-C.
    fn settle(&self) -> Result<bool, Problem> {
        for directory in &self.ground.directories {
            let command = self.contenders[0].command(&directory.path, self.args.xattr)?;
            if child::run(command, false, &self.stop)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs one turn. Returns false after Ctrl-C.
    fn turn(&mut self, size: usize, i: usize) -> Result<bool, Problem> {
        let contender = &self.contenders[i];
        let directory = &self.ground.directories[size];
        let play =
            |path, keep| child::run(contender.command(path, self.args.xattr)?, keep, &self.stop);
        let before = if self.args.warm {
            play(&directory.path, false)?
        } else {
            self.ground.make_cold()?;
            play(self.ground.empty(), false)?
        };
        self.ground.take_log();
        let ended = match before {
            Some(_) => play(&directory.path, contender.says())?,
            None => None,
        };
        let Some(ended) = ended else {
            return Ok(false);
        };
        let log = self.ground.take_log();
        let turn = Turn::new(contender, directory.files, &ended, log.as_deref())?;
        let last = size + 1 == self.tables.len();
        let first = self.tables[size].add(i, turn) == 1;
        if let Some(log) = log.filter(|_| first && last && contender.is_drawn()) {
            self.seeks.push(Seeks::new(&contender.name, &log));
        }
        Ok(true)
    }

    fn settings(&self) -> Value {
        let args = self.args;
        let names: Vec<&str> = self.contenders.iter().map(|c| c.name.as_str()).collect();
        let disk = args.slow.as_ref().map(Slow::to_string);
        let about = [
            disk.clone(),
            Some(format!("rounds: {}", args.rounds.count)),
            args.xattr.then(|| "with extended attributes".into()),
        ];
        let about: Vec<String> = about.into_iter().flatten().collect();
        json!({
            "about": about.join("; "),
            "disk": disk,
            "dir": args.dir.as_ref().map(|path| path.display().to_string()),
            "files": self.tables.iter().map(|table| table.files).collect::<Vec<_>>(),
            "slow_disk": args.slow,
            "cache": match args.warm {
                true => "warm: each turn is run twice, and the second run is measured",
                false => self.ground.how(),
            },
            "xattr": args.xattr,
            "windows": once_each(&args.windows).iter().map(Window::to_string).collect::<Vec<_>>(),
            "contenders": names,
            "rounds": args.rounds.count,
            "order": ORDER,
            "interval": INTERVAL,
            "legend": "Medians over rounds; ms: from the start of the process to its end; CPU: processor time \
                       of the process; reads: requests of the slow disk; MiB: the most memory of the process; \
                       ratios: times as fast as the fastest program.",
        })
    }
}
