//! `nowait-bench race`: how often a page that fincore reported as cached is gone when it is read.
//! The fincore() thread of 2015 asked for this measurement ("determine under what conditions (if
//! any) the page-stealing race occurs").
//!
//! ```text
//!  Args ─► turns ─► for each round and pressure:
//!                     evict the file ─► start a child ─► put it into a cgroup ─► it reads the file
//!                       ─► limit the cgroup: its usage less what the pressure lacks ─► all turns
//!                       ─► end the child ─► remove the cgroup
//!               ─► report
//! ```
//! `child` starts the process under pressure and talks to it. `inside` is that process: `trial`
//! asks and reads, `ways` measures costs, `pressure` takes memory at the same time.

mod cell;
mod cgroup;
mod child;
mod ground;
pub mod inside;
mod pressure;
mod report;
mod share;
mod times;
mod trial;
mod ways;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::harness::cache::{Cache, evict, resident};
use crate::harness::contender::{Word, once_each};
use crate::harness::delay::Delay;
use crate::harness::files::{Files, Wanted};
use crate::harness::machine::Machine;
use crate::harness::run::Run;
use crate::harness::settings::Timed;
use cell::{Cell, Pattern, Place, Turn, Way};
use cgroup::Cgroup;
use child::{Child, Message, Orders, Reply};
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use pressure::Pressure;
use report::Pressed;

/// How often a page that was reported as cached is gone when it is read
///
/// Asks if pages of a file are cached, as fincore does, while memory is short. Waits for a delay
/// and reads the pages that are cached with RWF_NOWAIT. The reads are linear and random, of 1 byte
/// and of 4 KiB, with and without a touch: a read of one byte of the page before the delay, which
/// marks the page as used.
///
/// A memory cgroup makes memory short for one process of this program. It is removed at the end. If
/// no cgroup can be made, a thread takes memory until the kernel reclaims some. This slows down
/// every program on the machine.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("seconds", |a| a.default_value("0.1")
                  .help("How long each kind of question is asked in each round")),
          mut_arg("rounds", |a| a.default_value("5").help("How many rounds")))]
pub struct Args {
    /// Read this file. An existing file is not changed; a missing one is made and kept. Without
    /// this option a file is made in the current directory and removed at the end
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// The size of a file that is made, and the most that is read of an existing one
    #[arg(long, default_value = "64M")]
    size: Size,

    /// The delays between the answer and the read
    #[arg(long, value_name = "TIME,…", value_delimiter = ',',
          default_values = ["0", "10us", "100us", "1ms", "10ms"])]
    delays: Vec<Delay>,

    /// The pressures on the pages of the file
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["none", "light", "heavy", "evict"])]
    pressures: Vec<Pressure>,

    /// The most memory that the pressure thread takes if no memory cgroup can be made [default: 7/8
    /// of the available memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,

    #[command(flatten)]
    timed: Timed,
}

/// The text after the help.
pub const AFTER: &str = "\
A race is a touch or read that finds less than the answer promised. Races are `early` if the kernel was
still reading the page when it was reported as cached: cachestat(2) counts such pages. In all other races
the page was gone. Shares are of the answers that were yes, with 95 % ranges (Wilson, rounds as clusters;
the range ends at 3/n if there was no race). Ctrl-C prints what was measured and removes the cgroup.

JSON (--json): the shape of all areas (nowait-bench --help), without cells. \"findings\" has \"answer\",
\"pressures\": [{\"pressure\", \"limit\"}], \"cells\": [{\"pressure\", \"pattern\", \"block\", \"touch\",
\"delay_us\", \"asked\", \"yes\", \"races\", \"at_touch\", \"early\", \"share\", \"low95\", \"high95\",
\"gone\": {\"share\", \"low95\", \"high95\"}, \"waited_us\", \"cost_ns\": {\"ask_yes\", \"ask_no\",
\"read_all\", \"read_short\"}, \"rounds\": [{\"asked\", \"yes\", \"races\", \"early\"}]}], \"by_delay\": [the
same, all kinds together], \"ways\": [{\"pressure\", \"pattern\", \"block\", \"way\", \"hits\", \"misses\",
\"races\", \"hit_ns\", \"hit_p99_ns\", \"miss_ns\"}], \"strict\": [{\"pressure\", \"reads\", \"hits\",
\"misses\", \"races\", \"share\", \"low95\", \"high95\"}]. What was not measured is null or missing.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// The least size of a file if the pressure is a shortage of memory: the process has other memory,
/// which cannot be reclaimed.
const LEAST: u64 = 16 << 20;
/// The least size of a file, in readahead windows of the device: pages that are being read cannot
/// be reclaimed either.
const AHEAD: u64 = 8;

