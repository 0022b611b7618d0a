//! The process under pressure: reads the file into memory, starts the pressure, and does all turns.

use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nowait::read::NowaitPolicy;
use nowait::residency::{Answer, Probe, Source};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cell::{Pattern, Place, Turn};
use super::cgroup::Cgroup;
use super::ground::{Ground, read_now, resident};
use super::pressure::{self, Held, Pressure};
use super::{trial, ways};
use crate::harness::cache::{evict, read_through};
use crate::harness::contender::Word;
use crate::harness::files;
use nowait_cli::problem::Problem;

/// The orders of the process, which it reads on standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    pub file: PathBuf,
    pub pressure: Pressure,
    /// Bytes of the file.
    pub size: u64,
    /// The length of a turn in seconds.
    pub seconds: f64,
    pub seed: u64,
    /// The turns in their order, each with its number.
    pub turns: Vec<(usize, Turn)>,
}

/// A line of the process's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// The limit of the cgroup, in bytes.
    Limit(u64),
    /// The result of a turn.
    Done(usize, Value),
    /// A note for the report.
    Note(String),
}

/// The pages and the size of strict reads.
pub const STRICT: Place = Place {
    pattern: Pattern::Seeky,
    block: 4096,
};

/// Runs the process under pressure.
pub fn run() -> Result<ExitCode, Problem> {
    // This process must not outlive its parent, and is the first one that the kernel kills for lack
    // of memory.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| Problem::of("prctl", e))?;
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let orders: Orders = serde_json::from_reader(std::io::stdin().lock()).map_err(|e| {
        Problem::of(
            "this verb is for `nowait-bench race`, which tells it what to do",
            e,
        )
    })?;

    let squeeze = orders.pressure.squeeze(orders.size);
    let cgroup = match squeeze.map(|_| Cgroup::join()).transpose() {
        Ok(cgroup) => cgroup,
        Err(why) => {
            let word = orders.pressure.word();
            let note = format!("`{word}` is left out, because no memory cgroup can be made: {why}");
            say(&Line::Note(note))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    // The engine is built before memory is short.
    let engine = nowait::Engine::options()
        .nowait_policy(NowaitPolicy::Always)
        .build()?;
    let ground = prepare(&orders)?;
    let held = squeeze.map(|squeeze| Held::new(squeeze, &orders.file));
    let held = held.transpose()?;
    if let (Some(cgroup), Some(squeeze)) = (cgroup, squeeze) {
        say(&Line::Limit(shorten(&cgroup, squeeze.lacks, &orders)?))?;
    }

    let end = AtomicBool::new(false);
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
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Limits the cgroup to `lacks` bytes less than it uses, and returns the limit.
///
/// Evicts the file and reads it again if the kernel cannot reclaim enough: pages of the file were
/// reclaimed before, or are charged to another cgroup that has read them.
fn shorten(cgroup: &Cgroup, lacks: u64, orders: &Orders) -> Result<u64, Problem> {
    let mut tries = 0;
    loop {
        let limit = cgroup.usage()?.saturating_sub(lacks);
        tries += 1;
        match cgroup.limit(limit) {
            Ok(()) => return Ok(limit),
            Err(e) if e.kind() == ErrorKind::ResourceBusy && tries < TRIES => {
                let file = files::open(&orders.file)?;
                evict(slice::from_ref(&file))?;
                read_through(&file, orders.size)?;
            }
            Err(e) => return Err(Problem::of("the limit of the memory cgroup", e)),
        }
    }
}

/// The file is read at most so many times for a limit.
const TRIES: usize = 6;

/// Reads the file into memory, and finds out if mincore(2) is reliable.
fn prepare(orders: &Orders) -> Result<Ground, Problem> {
    let file = files::open(&orders.file)?;
    let mincore = knows(&file, orders.size)?;
    read_through(&file, orders.size)?;
    // A call that would fail in each turn fails here.
    resident(&Probe::new(&file)?, 0, 1)?;
    read_now(&file, &mut [0], 0)?;
    Ok(Ground {
        path: orders.file.clone(),
        size: orders.size,
        time: Duration::from_secs_f64(orders.seconds),
        seed: orders.seed,
        mincore,
    })
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

fn turns(orders: &Orders, ground: &Ground, engine: &nowait::Engine) -> Result<(), Problem> {
    for &(number, turn) in &orders.turns {
        let outcome = match turn {
            Turn::Race(cell) => json!(trial::run(ground, cell)?),
            Turn::Cost(place, way) => json!(ways::run(ground, place, way)?),
            Turn::Strict => json!(ways::strict(ground, STRICT, engine)?),
        };
        say(&Line::Done(number, outcome))?;
    }
    Ok(())
}

fn say(line: &Line) -> Result<(), Problem> {
    let line = serde_json::to_string(line).map_err(|e| Problem::of("JSON", e))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").map_err(|e| Problem::of("standard output", e))
}
