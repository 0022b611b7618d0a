//! `nowait-bench ahead`: programs that read trees, with and without `nowait run`, and beside `nowait warm --metadata`.
//!
//! ```text
//!  Args ─► ground: trees of files, perhaps on a slow disk
//!       ─► for each round, program, tree and contender:
//!            make the trees cold ─► run the program on an empty tree ─► run it on the tree
//!       ─► report ─► remove the ground
//! ```
//! Each turn is a separate process (`harness/child.rs`).

mod contender;
mod ground;
mod report;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::{Value, json};

use super::directories::count::Count;
use crate::harness::child::{self, Ended};
use crate::harness::contender::once_each;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::run::{INTERVAL, ORDER};
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use contender::{Name, Tools};
use ground::Ground;
use report::Results;
use workload::{Program, Tree};

/// Programs that read trees: alone, under nowait run, and beside nowait warm --metadata
///
/// Makes trees of files in the current directory, or with --slow-disk on a disk with a delay, which is a file in
/// memory. Removes them at the end. What cp and restic write goes to the current directory.
///
/// The trees are cold at the start of each turn: the filesystem of a slow disk is mounted again; otherwise the kernel
/// drops all clean caches, which needs root and slows down every program on the machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The programs [default: all that are installed]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    programs: Vec<Program>,

    /// The trees that the programs read
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["one", "many"])]
    trees: Vec<Tree>,

    /// The number of files of each tree
    #[arg(long, value_name = "N", default_value = "20k")]
    files: Count,

    /// The size of each file
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    bytes: Size,

    #[command(flatten)]
    slow: Option<Slow>,

    /// Measure cached trees: each turn is run twice, and the second run is measured
    #[arg(long)]
    warm: bool,

    /// The program nowait [default: the one in the directory of this program, or else in PATH]
    #[arg(long, value_name = "PROGRAM")]
    nowait: Option<PathBuf>,

    /// The directory of libnowait_ahead.so [default: where nowait run finds it]
    #[arg(long, value_name = "PATH")]
    libraries: Option<PathBuf>,

    /// The library of the contender `preload`, for example spd_readdir.so of e2fsprogs
    #[arg(long, value_name = "LIBRARY")]
    preload: Option<PathBuf>,

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
Contenders take turns within each round. A turn is a process from its start to its end, with those that it
starts. Its output goes to /dev/null. Ratios say how many times as fast a contender is as the program
alone. CPU is processor time of the processes, without kernel threads.
A disk that rotates: --slow-disk 200us --queue 1 --seek 5ms. The tree `small` and the program `true` with
--warm measure the cost of a start.
spd_readdir.c is in contrib/ of Debian's source package e2fsprogs (apt-get source e2fsprogs; cc -shared -fPIC
-o spd_readdir.so spd_readdir.c -ldl): name spd_readdir.so with --preload.
Ctrl-C prints what was measured and removes the trees; a second one ends the program at once, and trees that
were made here stay.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"program\", \"tree\" and
\"files\". A round has seconds, files_per_s and cpu_s; on a slow disk also reads.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// Measures the programs and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    args.check()?;
    args.output.prepare()?;
    let mut notes = Vec::new();
    let tools = Tools::find(
        args.nowait.as_deref(),
        args.libraries.as_deref(),
        args.preload.as_deref(),
    )?;
    let contenders = contender::choose(&args.contenders, &tools, &mut notes)?;
    let programs = workload::choose(&args.programs, &mut notes)?;
    let trees = once_each(&args.trees);
    let pairs = programs
        .iter()
        .flat_map(|program| trees.iter().map(move |tree| (*program, *tree)));
    let results =
        pairs.map(|(program, tree)| Results::new(program, tree, args.files.0, &contenders));
    let results = results.collect::<Result<Vec<Results>, Problem>>()?;
    let ground = Ground::prepare(args, &trees, &stop)?;
    let machine = Machine::look(ground.root())?;
    let mut bench = Bench {
        args,
        tools,
        ground,
        results,
        stop,
    };
    bench.play()?;
    let mut run = report::run(machine, bench.settings(&contenders, &trees), &bench.results);
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
}

