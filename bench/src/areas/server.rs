//! `nowait-bench server`: static HTTP file servers that differ in how they read files. It is the
//! workload for which preadv2's RWF_NONBLOCK was proposed: cached files must not wait for those
//! that come from the disk.
//! Before each turn the cold files are evicted, the hot ones are read, and a server is started.

mod contender;
mod content;
mod ground;
mod inside;
mod load;
mod nginx;
mod report;
mod round;
mod running;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::json;

use crate::harness::bench::{Bench, Group};
use crate::harness::contender::{Contenders, once_each};
use crate::harness::machine::Machine;
use crate::harness::settings::Timed;
use crate::harness::slow::Slow;
use contender::Name;
use ground::Ground;
use round::Turn;

/// HTTP file servers: cached files beside files that come from the disk, over loopback TCP
///
/// Each contender in turn serves the same files on 127.0.0.1. Clients in one thread of this process
/// keep connections alive, each with one request at a time. Hot connections request cached files at
/// random. Cold connections request files that were evicted before the turn, each once. All
/// contenders but those of ServeDir and nginx have the same handler on hyper and tokio, and differ
/// only in how it reads the file.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory of the files. Missing files are made and kept [default: a directory in the
    /// current one, which is removed at the end]
    #[arg(long, value_name = "PATH", conflicts_with = "slow_disk")]
    dir: Option<PathBuf>,

    /// The size of each file
    #[arg(long, default_value = "64K", value_parser = size)]
    size: Size,

    /// How many files are cached
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hot_files: u32,

    /// How many files are not cached. A turn ends early when each was read once
    #[arg(long, value_name = "N", default_value_t = 8000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cold_files: u32,

    /// How many connections request cached files
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    hot: u32,

    /// How many connections request files that are not cached; a cell for each number
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["0", "32"],
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    cold: Vec<u32>,

    /// How many connections request a response that needs no file
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    api: u32,

    /// Repeats each turn that has cold connections: they then request cached files, together as
    /// many per second as before. Shows how much longer the other requests take beside the cold
    /// ones
    #[arg(long)]
    paced: bool,

    /// Threads of the server's runtime, or workers of nginx
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,

    #[command(flatten)]
    slow: Option<Slow>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    timed: Timed,
}

pub const AFTER: &str = "\
Contenders take turns within each round. Ratios are those of nowait to each contender, taken within rounds.
The length of each response and eight bytes of each 4 KiB are checked; a wrong byte ends the bench.
CPU is processor time of the server for one request, hot or cold, without that of the clients. It has all
threads of this process but that of the clients, also those of a slow disk; for nginx, all its processes.
`tick` is the lateness of the server's runtime for a timer that fires every millisecond; nginx has none.
nginx has `sendfile on`, and `aio threads` with its default of 32 threads for each worker. Clients and server
share the processors.
Ctrl-C prints what was measured, ends nginx and removes what was made; a second one ends the program at once,
and nginx with it, but a directory that was made here stays.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"hot_connections\",
\"cold_connections\", \"threads\" and \"block\". A round has ops, seconds, ops_per_s, mb_per_s, cpu_us_per_op,
tick_us {p50 … max} or null, and \"classes\": {\"hot\" | \"cold\": {\"ops\", \"ops_per_s\", \"lat_us\", …}};
ratios have figures such as \"classes/hot/lat_us/p99\". With --api there is a class \"api\". With --paced a
round has \"p99_beside_cold\": {\"hot\", \"api\"}, a p99 divided by that of the same round's paced turn.";

/// The most bytes of a file.
const LARGEST: u64 = 1 << 30;

fn size(text: &str) -> Result<Size, String> {
    match text.parse()? {
        size @ Size(..=LARGEST) => Ok(size),
        _ => Err(format!("give at most {}", Size(LARGEST))),
    }
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("server", &args.timed, stop);
    let names = bench.choose(&args.contenders.names, running::fits)?;
    let ground = Ground::prepare(
        args.dir.as_deref(),
        args.size.0,
        (args.hot_files, args.cold_files),
        args.slow.as_ref(),
        &bench.stop,
    )?;
    let machine = Machine::look(&ground.root)?;
    let numbers = once_each(&args.cold).into_iter();
    let groups: Vec<_> = numbers.map(|cold| group(args, cold, &names)).collect();
    let cells = bench.play(&groups, |group, name: &Name, number| {
        bench.note_some(ground.make_ready()?);
        if bench.stop.asked() {
            return Ok(None);
        }
        let turn = Turn {
            ground: &ground,
            threads: args.threads as usize,
            time: Duration::from_secs_f64(args.timed.seconds),
            is_paced: args.paced,
            connections: [args.hot, group.work, args.api],
            seed: args.timed.rounds.seed_of(number),
            stop: &bench.stop,
        };
        let round = turn.take(*name)?;
        if round.is_early {
            bench.note(
                "a turn ended early, when each cold file was read once: more --cold-files make it longer",
            );
        }
        Ok((round.ops > 0).then_some(round))
    })?;
    let disk = args.slow.as_ref().map(|slow| format!("; {slow}"));
    let settings = json!({
        "about": format!(
            "{} hot and {} cold files of {}{}; {} threads",
            args.hot_files, args.cold_files, args.size, disk.unwrap_or_default(), args.threads
        ),
        "slow_disk": args.slow,
        "cache": ground::HOW,
        "legend": "Medians over rounds; hot: cached files; cold: files that are not cached; in parentheses: hot \
                   and cold connections; req/s: responses per second; CPU: processor time of the \
                   server for one request; tick: how late the server's runtime came to a timer; \
                   ratio: the figure of nowait divided by that of the contender.",
    });
    let mut run = bench.run(machine, settings);
    cells
        .into_iter()
        .for_each(|cell| report::add(&mut run, cell));
    bench.finish(run)
}

/// The group with this number of cold connections.
fn group(args: &Args, cold: u32, names: &[Name]) -> Group<u32, Name> {
    let parameters = json!({
        "hot_connections": args.hot,
        "cold_connections": cold,
        "threads": args.threads,
        "block": args.size.0,
    });
    let name = format!("hot-{}-cold-{cold}", args.hot);
    let title = format!("({} + {cold})", args.hot);
    Group::new(name, parameters, cold, names.to_vec()).titled(title)
}
