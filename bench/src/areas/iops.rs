//! `nowait-bench iops`: operations per second past the page cache, by one thread on a device of
//! little cost. Prints the three tables of the io_uring patches of January 2019.
//!
//! ```text
//!  Args ─► ground: a file, the user's devices, or devices in memory that are made and removed
//!       ─► cells: table × depth, each with all available contenders
//!       ─► for each round, cell and contender: a turn ─► report
//! ```
//! Every contender has the same places, depth and batches (`load`).

mod aio;
mod contender;
mod engine;
mod ground;
mod libaio;
mod load;
mod psync;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::json;

use crate::contenders::fio::Fio;
use crate::harness::bench::{Bench, Group};
use crate::harness::contender::{Fit, Word, once_each, words};
use crate::harness::cores;
use crate::harness::files::open_direct;
use crate::harness::machine::Machine;
use crate::harness::memory_devices::Memory;
use crate::harness::offsets::Order;
use crate::harness::run::Absent;
use crate::harness::settings::{Advice, Amount, Timed};
use crate::harness::turn::Turn;
use contender::Name;
use ground::Ground;
use load::Load;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use table::Table;

/// Operations per second past the page cache: the tables that io_uring was proposed with
///
/// With root, devices in memory are made and removed at the end, so that the figures are those of
/// the interface and not of a disk. Without root, files in the current directory are made, read and
/// removed at the end.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("seconds", |a| a.default_value("0.5")))]
pub struct Args {
    /// Read this file; a missing one is made and kept. With --count above 1 the files are PATH-0,
    /// PATH-1, …
    #[arg(long, value_name = "PATH", conflicts_with_all = ["device", "memory"])]
    file: Option<PathBuf>,

    /// Read these block devices
    #[arg(long, value_name = "PATH,…", value_delimiter = ',',
          conflicts_with_all = ["memory", "count", "size"])]
    device: Vec<PathBuf>,

    /// The kind of devices in memory to make (needs root) [default: loop]
    #[arg(long, value_enum)]
    memory: Option<Memory>,

    /// How many devices or files to make. The table per-core uses all, the other tables use the
    /// first
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    count: u32,

    /// The size of all devices or files together
    #[arg(long, default_value = "256M")]
    size: Size,

    /// Write instead of reading. This overwrites random blocks of each --device, which must not be
    /// in use
    #[arg(long)]
    write: bool,

    /// The tables to measure
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["latency", "peak", "per-core"])]
    tables: Vec<Table>,

    /// Measure only these depths of the tables
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    depths: Vec<usize>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    contenders: Vec<Name>,

    #[command(flatten)]
    timed: Timed,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round, at the same places, with the same depth and batches; fio draws
its own places. A batch is one operation in the table latency, and a quarter of the depth in the others.
Files are opened with O_DIRECT. The submitting thread and the threads that it starts stay on one core.
The kernel's thread of SQPOLL runs on a second core, so contenders with SQPOLL are not in the table
per-core. CPU is processor time of the process, without kernel threads such as those of a loop device.
fio measures its own latencies; in the table per-core it measures none.

The kernel threads of a loop device limit the rate before the interface does. Devices of the module null_blk
cost less, and can be polled:
  modprobe null_blk poll_queues=1 nr_devices=4
  nowait-bench iops --device /dev/nullb0,/dev/nullb1,/dev/nullb2,/dev/nullb3

Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
removes it too.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"table\" (\"latency\" |
\"peak\" | \"per-core\"), \"block\", \"devices\" and \"depth\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// One operation in this many is timed.
const TIMED: u64 = 16;

/// The operations of a group.
#[derive(Clone, Copy)]
struct Work {
    table: Table,
    block: u64,
    depth: usize,
}