/// Measures the races and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let turns = args.turns()?;
    args.timed.output.prepare()?;
    let files = Files::prepare(
        Wanted {
            path: args.file.as_deref(),
            size: args.size,
            shares: &[1],
            block: nowait::residency::page_size(),
        },
        &stop,
    )?;
    let size = files.sizes[0].min(args.size.0);
    let machine = Machine::look(&files.paths[0])?;
    args.check_size(size, &machine)?;
    let mut bench = Bench {
        args,
        size,
        turns,
        pressed: once_each(&args.pressures)
            .into_iter()
            .map(Pressed::new)
            .collect(),
        notes: Vec::new(),
    };
    match bench.play(&files, &stop) {
        Ok(()) | Err(Problem::Interrupted) => {}
        Err(problem) => return Err(problem),
    }
    let findings = report::findings(&bench.turns, &bench.pressed).ok_or(Problem::Interrupted)?;
    let mut run = Run::new("race", machine, bench.settings(&files));
    run.interrupted = stop.asked();
    run.findings = findings;
    report::complete(&mut run);
    bench.notes.into_iter().for_each(|note| run.note(note));
    args.timed.output.finish(run)
}

impl Args {
    /// The turns under each pressure, in each round.
    fn turns(&self) -> Result<Vec<Turn>, Problem> {
        let longest = self.delays.iter().copied().map(Delay::time).max();
        if longest.is_some_and(|delay| delay.as_secs_f64() > self.timed.seconds / 2.0) {
            return Err(Problem::Usage(format!(
                "--seconds {} is too short for the longest of --delays: at least twice that",
                self.timed.seconds
            )));
        }
        let places = [Pattern::Linear, Pattern::Seeky]
            .into_iter()
            .flat_map(|pattern| [1, 4096].map(|block| Place { pattern, block }));
        let mut turns = Vec::new();
        for place in places {
            for touch in [false, true] {
                for delay_us in once_each(&self.delays) {
                    turns.push(Turn::Race(Cell {
                        place,
                        touch,
                        delay_us,
                    }));
                }
            }
            turns.extend([Way::Ask, Way::Try, Way::Both].map(|way| Turn::Cost(place, way)));
        }
        turns.push(Turn::Strict);
        Ok(turns)
    }

    fn check_size(&self, size: u64, machine: &Machine) -> Result<(), Problem> {
        let least = LEAST.max(AHEAD * (machine.read_ahead_kb.unwrap_or(0) << 10));
        let squeezed = self.pressures.iter().any(|p| p.squeeze(size).is_some());
        match available_memory() {
            _ if squeezed && size < least => Err(Problem::Usage(format!(
                "{} of file: memory can't be made short by a part of so little (16M, and {AHEAD} \
                 times as much as the device reads ahead, is the least); --size {} or more, or \
                 --pressures none,evict",
                Size(size),
                Size(least)
            ))),
            Some(memory) if size > memory / 4 => Err(Problem::Usage(format!(
                "{} of file, {} of memory free: choose a smaller --size",
                Size(size),
                Size(memory)
            ))),
            _ => Ok(()),
        }
    }
}

/// A running measurement.
struct Bench<'a> {
    args: &'a Args,
    /// The bytes of the file that are used.
    size: u64,
    turns: Vec<Turn>,
    pressed: Vec<Pressed>,
    notes: Vec<String>,
}

