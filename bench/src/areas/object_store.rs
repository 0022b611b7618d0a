//! `nowait-bench object-store`: `NowaitFileSystem` beside object_store's `LocalFileSystem`, in one
//! tokio runtime.
//! Each turn has a new store.

mod contender;
mod ground;
mod turn;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::json;

use crate::harness::bench::{Bench, Group};
use crate::harness::contender::{Contenders, Fit, Word};
use crate::harness::machine::Machine;
use crate::harness::settings::Timed;
use crate::harness::slow::Slow;
use contender::Name;
use ground::Ground;
use turn::Turn;
use work::Work;

/// An object store in a directory: NowaitFileSystem beside LocalFileSystem
///
/// Tasks of a tokio runtime read ranges of one large object, or list many small objects. Each
/// contender has the same runtime and the same places.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The object to read. An existing file is not changed, and --size is ignored; a missing one is
    /// made and kept [default: a file in the current directory, which is removed at the end]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// The size of the object that is made
    #[arg(long, default_value = "1G")]
    size: Size,

    /// How many objects are listed. Without --slow-disk they are made in the current directory, and
    /// the list needs root
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    objects: u32,

    /// The work to measure [default: all]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    works: Vec<Work>,

    #[command(flatten)]
    slow: Option<Slow>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    timed: Timed,
}

pub const AFTER: &str = "\
Contenders take turns within each round. Each turn has a new store. Ratios are those of nowait to LocalFileSystem, taken
within rounds. A turn of a cold work reads each range of the object once, a turn of `list` is one list, and the others
take --seconds. `threads` are those of the runtime, which has 2, or 4 for tiles, and those of the store. The threads of the process's engine count in each turn of nowait. An operation of `ranges-8K-100` reads 100 ranges of 8 KiB by one call of get_ranges. Only the objects of the
list lie on the slow disk. nowait-mapped has the budget of the process for locked memory.
Eight bytes of each range are checked; a wrong byte ends the bench.
Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and what was made
stays.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"tasks\", \"block\" and \"cold\".";

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("object-store", &args.timed, stop);
    let names = bench.choose(&args.contenders.names, |_| Fit::Yes)?;
    let works = bench.choose(&args.works, |_| Fit::Yes)?;
    let object = (args.file.as_deref(), args.size);
    let objects = works.contains(&Work::List).then_some(args.objects);
    let ground = Ground::prepare(object, objects, args.slow.as_ref(), &bench.stop)?;
    let machine = Machine::look(ground.object())?;
    let group = |work: Work| {
        let parameters = json!({
            "tasks": work.tasks(),
            "block": work.block(),
            "ranges": work.ranges(),
            "cold": work.is_cold(),
            "threads": work.threads(),
        });
        Group::new(work.word(), parameters, work, names.clone())
    };
    let groups: Vec<_> = works.into_iter().map(group).collect();
    let at_first = turn::threads();
    let cells = bench.play(&groups, |group, name: &Name, number| {
        ground.make_ready(group.work)?;
        if bench.stop.asked() {
            return Ok(None);
        }
        let turn = Turn {
            work: group.work,
            ground: &ground,
            seconds: args.timed.seconds,
            seed: args.timed.rounds.seed_of(number),
            at_first,
            stop: &bench.stop,
        };
        let round = turn.take(*name)?;
        Ok((round.ops > 0).then_some(round))
    })?;
    let disk = args.slow.as_ref().map(|slow| format!("; {slow}"));
    let settings = json!({
        "about": format!(
            "an object of {}, a list of {}{}",
            Size(ground.size()), args.objects, disk.unwrap_or_default()
        ),
        "size": ground.size(),
        "slow_disk": args.slow,
        "cache": ground.how(),
        "legend": "Medians over rounds; local: LocalFileSystem; CPU: processor time of the process for one operation.",
    });
    let mut run = bench.run(machine, settings);
    let tables = [
        ("operations/s", "ops_per_s", 1.0),
        ("CPU us/op", "cpu_us_per_op", 1.0),
        ("p99 us", "lat_us/p99", 1.0),
        ("threads", "threads", 1.0),
    ];
    run.add_by_figure(cells, &Name::Local.word(), &tables);
    bench.finish(run)
}
