//! The process under pressure: reads the file into memory, starts the pressure, and does all turns.

use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nowait::read::NowaitPolicy;
use nowait::residency::{Answer, Probe, Source};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::json;

use super::cell::{Pattern, Place, Turn};
use super::child::{Orders, Reply};
use super::ground::{Ground, read_now, resident};
use super::pressure::{self, Held, Pressure};
use super::{trial, ways};
use crate::harness::cache::read_through;
use crate::harness::contender::Word;
use crate::harness::files;
use nowait_cli::problem::Problem;

/// The arguments of the hidden verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The file of the questions
    file: PathBuf,
}

/// The pages and the size of strict reads.
pub const STRICT: Place = Place {
    pattern: Pattern::Seeky,
    block: 4096,
};

/// Runs the process under pressure. Errors are sent to the parent.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    if let Err(Problem::Failed(why) | Problem::Usage(why)) = work(args) {
        say(&Reply::Failed(why))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn work(args: &Args) -> Result<(), Problem> {
    // This process must not outlive its parent. It is the first one that the kernel kills for lack
    // of memory.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| Problem::of("prctl", e))?;
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");

    let orders: Orders =
        serde_json::from_str(&listen()?).map_err(|e| Problem::of("orders of the parent", e))?;
    // The engine is built before memory is short.
    let engine = nowait::Engine::options()
        .nowait_policy(NowaitPolicy::Always)
        .build()?;
    let ground = prepare(args, &orders)?;
    say(&Reply::Warm)?;
    listen()?;

    let end = AtomicBool::new(false);
    let held = squeeze(args, &orders)?;
    std::thread::scope(|scope| {
        let pressing = scope.spawn(|| match (held, orders.pressure) {
            (Some(held), _) => held.breathe(&end),
            (None, Pressure::Evict) => pressure::evict(&ground.path, ground.size, &end),
            (None, _) => Ok(()),
        });
        let done = turns(&orders, &ground, &engine);
        end.store(true, Ordering::Relaxed);
        let pressed = pressing.join();
        pressed.unwrap_or_else(|_| Err(Problem::Failed("the pressure thread panicked".into())))?;
        done
    })
}

/// Reads the file into memory, and finds out if mincore(2) is reliable.
fn prepare(args: &Args, orders: &Orders) -> Result<Ground, Problem> {
    let mut ground = Ground {
        path: args.file.clone(),
        size: orders.size,
        time: Duration::from_secs_f64(orders.seconds),
        seed: orders.seed,
        mincore: false,
    };
    let file = files::open(&ground.path)?;
    ground.mincore = knows(&file, ground.size)?;
    read_through(&file, ground.size)?;
    // A call that would fail in each turn fails here.
    resident(&Probe::new(&file)?, 0, 1)?;
    read_now(&file, &mut [0], 0)?;
    Ok(ground)
}

/// Returns true if mincore(2) reports the residency of a file that was just evicted. Without write
/// permission on the file it reports all pages as resident.
fn knows(file: &impl AsFd, size: u64) -> Result<bool, Problem> {
    let Ok(probe) = Probe::only(Source::Mincore, file) else {
        return Ok(false);
    };
    Ok(match probe.residency(0..size)? {
        Answer::Known { value, .. } => value.cached < value.pages,
        Answer::Unknown(_) => false,
    })
}

/// The memory that the pressure takes; `None` if it takes no memory.
fn squeeze(args: &Args, orders: &Orders) -> Result<Option<Held>, Problem> {
    let Some(squeeze) = orders.pressure.squeeze(orders.size) else {
        return Ok(None);
    };
    let Some(most) = orders.most else {
        return Held::nothing(squeeze, &args.file).map(Some);
    };
    let (held, note) = Held::until_reclaim(squeeze, &args.file, most)?;
    say(&Reply::Note(format!("{}: {note}", orders.pressure.word())))?;
    Ok(Some(held))
}

fn turns(orders: &Orders, ground: &Ground, engine: &nowait::Engine) -> Result<(), Problem> {
    for &(number, turn) in &orders.turns {
        say(&Reply::Now(number))?;
        let outcome = match turn {
            Turn::Race(cell) => json!(trial::run(ground, cell)?),
            Turn::Cost(place, way) => json!(ways::run(ground, place, way)?),
            Turn::Strict => json!(ways::strict(ground, STRICT, engine)?),
        };
        say(&Reply::Done(number, outcome))?;
    }
    Ok(())
}

fn say(reply: &Reply) -> Result<(), Problem> {
    let line = serde_json::to_string(reply).map_err(|e| Problem::of("JSON", e))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Problem::of("standard output", e))
}

fn listen() -> Result<String, Problem> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(Problem::Failed(
            "this verb is for `nowait-bench race`, which tells it what to do".into(),
        )),
        Ok(_) => Ok(line),
        Err(e) => Err(Problem::of("standard input", e)),
    }
}
