//! `nowait-bench race`: how often residency says yes and the NOWAIT read that follows comes short.
//! The question of the fincore() thread of 2015 ("determine under what conditions (if any) the
//! page-stealing race occurs").
//!
//! ```text
//!  Args ─► turns ─► for each round and pressure:
//!                     file made cold ─► child ─► cgroup around it ─► it brings the file in
//!                       ─► limit: what it has less what the pressure wants ─► turn after turn
//!                       ─► child gone ─► cgroup gone
//!               ─► report
//! ```
//! `child` is the process under pressure as its parent sees it, `inside` what it does: `trial` asks
//! and reads, `ways` measures costs, `pressure` takes memory meanwhile.

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
use crate::harness::contender::once_each;
use crate::harness::delay::Delay;
use crate::harness::files::{Files, Wanted};
use crate::harness::machine::Machine;
use crate::harness::offsets::mix;
use crate::harness::output::Output;
use crate::harness::run::Run;
use crate::harness::settings::positive;
use cell::{Cell, Pattern, Place, Turn, Way};
use cgroup::Cgroup;
use child::{Child, Orders, Reply, Word};
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use pressure::Pressure;
use report::{Pressed, Report};

/// Ask, then read: how often is the page gone in between?
///
/// Asks fincore's question (is it cached?) about pages of a file while memory is short, waits, and
/// reads with RWF_NOWAIT what was said to be there. Linear and seeky, 1 byte and 4 KiB, with and
/// without a touch of the page in between (one byte of it is read: what user space has for "mark it
/// as used").
///
/// Memory is made short for one process of this program alone, by a memory cgroup that is removed
/// again. Where none can be had, a thread takes memory until the kernel reclaims some, and every
/// program on the machine feels that.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Ask about this file. If it is there it is only read; if not, it is made and kept. Without
    /// this option a file is made in the current directory and removed at the end
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// How large a file to make; of a larger one only so much is asked about
    #[arg(long, default_value = "64M")]
    size: Size,

    /// How long after the answer the read comes
    #[arg(long, value_name = "TIME,…", value_delimiter = ',',
          default_values = ["0", "10us", "100us", "1ms", "10ms"])]
    delays: Vec<Delay>,

    /// The pressure on the file's pages meanwhile
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["none", "light", "heavy", "evict"])]
    pressures: Vec<Pressure>,

    /// Where no memory cgroup can be had: the most memory that the pressure thread may take; if not
    /// said, all that is available but an eighth
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,

    /// How long each kind of question is asked in each round
    #[arg(long, value_name = "S", default_value = "0.1", value_parser = positive)]
    seconds: f64,

    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// The seed of the random places
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    output: Output,
}

/// The help of what it prints.
pub const AFTER: &str = "\
A race is a yes after which the touch or the read came short. `early` are those whose page was on
its way in when the answer was yes, and not there yet: cachestat(2) counts such pages; the rest had
gone. Shares are of the yeses, with 95 % ranges (Wilson, rounds as clusters; after no race at all
the range ends at 3/n). Ctrl-C prints what was measured and removes the cgroup.

JSON (--json): as of every area (nowait-bench --help), without cells. \"findings\" has \"answer\",
\"pressures\": [{\"pressure\", \"limit\"}], \"cells\": [{\"pressure\", \"pattern\", \"block\", \"touch\",
\"delay_us\", \"asked\", \"yes\", \"races\", \"at_touch\", \"early\", \"share\", \"low95\", \"high95\",
\"gone\": {\"share\", \"low95\", \"high95\"}, \"waited_us\", \"cost_ns\": {\"ask_yes\", \"ask_no\",
\"read_all\", \"read_short\"}, \"rounds\": [{\"asked\", \"yes\", \"races\", \"early\"}]}], \"by_delay\": [the
same, all kinds together], \"ways\": [{\"pressure\", \"pattern\", \"block\", \"way\", \"hits\", \"misses\",
\"races\", \"hit_ns\", \"hit_p99_ns\", \"miss_ns\"}], \"strict\": [{\"pressure\", \"reads\", \"hits\",
\"misses\", \"races\", \"share\", \"low95\", \"high95\"}]. What was not measured is null or missing.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// The least that a file has to have if memory is to be short by a part of it: a process has some
/// other memory too, that can't be reclaimed.
const LEAST: u64 = 16 << 20;
/// Nor can be what is being read at the moment: so many times as much as the device reads ahead.
const AHEAD: u64 = 8;

/// The bench, from its file to its report.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let turns = args.turns()?;
    args.output.prepare()?;
    let stop = Stop::on_signals()?;
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
    let report = Report::new(&bench.turns, &bench.pressed).ok_or(Problem::Interrupted)?;
    let mut run = Run::new("race", machine, bench.settings(&files));
    run.interrupted = stop.asked();
    report.add_to(&mut run);
    bench.notes.into_iter().for_each(|note| run.note(note));
    args.output.finish(run)
}

impl Args {
    /// The turns under each pressure, in each round.
    fn turns(&self) -> Result<Vec<Turn>, Problem> {
        let longest = self.delays.iter().copied().map(Delay::time).max();
        if longest.is_some_and(|delay| delay.as_secs_f64() > self.seconds / 2.0) {
            return Err(Problem::Usage(format!(
                "--seconds {} is too short for the longest of --delays: at least twice that",
                self.seconds
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

/// A bench under way.
struct Bench<'a> {
    args: &'a Args,
    /// Bytes that are asked about.
    size: u64,
    turns: Vec<Turn>,
    pressed: Vec<Pressed>,
    notes: Vec<String>,
}

impl Bench<'_> {
    /// All rounds; each begins with the next pressure and the next turns.
    fn play(&mut self, files: &Files, stop: &Stop) -> Result<(), Problem> {
        self.notes
            .extend(Cache::Cold { drop_all: false }.begin(files)?);
        let rounds = self.args.rounds as usize;
        let pressures = self.pressed.len();
        let mut progress = Progress::of_turns((rounds * pressures * self.turns.len()) as u64);
        for round in 0..rounds {
            for i in (0..pressures).map(|i| (i + round) % pressures) {
                self.evict(files)?;
                self.press(i, round, &files.paths[0], stop, &mut progress)?;
            }
        }
        Ok(())
    }

    /// Pages that are cached already would count elsewhere than where memory is made short.
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
        // Of these two the child goes first.
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
        turns.rotate_left(round * self.turns.len() / self.args.rounds as usize);
        let orders = Orders {
            pressure,
            size: self.size,
            seconds: self.args.seconds,
            seed: mix(self.args.seed.wrapping_add(round as u64)),
            most: cgroup.is_none().then_some(most),
            turns,
        };
        child.tell(&serde_json::to_string(&orders).map_err(|e| Problem::of("JSON", e))?)?;
        loop {
            let reply = match child.next(stop)? {
                Word::Said(reply) => reply,
                Word::Ended => return Ok(()),
                Word::Killed => {
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

    /// Once is enough.
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
                Size(self.size), self.args.rounds, self.args.seconds
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
            "seconds": self.args.seconds,
            "rounds": self.args.rounds,
            "memory": self.args.memory.map(|size| size.0),
            "seed": self.args.seed,
            "cache": "evicted, then read through by the process under pressure; a thread of it \
                      reads what is missing",
            "legend": "Races: residency said yes and the NOWAIT read (or the touch) came short; early: of these, \
                       pages on their way in, whose content was not there yet; the others had gone. \
                       Ranges: 95 %. ns and us: medians.",
            "ranges": "Wilson, 95 %, rounds as clusters; 3/n after none",
        })
    }
}