/// Measures the tables and prints them.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let tables = once_each(&args.tables);
    let bench = Bench::timed("iops", &args.timed, stop)?;
    let smallest = tables.iter().map(|table| table.block()).min();
    let ground = Ground::prepare(args, smallest.unwrap_or(4096), &bench)?;
    let machine = Machine::look(&ground.first.paths[0])?;
    let core = cores::last()?;
    let mut groups = Vec::new();
    for table in tables {
        groups.extend(groups_of(args, table, &ground, &bench)?);
    }
    let fios = Name::value_variants().iter();
    let fios: Vec<(Name, Fio)> = fios.filter_map(|name| Some((*name, name.fio()?))).collect();
    let cells = bench.play(&groups, |group, name: &Name, number| {
        let Work {
            table,
            block,
            depth,
        } = group.work;
        let depth = name.depth(depth);
        let load = Load {
            turn: Turn {
                files: ground.files_for(block, table.per_core()),
                block,
                depth,
                threads: 1,
                amount: Amount::Seconds(args.timed.seconds),
                advice: Advice::Normal,
                order: Order::Any,
                timed: TIMED,
                seed: args.timed.rounds.seed_of(number),
                stop: &bench.stop,
            },
            batch: table.batch(depth),
            write: args.write,
            core,
            latencies: !table.per_core(),
        };
        let fio = fios.iter().find(|(of, _)| of == name);
        let round = name.play(&load, fio.map(|(_, fio)| fio));
        ground.all.check()?;
        // The figures of a turn that was cut short cannot be compared with others.
        Ok((!bench.stop.asked()).then_some(round?))
    })?;
    let mut names: Vec<Name> = groups
        .iter()
        .flat_map(|group| group.contenders.clone())
        .collect();
    names = once_each(&names);
    let settings = json!({
        "about": format!("{} s a turn, rounds: {}", args.timed.seconds, args.timed.rounds.count()),
        "on": ground.what,
        "files": ground.all,
        "write": args.write,
        "contenders": words(&names),
        "timed": format!("1 operation in {TIMED}"),
        "legend": "Medians over rounds; CPU: processor time of one operation; ratios are of operations per second.",
    });
    let run = bench.run(machine, settings);
    bench.finish(report::complete(run, cells))
}

/// The groups of a table. The first one has the contenders that cannot take part.
fn groups_of(
    args: &Args,
    table: Table,
    ground: &Ground,
    bench: &Bench<'_>,
) -> Result<Vec<Group<Work, Name>>, Problem> {
    let block = block(table, ground, bench)?;
    let files = ground.files_for(block, table.per_core());
    let asked = match &args.contenders[..] {
        [] => Name::value_variants(),
        asked => asked,
    };
    let (mut names, mut absent) = (Vec::new(), Vec::new());
    for name in once_each(asked) {
        match name.fits(files, block) {
            Fit::No(why) => {
                let name = name.word();
                absent.push(Absent { name, why });
                continue;
            }
            Fit::With(note) => bench.note(note),
            Fit::Yes => {}
        }
        names.push(name);
    }
    let wanted = |depth: &&usize| args.depths.is_empty() || args.depths.contains(depth);
    let group = |&depth: &usize| {
        let parameters = json!({
            "table": table.word(),
            "block": block,
            "devices": files.paths.len(),
            "depth": depth,
        });
        let names = names.iter().copied().filter(|name| table.has(*name, depth));
        let work = Work {
            table,
            block,
            depth,
        };
        let name = format!("{}-{depth}", table.word());
        let mut group = Group::new(name, parameters, work, names.collect());
        group.cell.absent = std::mem::take(&mut absent);
        group
    };
    Ok(table.depths().iter().filter(wanted).map(group).collect())
}

/// The bytes of one operation: those of the table, or a larger block if the device requires it.
fn block(table: Table, ground: &Ground, bench: &Bench<'_>) -> Result<u64, Problem> {
    let wanted = table.block();
    let files = ground.files_for(wanted, table.per_core());
    let handle = nowait::Handle::new(open_direct(&files.paths[0], false)?)?;
    let needed = handle.alignment();
    let least = needed.map_or(wanted, |needed| u64::from(needed.read_offset));
    if least > wanted {
        bench.note(format!(
            "{}: blocks of {}, because the device takes none of {}",
            table.word(),
            Size(least),
            Size(wanted)
        ));
    }
    Ok(wanted.max(least))
}
