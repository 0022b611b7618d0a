//! `nowait-bench tools`: `nowait fincore` and `nowait warm` beside vmtouch, util-linux fincore and
//! cat, on trees of files.
//! A turn is a separate process (`harness/child.rs`). Before it the tree is made cached or cold, and
//! the program runs on an empty file.

mod contender;
mod ground;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::harness::bench::{Bench, Group};
use crate::harness::cache::FORGET;
use crate::harness::child;
use crate::harness::column::Column;
use crate::harness::contender::{Contenders, once_each};
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::processes::{COMPARED, Turn, check_root, find_nowait};
use crate::harness::settings::RoundCount;
use contender::Name;
use ground::{CACHED, Ground};
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use tree::{Scale, Table, Tree, Work};

/// The tools for the page cache beside others: nowait, vmtouch, util-linux fincore, cat
///
/// Makes trees of files in a temporary directory, and removes them at the end. With --scale 1 the
/// files of all tables take 13 GiB, and those of the table fincore take 8 GiB of memory.
///
/// Before each turn the tree is read until it is cached, or the kernel drops all clean caches.
/// Dropping caches needs root and slows down every program on the machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The tables to measure
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["fincore", "tiny", "warm", "small"])]
    tables: Vec<Table>,

    /// The share of the files and bytes that are made, from 0.001 to 1
    #[arg(long, value_name = "X", default_value = "0.25")]
    scale: Scale,

    /// The program nowait [default: the one in the directory of this program, or else in PATH]
    #[arg(long, value_name = "PROGRAM")]
    nowait: Option<PathBuf>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

pub const AFTER: &str = "\
Contenders take turns within each round. A turn is a process from its start to its end. Its output goes to
/dev/null. Ratios say how many times as fast a contender is as the fastest program that is not nowait. CPU
is processor time of the process and its children, without kernel threads.
Ctrl-C prints what was measured and removes the files; a second one ends the program at once, and the
files stay.

JSON (--json): the shape of all areas (nowait-bench --help). A cell is a table: it has the parameters \"files\",
\"bytes\", \"cache\" and \"best\", the fastest other program. A round has seconds, files_per_s and cpu_s; after
programs that read files also cached_percent, the share of the bytes that are cached after the turn.";

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    if args.tables.iter().any(|table| table.work() == Work::Read) {
        check_root(CACHED)?;
    }
    let bench = Bench::new("tools", &args.output, args.rounds.count, stop);
    let tables = once_each(&args.tables);
    let nowait = find_nowait(args.nowait.as_deref())?;
    let names = bench.choose(&args.contenders.names, |name| name.fits(&nowait))?;
    let names = tables
        .iter()
        .map(|table| contender::of_table(*table, &names));
    let names: Vec<Vec<Name>> = names.collect::<Result<_, Problem>>()?;
    let ground = Ground::prepare(&tables, args.scale, &bench.stop)?;
    let machine = Machine::look(ground.root())?;
    let group = |((tree, table), names): ((_, &Table), _)| {
        let tree: &Tree = tree;
        let (files, bytes) = (tree.files.len(), tree.bytes());
        let (cache, state) = match table.work() {
            Work::Count => ("warm", "cached"),
            Work::Read => ("cold", "not cached"),
        };
        let parameters = json!({"files": files, "bytes": bytes, "cache": cache});
        let title = format!("{}: {files} files, {}, {state}", tree.name, Size(bytes));
        Group::new(&*tree.name, parameters, (table.work(), tree), names).titled(title)
    };
    let groups: Vec<_> = ground
        .trees
        .iter()
        .zip(&tables)
        .zip(names)
        .map(group)
        .collect();
    let turn = |group: &Group<(Work, &Tree), Name>, name: &Name, _| {
        turn(&ground, &nowait, group.work, *name, &bench.stop)
    };
    // Before the rounds, each table has a turn that is not counted: the first one makes the kernel
    // allocate memory, which is slow in a virtual machine.
    for group in &groups {
        if !bench.stop.asked() {
            turn(group, &group.contenders[0], 0)?;
        }
    }
    let cells = bench.play(&groups, turn)?;
    let settings = json!({
        "about": format!("scale {}", args.scale),
        "nowait": nowait.to_string_lossy(),
        "cache": format!("fincore and tiny: all files are cached; warm and small: {FORGET}"),
        "legend": "Medians over rounds; ms: from the start of the process to its end; CPU: processor time \
                   of the process and its children; cached: of the files, after the turn; ratios: times \
                   as fast as the fastest program that is not nowait.",
    });
    let mut run = bench.run(machine, settings);
    for mut cell in cells {
        let best = cell.name_best("files_per_s", |contender| !contender.ours);
        run.add(cell, &[&best], &COMPARED, &COLUMNS);
    }
    bench.finish(run)
}

const COLUMNS: [Column; 6] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Median("cached %", "cached_percent", 1.0),
    Column::Ratio("", "files_per_s"),
    Column::Short("CPU", "cpu_s"),
];

/// The share of the bytes that are cached after a turn.
#[derive(Serialize)]
struct Cached {
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_percent: Option<f64>,
}

/// Runs one turn; `None` after Ctrl-C.
fn turn(
    ground: &Ground,
    nowait: &Path,
    (work, tree): (Work, &Tree),
    name: Name,
    stop: &Stop,
) -> Result<Option<Turn<Cached>>, Problem> {
    match work {
        Work::Count => ground.cache(tree, stop)?,
        Work::Read => ground.forget(tree)?,
    }
    let run = |tree: &Tree| {
        let mut command = name.command(nowait, work, tree);
        command.current_dir(ground.root());
        child::run(command, false, stop)
    };
    // The program itself is cached when it runs on the tree.
    if stop.asked() || run(&ground.empty)?.is_none() {
        return Ok(None);
    }
    let Some(ended) = run(tree)? else {
        return Ok(None);
    };
    let cached_percent = match work {
        Work::Count => None,
        Work::Read => ground.cached(tree)?,
    };
    let cached = Cached { cached_percent };
    Ok(Some(Turn::new(
        tree.files.len() as u64,
        &ended,
        None,
        cached,
    )))
}
