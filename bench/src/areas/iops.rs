//! `nowait-bench iops`: operations per second past the page cache, by one thread on a device of
//! little cost. Prints the three tables of the io_uring patches of January 2019.
//! Every contender has the same places, depth and batches (`load`).

mod aio;
mod contender;
pub mod engine;
pub mod load;
mod psync;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::json;

use crate::contenders::fio::Fio;
use crate::harness::bench::{Bench, Group};
use crate::harness::cell::Absent;
use crate::harness::contender::{Contenders, Fit, Word, once_each};
use crate::harness::cores;
use crate::harness::direct::Direct;
use crate::harness::files::{Files, open_direct};
use crate::harness::machine::Machine;
use crate::harness::offsets::Order;
use crate::harness::settings::{Amount, Timed};
use crate::harness::turn::Turn;
use contender::Name;
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
    /// Read the files PATH-0 to PATH-3; missing ones are made and kept
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// The size of all devices or files together
    #[arg(long, default_value = "256M")]
    size: Size,

    /// The tables to measure
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["latency", "peak", "per-core"])]
    tables: Vec<Table>,

    /// Measure only these depths of the tables
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    depths: Vec<usize>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    timed: Timed,
}

pub const AFTER: &str = "\
Contenders take turns within each round, at the same places, with the same depth and batches; fio draws
its own places. A batch is one operation in the table latency, and a quarter of the depth in the others.
Files are opened with O_DIRECT. The submitting thread and the threads that it starts stay on one core.
The kernel's thread of SQPOLL runs on a second core, so contenders with SQPOLL are not in the table
per-core. CPU is processor time of the process, without kernel threads such as those of a loop device.
fio measures its own latencies; in the table per-core it measures none.

Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
removes it too.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"table\" (\"latency\" |
\"peak\" | \"per-core\"), \"block\", \"devices\" and \"depth\".";

/// One operation in this many is timed.
const TIMED: u64 = 16;

/// The number of devices or files. The table per-core uses all, the other tables use the first.
const COUNT: u32 = 4;

/// The operations of a group.
#[derive(Clone, Copy)]
struct Work {
    table: Table,
    block: u64,
    depth: usize,
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("iops", &args.timed, stop);
    let ground = Direct::prepare(args.file.as_deref(), COUNT, args.size, &bench)?;
    let machine = Machine::look(&ground.first.paths[0])?;
    let loads = Loads {
        args,
        ground: &ground,
        core: cores::last()?,
        stop: &bench.stop,
    };
    let mut groups = Vec::new();
    for table in once_each(&args.tables) {
        groups.extend(loads.groups_of(table, &bench)?);
    }
    let fios = Name::value_variants().iter();
    let fios: Vec<(Name, Fio)> = fios.filter_map(|name| Some((*name, name.fio()?))).collect();
    let cells = bench.play(&groups, |group, name: &Name, number| {
        let work = Work {
            depth: name.depth(group.work.depth),
            ..group.work
        };
        let load = loads.of(work, number);
        let round = match fios.iter().find(|(of, _)| of == name) {
            Some((_, fio)) => fio.play(&load.turn, &fio_options(&load, group.work.table)),
            None => name.play(&load),
        };
        ground.all.check()?;
        // The figures of a turn that was cut short cannot be compared with others.
        match bench.stop.asked() {
            true => Ok(None),
            false => round.map(Some),
        }
    })?;
    let settings = json!({
        "on": ground.on,
        "files": ground.all,
        "timed": format!("1 operation in {TIMED}"),
        "legend": "Medians over rounds; CPU: processor time of one operation; ratios are of operations per second.",
    });
    let run = bench.run(machine, settings);
    bench.finish(report::complete(run, cells))
}

/// The options with which fio does the same as the other contenders.
fn fio_options(load: &Load<'_>, table: Table) -> Vec<String> {
    let mut options = vec![
        "--direct=1".into(),
        format!("--iodepth_batch={}", load.batch),
        format!("--iodepth_batch_complete_min={}", load.batch),
        format!("--iodepth_batch_complete_max={}", load.turn.depth),
        format!("--cpus_allowed={}", load.core),
    ];
    // fio measures no latencies in the table per-core.
    options.extend(table.per_core().then(|| "--gtod_reduce=1".into()));
    options
}

/// The parts of a load that all groups have in common.
struct Loads<'a> {
    args: &'a Args,
    ground: &'a Direct,
    core: usize,
    stop: &'a Stop,
}

impl<'a> Loads<'a> {
    /// The files or devices of a table.
    fn files(&self, table: Table) -> &'a Files {
        match table.per_core() {
            true => &self.ground.all,
            false => &self.ground.first,
        }
    }

    /// The load of a turn in this round.
    fn of(&self, work: Work, number: usize) -> Load<'a> {
        Load {
            turn: Turn {
                files: self.files(work.table),
                block: work.block,
                depth: work.depth,
                threads: 1,
                amount: Amount::Seconds(self.args.timed.seconds),
                order: Order::Any,
                timed: TIMED,
                seed: self.args.timed.rounds.seed_of(number),
                stop: self.stop,
            },
            batch: work.table.batch(work.depth),
            core: self.core,
        }
    }

    /// The groups of a table. The first one has the contenders that cannot take part.
    fn groups_of(
        &self,
        table: Table,
        bench: &Bench<'_>,
    ) -> Result<Vec<Group<Work, Name>>, Problem> {
        let args = self.args;
        let files = self.files(table);
        let block = block(table, files, bench)?;
        let work = |depth| Work {
            table,
            block,
            depth,
        };
        let asked = match &args.contenders.names[..] {
            [] => Name::value_variants(),
            asked => asked,
        };
        let (mut names, mut absent) = (Vec::new(), Vec::new());
        for name in once_each(asked) {
            match name.fits(&self.of(work(1), 0)) {
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
            let name = format!("{}-{depth}", table.word());
            let mut group = Group::new(name, parameters, work(depth), names.collect());
            group.cell.absent = std::mem::take(&mut absent);
            group
        };
        Ok(table.depths().iter().filter(wanted).map(group).collect())
    }
}

/// The bytes of one operation: those of the table, or a larger block if the device requires it.
fn block(table: Table, files: &Files, bench: &Bench<'_>) -> Result<u64, Problem> {
    let wanted = table.block();
    let needed = nowait::Handle::new(open_direct(&files.paths[0])?)?.alignment();
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
