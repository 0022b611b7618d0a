//! `nowait-bench ring`: nowait's `LocalEngine`, the crate io-uring and liburing run the same loop:
//! batches of random reads with O_DIRECT by one thread on one core.
//!
//! The loops are in `engine.rs` (nowait), `bare.rs` (the crate io-uring) and `liburing.rs`
//! (liburing, in C).

mod bare;
mod contender;
mod engine;
mod ground;
#[cfg(feature = "liburing")]
mod liburing;
mod places;
mod task;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::harness::bench::{Bench, Group};
use crate::harness::contender::Word;
use crate::harness::cores;
use crate::harness::files::open_direct;
use crate::harness::machine::Machine;
use crate::harness::round::Round;
use crate::harness::settings::{Timed, check_blocks};
use crate::harness::usage::Usage;
use contender::Name;
use ground::Ground;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use task::Task;

/// nowait's LocalEngine beside the bare ring: the crate io-uring, and liburing
///
/// One thread on one core keeps --depth random reads in flight, with O_DIRECT. It submits free
/// slots and waits for --batch completions with one system call. Every contender runs this loop,
/// first with plain descriptors and memory ("plain"), then with registered ones ("fixed").
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("rounds", |a| a.default_value("9")))]
pub struct Args {
    /// The files or block devices to read, of at least 100 blocks each. All are read as far as the
    /// smallest of them goes [default: a device in memory, or without root a file in the current
    /// directory; both are removed at the end]
    paths: Vec<PathBuf>,

    /// The size of the device or file that is made
    #[arg(long, default_value = "256M", conflicts_with = "paths")]
    size: Size,

    /// How many reads are in flight at once
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,

    /// How many completions one system call waits for; more than --depth counts as --depth
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,

    /// The size of one read
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    block: Size,

    /// The core to stay on [default: the last one that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..1024))]
    core: Option<u16>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    contenders: Vec<Name>,

    #[command(flatten)]
    timed: Timed,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round and read the same places. Ratios are taken within rounds. CPU is
processor time of the process, without kernel threads such as those of a loop device. liburing takes part
if this program was built with --features liburing, which needs a C compiler and liburing-dev.
Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
removes it too.

JSON (--json): the shape of all areas (nowait-bench --help). The cells \"plain\" and \"fixed\" have the parameters
\"registered\", \"files\", \"block\", \"depth\" and \"batch\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// Measures the loops and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("ring", &args.timed, stop)?;
    let names = bench.choose(&args.contenders, Name::fits)?;
    check_blocks(&[args.block], args.depth)?;
    let ground = Ground::prepare(args, &bench)?;
    let files = &ground.files;
    // Before the thread is bound to a core, for it counts the cores.
    let machine = Machine::look(&files.paths[0])?;
    let core = args.core.map_or_else(cores::last, |core| Ok(core.into()))?;
    cores::stay_on(core)?;
    let batch = args.batch.min(args.depth);
    let open = |path: &PathBuf| open_direct(path, false);
    let mut task = Task {
        files: files.paths.iter().map(open).collect::<Result<_, _>>()?,
        blocks: files.sizes[0] / args.block.0,
        block: args.block.0 as u32,
        depth: args.depth,
        batch,
        time: Duration::from_secs_f64(args.timed.seconds),
        seed: 0,
        registered: false,
        stop: bench.stop.clone(),
    };
    let groups = [("plain", false), ("fixed", true)].map(|(name, registered)| {
        let parameters = json!({
            "registered": registered,
            "files": files.paths.len(),
            "block": args.block.0,
            "depth": args.depth,
            "batch": batch,
        });
        Group::new(name, parameters, registered, names.clone())
    });
    let cells = bench.play(&groups, |group, name: &Name, number| {
        task.seed = args.timed.rounds.seed_of(number);
        task.registered = group.work;
        let before = Usage::of_self();
        let done = name.read(&task).map_err(|e| Problem::of(name.word(), e))?;
        let used = Usage::of_self() - before;
        let round = Round::new(done.reads, args.block.0, done.seconds, used);
        Ok((done.reads > 0).then_some(round))
    })?;
    let settings = json!({
        "about": format!(
            "reads of {}, depth {}, batches of {batch}, core {core}, {} s a turn, rounds: {}",
            args.block, args.depth, args.timed.seconds, args.timed.rounds.count()
        ),
        "files": files,
        "block": args.block.0,
        "depth": args.depth,
        "batch": batch,
        "core": core,
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