impl Bench<'_> {
    /// All rounds; each begins with the next pressure and the next turns.
    fn play(&mut self, files: &Files, stop: &Stop) -> Result<(), Problem> {
        self.notes.extend(Cache::Cold.begin(files)?);
        let rounds = self.args.timed.rounds.count() as usize;
        let pressures = self.pressed.len();
        let mut progress = Progress::of_turns((rounds * pressures * self.turns.len()) as u64);
        for round in 0..rounds {
            for i in (0..pressures).map(|i| (i + round) % pressures) {
                self.evict(files)?;
                let pressed = self.press(i, round, &files.paths[0], stop, &mut progress);
                // The pages of a truncated file do not add up, and the limit of the cgroup fails.
                files.check()?;
                pressed?;
            }
        }
        Ok(())
    }

    /// Evicts the file. Pages that stay cached are not charged to the cgroup whose memory is short.
    fn evict(&mut self, files: &Files) -> Result<(), Problem> {
        let open = files.open()?;
        evict(&open)?;
        let stayed = resident(&open).is_some_and(|there| there > self.size / 2);
        self.note(stayed.then(|| {
            "not cold: most of the file stayed in the page cache after POSIX_FADV_DONTNEED \
             (another program maps or holds it, or its filesystem ignores the advice); memory can't \
             be made short by its pages"
                .into()
        }));
        Ok(())
    }

    /// One round of one pressure, in a process of its own.
    fn press(
        &mut self,
        which: usize,
        round: usize,
        file: &Path,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<(), Problem> {
        let pressure = self.pressed[which].pressure;
        let squeeze = pressure.squeeze(self.size);
        // The child is dropped before the cgroup.
        let cgroup;
        let mut child = Child::start(file)?;
        cgroup = match squeeze.map(|_| Cgroup::around(child.pid())) {
            None => None,
            Some(Ok(cgroup)) => Some(cgroup),
            Some(Err(why)) => {
                self.note(Some(format!(
                    "no memory cgroup can be had ({why}): a thread took memory until the kernel \
                     reclaimed some"
                )));
                None
            }
        };
        let most = self.args.memory.map_or_else(pressure::most, |size| size.0);
        let mut turns: Vec<(usize, Turn)> = self.turns.iter().copied().enumerate().collect();
        turns.rotate_left(round * self.turns.len() / self.args.timed.rounds.count() as usize);
        let orders = Orders {
            pressure,
            size: self.size,
            seconds: self.args.timed.seconds,
            seed: self.args.timed.rounds.seed_of(round),
            most: cgroup.is_none().then_some(most),
            turns,
        };
        child.tell(&serde_json::to_string(&orders).map_err(|e| Problem::of("JSON", e))?)?;
        loop {
            let reply = match child.next(stop)? {
                Message::Said(reply) => reply,
                Message::Ended => return Ok(()),
                Message::Killed => {
                    self.note(Some(format!(
                        "{}: the process under pressure was killed, as the kernel does for want \
                         of memory; what it had not done is missing; a larger --size gives it more",
                        pressure.word()
                    )));
                    return Ok(());
                }
            };
            match reply {
                Reply::Warm => {
                    if let (Some(cgroup), Some(squeeze)) = (&cgroup, squeeze) {
                        let limit = cgroup.usage()?.saturating_sub(squeeze.lacks);
                        cgroup.limit(limit)?;
                        self.pressed[which].limit = Some(limit);
                    }
                    child.tell("")?;
                }
                Reply::Now(number) => {
                    let (word, turn) = (pressure.word(), &self.turns[number]);
                    let done = self.pressed.iter().map(|p| p.outcomes.len() as u64).sum();
                    progress.at(done, format!("round {}, {word}: {turn}", round + 1));
                }
                Reply::Done(number, outcome) => {
                    self.pressed[which].outcomes.push((number, round, outcome));
                }
                Reply::Note(note) => self.note(Some(note)),
                Reply::Failed(why) => return Err(Problem::Failed(why)),
            }
        }
    }

    /// Adds a note, once.
    fn note(&mut self, note: Option<String>) {
        if let Some(note) = note
            && !self.notes.contains(&note)
        {
            self.notes.push(note);
        }
    }

    fn settings(&self, files: &Files) -> Value {
        json!({
            "about": format!(
                "{} of file, {} rounds of {} s for each kind of question",
                Size(self.size), self.args.timed.rounds.count(), self.args.timed.seconds
            ),
            "files": files,
            "size": self.size,
            "delays_us": once_each(&self.args.delays),
            "pressures": once_each(&self.args.pressures),
            "block": [1, 4096],
            "pattern": {
                "linear": "page after page; POSIX_FADV_NORMAL",
                "seeky": "random pages; POSIX_FADV_RANDOM",
            },
            "touch": "a NOWAIT read of the page's byte that is asked for, after the answer",
            "seconds": self.args.timed.seconds,
            "rounds": self.args.timed.rounds.count(),
            "memory": self.args.memory.map(|size| size.0),
            "seed": self.args.timed.rounds.seed,
            "cache": "evicted, then read through by the process under pressure; a thread of it \
                      reads what is missing",
            "legend": "Races: a page was reported as cached, and the NOWAIT read (or the touch) missed; early: \
                       races in which the kernel was still reading the page; in the others the page \
                       was gone. Ranges: 95 %. ns and us: medians.",
            "ranges": "Wilson, 95 %, rounds as clusters; 3/n after none",
        })
    }
}
