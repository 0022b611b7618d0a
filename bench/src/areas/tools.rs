//! `nowait-bench tools`: `nowait fincore` and `nowait warm` beside vmtouch, util-linux fincore and cat, on trees
//! of files.
//!
//! ```text
//!  Args ─► ground: a tree of files for each table
//!       ─► for each round, table and contender:
//!            make the tree cached or cold ─► run the program on an empty file ─► run it on the tree
//!       ─► report ─► remove the trees
//! ```
//! Each turn is a separate process (`harness/child.rs`).

mod contender;
mod ground;
mod report;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::harness::cache::FORGET;
use crate::harness::child;
use crate::harness::contender::once_each;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::run::{INTERVAL, ORDER};
use crate::harness::settings::RoundCount;
use contender::Name;
use ground::{CACHED, Ground};
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use report::{Results, Turn};
use tree::{Scale, Table, Tree, Work};

/// The tools for the page cache beside others: nowait, vmtouch, util-linux fincore, cat
///
/// Makes trees of files in a temporary directory, and removes them at the end. With --scale 1 the files of
/// all tables take 13 GiB, and those of the table fincore take 8 GiB of memory.
///
/// Before each turn the tree is read until it is cached, or the kernel drops all clean caches. Dropping
/// caches needs root and slows down every program on the machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The tables to measure
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["fincore", "tiny", "warm", "small"])]
    tables: Vec<Table>,

    /// The share of the files and bytes that are made, from 0.001 to 1
    #[arg(long, value_name = "X", default_value = "0.25")]
    scale: Scale,

    /// Make the temporary directory in this directory [default: the current directory]
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,

    /// The program nowait [default: the one in the directory of this program, or else in PATH]
    #[arg(long, value_name = "PROGRAM")]
    nowait: Option<PathBuf>,

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
Contenders take turns within each round. A turn is a process from its start to its end. Its output goes to
/dev/null. Ratios say how many times as fast a contender is as the fastest program that is not nowait. CPU
is processor time of the process and its children, without kernel threads.
Ctrl-C prints what was measured and removes the files; a second one ends the program at once, and the
files stay.

JSON (--json): the shape of all areas (nowait-bench --help). A cell is a table: it has the parameters \"files\",
\"bytes\", \"cache\" and \"best\", the fastest other program. A round has seconds, files_per_s and cpu_s; after
programs that read files also cached_percent, the share of the bytes that are cached after the turn.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// Measures the tables and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    args.check()?;
    args.output.prepare()?;
    let tables = once_each(&args.tables);
    let mut notes = Vec::new();
    let mut contenders = Vec::new();
    let programs = contender::choose(&args.contenders, args.nowait.as_deref(), &mut notes)?;
    for table in &tables {
        contenders.push(contender::of_table(*table, &programs)?);
    }
    let ground = Ground::prepare(args.dir.as_deref(), &tables, args.scale, &stop)?;
    let machine = Machine::look(ground.root())?;
    let trees = ground.trees.iter().zip(&tables).zip(contenders);
    let results = trees.map(|((tree, table), all)| Results::new(tree, table.work(), all));
    let mut bench = Bench {
        args,
        results: results.collect(),
        ground,
        stop,
    };
    bench.play()?;
    let mut run = report::run(machine, bench.settings(), &bench.results);
    run.interrupted = bench.stop.asked();
    notes.into_iter().for_each(|note| run.note(note));
    args.output.finish(run)
}

impl Args {
    fn check(&self) -> Result<(), Problem> {
        let cold = self.tables.iter().any(|table| table.work() == Work::Read);
        match cold && !rustix::process::geteuid().is_root() {
            true => Err(Problem::Usage(format!(
                "only root can make the kernel drop its caches: run it under sudo, or {CACHED}"
            ))),
            false => Ok(()),
        }
    }
}

/// A running measurement.
struct Bench<'a> {
    args: &'a Args,
    ground: Ground,
    results: Vec<Results>,
    stop: Stop,
}

impl Bench<'_> {
    /// All rounds; each begins with the next contender. Before them, each table has a turn that is not
    /// counted: the first one makes the kernel allocate memory, which is slow in a virtual machine.
    fn play(&mut self) -> Result<(), Problem> {
        let rounds = self.args.rounds.count as usize;
        let turns: usize = self.results.iter().map(|of| of.contenders.len()).sum();
        let mut progress = Progress::of_turns((turns * rounds) as u64);
        for table in 0..self.results.len() {
            if self.turn(table, 0)?.is_none() {
                return Ok(());
            }
        }
        let mut done = 0;
        for round in 0..rounds {
            for table in 0..self.results.len() {
                let n = self.results[table].contenders.len();
                for i in (0..n).map(|i| (i + round) % n) {
                    let name = self.results[table].contenders[i].name.word();
                    let word = self.ground.trees[table].name;
                    progress.at(done, format!("round {}: {name}, {word}", round + 1));
                    done += 1;
                    match self.turn(table, i)? {
                        Some(turn) => self.results[table].add(i, turn),
                        None => return Ok(()),
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one turn; `None` after Ctrl-C.
    fn turn(&self, table: usize, i: usize) -> Result<Option<Turn>, Problem> {
        let Results {
            work, contenders, ..
        } = &self.results[table];
        let tree = &self.ground.trees[table];
        match work {
            Work::Count => self.ground.cache(tree, &self.stop)?,
            Work::Read => self.ground.forget(tree)?,
        }
        let run = |tree: &Tree| {
            let mut command = contenders[i].command(*work, tree);
            command.current_dir(self.ground.root());
            child::run(command, false, &self.stop)
        };
        // The program itself is cached when it runs on the tree.
        if self.stop.asked() || run(&self.ground.empty)?.is_none() {
            return Ok(None);
        }
        let Some(ended) = run(tree)? else {
            return Ok(None);
        };
        let cached = match work {
            Work::Count => None,
            Work::Read => self.ground.cached(tree)?,
        };
        Ok(Some(Turn::new(tree, &ended, cached)))
    }

    fn settings(&self) -> Value {
        let tables: Vec<&str> = self.results.iter().map(|of| of.name).collect();
        let mut nowait = self.results.iter().flat_map(|of| &of.contenders);
        let nowait = nowait.find(|contender| contender.name == Name::Nowait);
        let (scale, rounds) = (self.args.scale, self.args.rounds.count);
        json!({
            "about": format!("scale {scale}, rounds: {rounds}"),
            "tables": tables,
            "scale": scale,
            "nowait": nowait.map(|nowait| nowait.program.to_string_lossy()),
            "rounds": rounds,
            "cache": format!("fincore and tiny: all files are cached; warm and small: {FORGET}"),
            "order": ORDER,
            "interval": INTERVAL,
            "legend": "Medians over rounds; ms: from the start of the process to its end; CPU: processor time \
                       of the process and its children; cached: of the files, after the turn; ratios: times \
                       as fast as the fastest program that is not nowait.",
        })
    }
}
