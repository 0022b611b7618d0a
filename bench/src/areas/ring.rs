//! `nowait-bench ring`: nowait's `LocalEngine` and the crate io-uring run the same loop: batches of
//! random reads with O_DIRECT by one thread on one core.

mod bare;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::json;

use super::iops::engine::Kind;
use super::iops::load::Load;
use crate::contenders::local;
use crate::harness::bench::{Bench, Group};
use crate::harness::contender::{Contenders, Fit, Named, Word};
use crate::harness::cores;
use crate::harness::direct::Direct;
use crate::harness::machine::Machine;
use crate::harness::offsets::Order;
use crate::harness::settings::{Amount, Timed};
use crate::harness::turn::Turn;
use bare::Bare;

/// nowait's LocalEngine beside the bare ring: the crate io-uring
///
/// One thread on one core keeps 128 random reads of 4 KiB in flight, with O_DIRECT. One system call
/// submits free slots and waits for 32 completions. Every contender runs this loop, first
/// with plain descriptors and memory ("plain"), then with registered ones ("fixed").
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("rounds", |a| a.default_value("9")))]
pub struct Args {
    /// Read this file; a missing one is made and kept [default: a device in memory, or without root
    /// a file in the current directory; both are removed at the end]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// The size of the device or file that is made
    #[arg(long, default_value = "256M")]
    size: Size,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    timed: Timed,
}

pub const AFTER: &str = "\
Contenders take turns within each round and read the same places. Ratios are taken within rounds. CPU is
processor time of the process, without kernel threads such as those of a loop device.
Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
removes it too.

JSON (--json): the shape of all areas (nowait-bench --help). The cells \"plain\" and \"fixed\" have the parameters
\"registered\", \"block\", \"depth\" and \"batch\".";

const BLOCK: u64 = 4096;
const DEPTH: usize = 128;
const BATCH: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// nowait's LocalEngine
    Nowait,
    /// The crate io-uring: a ring without an engine
    IoUring,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self == Name::Nowait
    }
}

impl Name {
    fn fits(self) -> Fit {
        match self {
            Name::Nowait => local::fits(&self.word()),
            Name::IoUring => bare::fits(),
        }
    }
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("ring", &args.timed, stop);
    let names = bench.choose(&args.contenders.names, Name::fits)?;
    let ground = Direct::prepare(args.file.as_deref(), 1, args.size, &bench)?;
    let machine = Machine::look(&ground.all.paths[0])?;
    let core = cores::last()?;
    let groups = [("plain", false), ("fixed", true)].map(|(name, registered)| {
        let parameters =
            json!({"registered": registered, "block": BLOCK, "depth": DEPTH, "batch": BATCH});
        Group::new(name, parameters, registered, names.clone())
    });
    let cells = bench.play(&groups, |group, name: &Name, number| {
        let load = Load {
            turn: Turn {
                files: &ground.all,
                block: BLOCK,
                depth: DEPTH,
                threads: 1,
                amount: Amount::Seconds(args.timed.seconds),
                order: Order::Any,
                timed: 64,
                seed: args.timed.rounds.seed_of(number),
                stop: &bench.stop,
            },
            batch: BATCH,
            core,
        };
        let fixed = group.work;
        let kind = Kind {
            fixed,
            ..Kind::default()
        };
        let round = match name {
            Name::Nowait => load.play(|parts| kind.queue(parts)),
            Name::IoUring => load.play(|parts| Bare::new(parts, fixed)),
        };
        ground.all.check()?;
        Ok(Some(round?).filter(|round| round.ops > 0))
    })?;
    let settings = json!({
        "about": format!("reads of 4K, depth {DEPTH}, batches of {BATCH}, core {core}"),
        "files": ground.all,
        "legend": "Medians over rounds; fixed: with registered files and memory; CPU: processor time of the process.",
    });
    let mut run = bench.run(machine, settings);
    let tables = [
        ("kops/s", "ops_per_s", 1e-3),
        ("CPU us/op", "cpu_us_per_op", 1.0),
    ];
    run.add_by_figure(cells, &Name::IoUring.word(), &tables);
    bench.finish(run)
}
