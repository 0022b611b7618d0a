//! `nowait-bench race`: how often a page that fincore reported as cached is gone when it is read.
//! The fincore() thread of 2015 asked for this measurement ("determine under what conditions (if
//! any) the page-stealing race occurs").
//!
//! ```text
//!  Args ─► turns ─► for each round and pressure:
//!                     evict the file ─► a process (`inside`): make a cgroup ─► read the file
//!                       ─► limit the cgroup: its usage less what the pressure lacks ─► all turns
//!                     ─► remove the cgroup
//!               ─► report
//! ```
//! In that process `trial` asks and reads, `ways` measures costs, and `pressure` takes memory at the
//! same time. A separate process can be put into a cgroup, may be killed for lack of memory, and
//! frees all its memory when it ends.

mod cell;
mod cgroup;
mod ground;
pub mod inside;
mod pressure;
mod report;
mod share;
mod trial;
mod ways;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nowait::residency::page_size;
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::{Value, json};

use crate::harness::bench::{Bench, Group};
use crate::harness::cache::{Cache, evict, resident};
use crate::harness::child;
use crate::harness::contender::{Word, once_each};
use crate::harness::delay::Delay;
use crate::harness::files::Files;
use crate::harness::machine::Machine;
use crate::harness::settings::Timed;
use cell::{Cell, Pattern, Place, Turn, Way};
use inside::{Line, Orders};
use pressure::Pressure;
use report::{Pressed, Round};

/// How often a page that was reported as cached is gone when it is read
///
/// Asks if pages of a file are cached, as fincore does, while memory is short. Waits for a delay
/// and reads the pages that are cached with RWF_NOWAIT. The reads are linear and random, of 1 byte
/// and of 4 KiB, with and without a touch: a read of one byte of the page before the delay, which
/// marks the page as used.
///
/// A memory cgroup makes memory short for one process of this program. It is removed at the end. If
/// no cgroup can be made, the pressures light and heavy are left out.
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

    #[command(flatten)]
    timed: Timed,
}

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
\"misses\", \"races\", \"share\", \"low95\", \"high95\"}]. What was not measured is null or missing.";

/// The least size of a file if the pressure is a shortage of memory: the process has other memory,
/// which cannot be reclaimed.
const LEAST: u64 = 16 << 20;
/// The least size of a file, in readahead windows of the device: pages that are being read cannot
/// be reclaimed either.
const AHEAD: u64 = 8;

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let turns = args.turns()?;
    let bench = Bench::timed("race", &args.timed, stop);
    let file = (args.file.as_deref(), args.size);
    let files = Files::prepare(file, &[1], page_size(), &bench.stop)?;
    let size = files.sizes[0].min(args.size.0);
    let machine = Machine::look(&files.paths[0])?;
    args.check_size(size, &machine)?;
    bench.note_some(Cache::Cold.begin(&files)?);
    let pressures = once_each(&args.pressures);
    let group = Group::new("", json!({}), size, pressures.clone());
    let cells = bench.play(&[group], |group, pressure, number| {
        let round = press(
            args,
            &bench,
            &files,
            &turns,
            (group.work, *pressure, number),
        );
        // The pages of a truncated file do not add up, and the limit of the cgroup fails.
        files.check()?;
        round.map(|round| Some(round).filter(|round| !round.outcomes.is_empty()))
    })?;
    let measured = cells.iter().flat_map(|cell| &cell.contenders);
    let pressed: Vec<Pressed> = measured.filter_map(Pressed::of).collect();
    let mut run = bench.run(machine, args.settings(size, &files));
    run.findings = report::findings(&turns, &pressed).ok_or(Problem::Interrupted)?;
    report::complete(&mut run);
    bench.finish(run)
}

/// One round of one pressure, in a process of its own.
fn press(
    args: &Args,
    bench: &Bench<'_>,
    files: &Files,
    turns: &[Turn],
    (size, pressure, number): (u64, Pressure, usize),
) -> Result<Round, Problem> {
    let open = files.open()?;
    evict(&open)?;
    if resident(&open).is_some_and(|there| there > size / 2) {
        // Pages that stay cached are not charged to the cgroup whose memory is short.
        bench.note(
            "not cold: most of the file stayed in the page cache after POSIX_FADV_DONTNEED \
             (another program maps or holds it, or its filesystem ignores the advice); memory can't \
             be made short by its pages",
        );
    }
    drop(open);
    let mut turns: Vec<(usize, Turn)> = turns.iter().copied().enumerate().collect();
    let first = number * turns.len() / args.timed.rounds.count() as usize;
    turns.rotate_left(first);
    let orders = Orders {
        file: files.paths[0].clone(),
        pressure,
        size,
        seconds: args.timed.seconds,
        seed: args.timed.rounds.seed_of(number),
        turns,
    };
    let orders = serde_json::to_vec(&orders).map_err(|e| Problem::of("JSON", e))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("race-inside");
    let ended = child::talk(command, &orders, None, &bench.stop);
    cgroup::sweep();
    let ended = ended?;
    if ended.killed && !bench.stop.asked() {
        bench.note(format!(
            "{}: the process under pressure was killed, as the kernel does for want of memory; what it \
             had not done is missing; a larger --size gives it more",
            pressure.word()
        ));
    }
    let mut round = Round::default();
    // The last line of a process that was killed may be a part of one.
    for line in ended
        .said
        .lines()
        .map_while(|line| serde_json::from_str(line).ok())
    {
        match line {
            Line::Limit(bytes) => round.limit = Some(bytes),
            Line::Done(number, outcome) => round.outcomes.push((number, outcome)),
            Line::Note(note) => bench.note(note),
        }
    }
    Ok(round)
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

    fn settings(&self, size: u64, files: &Files) -> Value {
        json!({
            "about": format!("{} of file", Size(size)),
            "files": files,
            "size": size,
            "delays_us": once_each(&self.delays),
            "cache": "evicted, then read through by the process under pressure; a thread of it \
                      reads what is missing",
            "legend": "linear: page after page, with readahead; seeky: random pages, without; touched: a NOWAIT read \
                       of a byte of the page after the answer. Races: a page was reported as cached, and the NOWAIT read (or the touch) missed; early: \
                       races in which the kernel was still reading the page; in the others the page \
                       was gone. Ranges: 95 %. ns and us: medians.",
        })
    }
}
