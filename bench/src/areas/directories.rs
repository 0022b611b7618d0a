//! `nowait-bench dir`: a directory listed and every entry asked about, as xgetdents and dirreadahead
//! would have, beside getdents+stat and the programs that people use. The table of the readdirplus
//! thread of 2014, and its pictures.
//!
//! ```text
//!  Args ─► ground: directories found or made, perhaps on a slow disk
//!       ─► for each round, directory and contender:
//!            program brought into memory ─► directory made cold ─► a process, from start to end
//!       ─► report ─► ground gone
//! ```
//! Each turn is a process of its own (`child`), also of our own ways (`inside`): all pay for their start.

mod child;
mod contender;
mod count;
mod ground;
pub mod inside;
mod report;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value, json};
use slowdisk::Filesystem;

use crate::harness::contender::once_each;
use crate::harness::delay::Delay;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use contender::{Contender, Name};
use count::Count;
use ground::Ground;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use report::{Directory, Seeks, Turn};
use window::Window;

/// Listing a directory and asking about every entry: scan, readahead, ls, find, bfs, du
///
/// Directories of empty files are made in the current directory and removed at the end; or on a slow
/// disk (--slow-disk), which is a file in memory with a delay, and gone at the end; or --dir names one
/// that is there, which is only read.
///
/// Cold means: of a slow disk the filesystem is mounted anew before each turn; of any other the kernel
/// drops all its clean caches (needs root; everything else on the machine gets slower for a while).
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// List this directory instead of making any
    #[arg(long, value_name = "PATH", conflicts_with_all = ["files", "slow_disk"])]
    dir: Option<PathBuf>,

    /// How many files in each of the directories that are made; 500k takes its time
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          default_values = ["10k", "50k", "100k"])]
    files: Vec<Count>,

    #[command(flatten)]
    slow: Option<Slow>,

    /// Leave the directories cached: each turn is preceded by the same, not measured
    #[arg(long)]
    warm: bool,

    /// Ask for extended attributes too, as ls -l does; files that are made have one
    #[arg(long)]
    xattr: bool,

    /// Windows of xgetdents: `default`, or v and pages of 4K, d and entries, as in 2014
    #[arg(long, value_name = "WINDOW,…", value_delimiter = ',',
          default_values = ["default", "v256d1000", "v16384d10000"])]
    windows: Vec<Window>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    contenders: Vec<Name>,

    /// How many rounds; ratios need 3, a range that covers 95 % needs 6
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    #[command(flatten)]
    output: Output,
}

/// The properties of the slow disk.
#[derive(Clone, Debug, clap::Args)]
pub struct Slow {
    /// Make the directories on a disk of which each request takes so long: 100us, 1ms, 5ms
    /// (needs root)
    #[arg(
        long = "slow-disk",
        id = "slow_disk",
        value_name = "TIME",
        required = false
    )]
    latency: Delay,

    /// How many requests the slow disk serves at once
    #[arg(long, value_name = "N", default_value_t = 64, requires = "slow_disk",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    queue: u16,

    /// The additional time of a request of the slow disk that moves its head
    #[arg(long, value_name = "TIME", default_value = "0", requires = "slow_disk")]
    seek: Delay,

    /// The slow disk's filesystem
    #[arg(long = "fs", value_name = "FS", default_value = "ext4", requires = "slow_disk",
          value_parser = PossibleValuesParser::new(["ext4", "xfs", "btrfs"])
              .try_map(|name| name.parse::<Filesystem>()))]
    filesystem: Filesystem,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round; a turn is a process from its start to its end, our own ways
included, and its output goes to /dev/null. Ratios say how many times as fast a contender is as the
fastest program of ls, find, bfs and du. CPU is processor time of the process, without the time of
disk and kernel threads. Ctrl-C prints what was measured and
takes everything down; a second one ends at once, and then a directory that was made here stays.

JSON (--json): as of every area (nowait-bench --help). A cell has the parameters \"files\" and \"best\", the
fastest program. A round has seconds, files_per_s and cpu_s; of a slow disk reads, bytes_read and
deepest (most at once); of our own ways entries, failed, peak_kib and workers.

--svg draws time against the number of files (of two and more --files), and of a slow disk where the
requests of the first round went: offset against time, of the largest directory.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// The bench, from its directories to its report.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    args.check()?;
    args.output.prepare()?;
    let stop = Stop::on_signals()?;
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

    /// How many files in each directory, from few to many.
    fn counts(&self) -> Vec<Count> {
        let mut counts = once_each(&self.files);
        counts.sort_unstable();
        counts
    }
}

/// A bench under way.
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
        let rounds = self.args.rounds as usize;
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

    /// Lists each directory once, unmeasured: the first time the kernel has to find memory for so many
    /// inodes, which is dear where the memory is a virtual machine's.
    fn settle(&self) -> Result<bool, Problem> {
        for directory in &self.ground.directories {
            let command = self.contenders[0].command(&directory.path, self.args.xattr)?;
            if child::run(command, false, &self.stop)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One turn; says no if somebody has asked to stop.
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

    fn settings(&self) -> Map<String, Value> {
        let args = self.args;
        let names: Vec<&str> = self.contenders.iter().map(|c| c.name.as_str()).collect();
        let disk = args.slow.as_ref().map(|slow| {
            let seek = match slow.seek.time() {
                time if time.is_zero() => String::new(),
                _ => format!(", {} more for a seek", slow.seek),
            };
            let (latency, queue) = (slow.latency, slow.queue);
            format!("a slow disk: {latency} a request{seek}, {queue} at once")
        });
        let about = [
            disk.clone(),
            Some(format!("rounds: {}", args.rounds)),
            args.xattr.then(|| "with extended attributes".into()),
        ];
        let about: Vec<String> = about.into_iter().flatten().collect();
        let settings = json!({
            "about": about.join("; "),
            "disk": disk,
            "dir": args.dir.as_ref().map(|path| path.display().to_string()),
            "files": self.tables.iter().map(|table| table.files).collect::<Vec<_>>(),
            "slow_disk": args.slow.as_ref().map(|slow| json!({
                "latency_us": slow.latency,
                "seek_us": slow.seek,
                "queue": slow.queue,
                "filesystem": slow.filesystem.name(),
            })),
            "cache": match args.warm {
                true => "warm: each turn is preceded by the same, not measured",
                false => self.ground.how(),
            },
            "xattr": args.xattr,
            "windows": once_each(&args.windows).iter().map(Window::to_string).collect::<Vec<_>>(),
            "contenders": names,
            "rounds": args.rounds,
            "order": "contenders take turns within a round; each round begins with the next one",
            "interval": "order statistics of the paired ratios (sign test); see coverage",
            "legend": "Medians over rounds; ms: from the start of the process to its end; CPU: processor time \
                       of the process; reads: requests of the slow disk; MiB: the most memory of the process; \
                       ratios: times as fast as the fastest program.",
        });
        match settings {
            Value::Object(settings) => settings,
            _ => Map::new(),
        }
    }
}