/// A running measurement.
struct Bench<'a> {
    args: &'a Args,
    tools: Tools,
    ground: Ground,
    results: Vec<Results>,
    stop: Stop,
}

impl Bench<'_> {
    /// All rounds; each begins with the next contender. Before them, each tree has a turn that is not counted: the
    /// first one makes the kernel allocate memory, which is slow in a virtual machine.
    fn play(&mut self) -> Result<(), Problem> {
        let rounds = self.args.rounds.count as usize;
        let turns: usize = self.results.iter().map(|of| of.contenders.len()).sum();
        let mut progress = Progress::of_turns((turns * rounds) as u64);
        for tree in once_each(&self.args.trees) {
            let first = self.results.iter().position(|of| of.tree == tree);
            if let Some(first) = first
                && self.turn(first, 0)?.is_none()
            {
                return Ok(());
            }
        }
        let mut done = 0;
        for round in 0..rounds {
            for cell in 0..self.results.len() {
                let n = self.results[cell].contenders.len();
                for i in (0..n).map(|i| (i + round) % n) {
                    let of = &self.results[cell];
                    let (name, program) = (of.contenders[i].word(), of.program.word());
                    let tree = of.tree.word();
                    progress.at(
                        done,
                        format!("round {}: {program} {name}, {tree}", round + 1),
                    );
                    done += 1;
                    match self.turn(cell, i)? {
                        Some((ended, reads)) => self.results[cell].add(i, &ended, reads),
                        None => return Ok(()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one turn; `None` after Ctrl-C. Returns also the reads of a slow disk.
    fn turn(&self, cell: usize, i: usize) -> Result<Option<(Ended, Option<u64>)>, Problem> {
        let of = &self.results[cell];
        let tree = self.ground.tree(of.tree);
        let empty = self.ground.empty();
        let first = if self.args.warm {
            &tree
        } else {
            self.ground.make_cold()?;
            &empty
        };
        if self.play_once(of, i, first)?.is_none() {
            return Ok(None);
        }
        self.ground.take_reads();
        let ended = self.play_once(of, i, &tree)?;
        Ok(ended.map(|ended| (ended, self.ground.take_reads())))
    }

    /// Runs the program of a turn on a tree.
    fn play_once(&self, of: &Results, i: usize, tree: &Path) -> Result<Option<Ended>, Problem> {
        self.ground.clear_out()?;
        let prepared = |mut command: Command| {
            command
                .env("TREE", tree)
                .env("OUT", self.ground.out())
                .env("RESTIC_PASSWORD", "bench")
                .env("LC_ALL", "C");
            command
        };
        if let Some(before) = of.program.before() {
            let mut command = Command::new("sh");
            command.args(["-c", before]);
            if child::run(prepared(command), false, &self.stop)?.is_none() {
                return Ok(None);
            }
        }
        let command = self.tools.turn(of.contenders[i], of.program, tree);
        child::run(prepared(command), false, &self.stop)
    }

    fn settings(&self, contenders: &[Name], trees: &[Tree]) -> Value {
        let args = self.args;
        let names: Vec<&str> = contenders.iter().map(|name| name.word()).collect();
        let programs: Vec<Program> = self.results.iter().map(|of| of.program).collect();
        let disk = args.slow.as_ref().map(Slow::to_string);
        let about = [
            disk.clone(),
            Some(format!("files of {}", args.bytes)),
            Some(format!("rounds: {}", args.rounds.count)),
        ];
        let about: Vec<String> = about.into_iter().flatten().collect();
        json!({
            "about": about.join("; "),
            "disk": disk,
            "programs": once_each(&programs),
            "trees": trees,
            "files": args.files,
            "bytes": args.bytes.0,
            "slow_disk": args.slow,
            "cache": match args.warm {
                true => "warm: each turn is run twice, and the second run is measured",
                false => self.ground.how(),
            },
            "contenders": names,
            "rounds": args.rounds.count,
            "order": ORDER,
            "interval": INTERVAL,
            "legend": "Medians over rounds; ms: from the start of the processes to their end; CPU: processor time \
                       of the processes; reads: requests of the slow disk; ratios: times as fast as the program \
                       alone.",
        })
    }
}
