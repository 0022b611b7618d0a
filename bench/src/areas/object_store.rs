//! `nowait-bench object-store`: `NowaitFileSystem` beside object_store's `LocalFileSystem`, in one tokio runtime.
//!
//! ```text
//!  Args ─► ground: an object found or made, and a directory of objects, perhaps on a slow disk
//!       ─► for each round, work and contender:
//!            put the caches into the state of the work ─► a new store ─► tasks read, or a list
//!       ─► report ─► remove the ground
//! ```

mod contender;
mod ground;
mod report;
mod turn;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::{Value, json};

use crate::harness::contender::{Fit, available, once_each};
use crate::harness::machine::Machine;
use crate::harness::round::Round;
use crate::harness::run::{INTERVAL, ORDER};
use crate::harness::settings::Timed;
use crate::harness::slow::Slow;
use contender::Name;
use ground::Ground;
use turn::Turn;
use work::Work;

/// An object store in a directory: NowaitFileSystem beside LocalFileSystem
///
/// Tasks of a tokio runtime read ranges of one large object, or list many small objects. Each contender has the same
/// runtime and the same places.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The object to read. An existing file is not changed, and --size is ignored; a missing one is made and kept
    /// [default: a file in the current directory, which is removed at the end]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// The size of the object that is made
    #[arg(long, default_value = "1G")]
    size: Size,

    /// How many objects are listed. Without --slow-disk they are made in the current directory, and the list needs root
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    objects: u32,

    /// The work to measure [default: all]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    works: Vec<Work>,

    /// Threads of the runtime
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,

    #[command(flatten)]
    slow: Option<Slow>,

    /// The contenders [default: all]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    contenders: Vec<Name>,

    #[command(flatten)]
    timed: Timed,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round. Each turn has a new store. Ratios are those of nowait to LocalFileSystem, taken
within rounds. A turn of `cold-64K-32` reads each range of the object once, a turn of `list` is one list, and the others
take --seconds. An operation of `ranges-8K-100` reads 100 ranges of 8 KiB by one call of get_ranges. Only the objects of the
list lie on the slow disk. nowait-mapped has the budget of the process for locked memory.
Eight bytes of each range are checked; a wrong byte ends the bench.
Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and what was made
stays.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"tasks\", \"block\" and \"cold\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// The rounds of all contenders that do one work.
struct Cell {
    work: Work,
    contenders: Vec<(Name, Vec<Round>)>,
}

/// Measures the stores and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    args.timed.output.prepare()?;
    let all = Name::value_variants();
    let fits = |_| Fit::Yes;
    let names = available(&args.contenders, all, Name::word, fits, &mut Vec::new())?;
    let works = match &args.works[..] {
        [] => Work::value_variants().to_vec(),
        works => once_each(works),
    };
    let ground = Ground::prepare(args, &works, &stop)?;
    let machine = Machine::look(ground.object())?;
    let mut cells: Vec<Cell> = works
        .into_iter()
        .map(|work| Cell {
            work,
            contenders: names.iter().map(|name| (*name, Vec::new())).collect(),
        })
        .collect();
    play(args, &ground, &mut cells, &stop)?;
    let mut run = report::run(machine, args.settings(&ground), args, &cells);
    run.interrupted = stop.asked();
    args.timed.output.finish(run)
}

/// All rounds; each begins with the next contender.
fn play(args: &Args, ground: &Ground, cells: &mut [Cell], stop: &Stop) -> Result<(), Problem> {
    let turns: usize = cells.iter().map(|cell| cell.contenders.len()).sum();
    let mut progress = Progress::of_turns(turns as u64 * u64::from(args.timed.rounds.count()));
    let mut done = 0;
    for number in 0..args.timed.rounds.count() as usize {
        for cell in cells.iter_mut() {
            let n = cell.contenders.len();
            for i in (0..n).map(|i| (i + number) % n) {
                let (name, rounds) = &mut cell.contenders[i];
                let (round, work) = (number + 1, cell.work.word());
                progress.at(done, format!("round {round}: {work} {}", name.word()));
                done += 1;
                ground.make_ready(cell.work)?;
                if stop.asked() {
                    return Ok(());
                }
                let turn = Turn {
                    work: cell.work,
                    ground,
                    threads: args.threads as usize,
                    seconds: args.timed.seconds,
                    seed: args.timed.rounds.seed_of(number),
                    stop,
                };
                let round = turn.take(*name)?;
                // A turn that was cut short is left out, unless it is the only one.
                if round.ops > 0 && (!stop.asked() || rounds.is_empty()) {
                    rounds.push(round);
                }
                if stop.asked() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

impl Args {
    fn settings(&self, ground: &Ground) -> Value {
        let disk = self.slow.as_ref().map(|slow| format!("; {slow}"));
        json!({
            "about": format!(
                "an object of {}, a list of {}; {} threads; {} s a turn, rounds: {}{}",
                Size(ground.size()),
                self.objects,
                self.threads,
                self.timed.seconds,
                self.timed.rounds.count(),
                disk.unwrap_or_default()
            ),
            "size": ground.size(),
            "objects": self.objects,
            "threads": self.threads,
            "slow_disk": self.slow,
            "seconds": self.timed.seconds,
            "rounds": self.timed.rounds.count(),
            "seed": self.timed.rounds.seed,
            "cache": ground.how(),
            "order": ORDER,
            "interval": INTERVAL,
            "legend": "Medians over rounds; local: LocalFileSystem; CPU: processor time of the process for one operation.",
        })
    }
}
