//! `nowait-bench dir`: lists a directory and asks for the attributes of every entry, with the
//! library's scan and readahead (the proposed calls xgetdents and dirreadahead), with
//! getdents+stat, and with ls, find, bfs and du. Prints the table of the readdirplus thread of
//! 2014, and draws its pictures.
//! Each turn is a separate process (`harness/child.rs`), also those of the library (`inside`), so
//! that the time of every contender includes its start. Before it the directory is made cold, and
//! the program runs on an empty directory.

mod c_scan;
mod contender;
mod ground;
pub mod inside;
mod report;
mod said;
mod window;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use slowdisk::Entry;

use crate::harness::bench::{Bench, Group};
use crate::harness::child;
use crate::harness::contender::{Contenders, once_each};
use crate::harness::count::Count;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::processes::{Turn, check_root, reads};
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use contender::{Contender, Name};
use ground::Ground;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use report::Seeks;
use said::Said;
use window::Window;

/// Listing a directory with the attributes of every entry: scan, readahead, ls, find, bfs, du, dust, pdu
///
/// Makes directories of empty files in the current directory and removes them at the end. With
/// --slow-disk they are on a disk with a delay, which is a file in memory.
///
/// The directory is cold at the start of each turn: the filesystem of a slow disk is mounted again;
/// otherwise the kernel drops all clean caches, which needs root and slows down every program on
/// the machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Make a directory for each of these numbers of files. Making 500k files takes minutes
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          default_values = ["10k", "50k", "100k"])]
    files: Vec<Count>,

    #[command(flatten)]
    slow: Option<Slow>,

    /// Measure cached directories: each turn is run twice, and the second run is measured
    #[arg(long)]
    warm: bool,

    /// The windows of xgetdents: `default`, or vNdM for N pages of buffer and M entries, as in 2014
    #[arg(long, value_name = "WINDOW,…", value_delimiter = ',',
          default_values = ["default", "v256d1000", "v16384d10000"])]
    windows: Vec<Window>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

pub const AFTER: &str = "\
Contenders take turns within each round. A turn is a process from its start to its end, also for the
library's contenders. Its output goes to /dev/null. Ratios say how many times as fast a contender is as the
fastest other program. CPU is processor time of the process, without kernel threads.
Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
a directory that was made here stays.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"files\" and \"best\", the
fastest program. A round has seconds, files_per_s and cpu_s; on a slow disk also reads; the library's contenders
have entries, failed, peak_kib and workers.

There is a chart of the time against the number of files (with two or more --files), and on a slow disk one
of the offsets of the requests against time, for the largest directory in the first round.";

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    if !args.warm && args.slow.is_none() {
        check_root("with --warm")?;
    }
    let bench = Bench::new("dir", &args.output, args.rounds.count, stop);
    let ground = Ground::prepare(&args.counts(), args.slow.as_ref(), &bench.stop)?;
    let machine = Machine::look(&ground.directories[0].0)?;
    let names = bench.choose(&args.contenders.names, Name::fits)?;
    let contenders: Vec<Contender> = names
        .iter()
        .flat_map(|name| name.contenders(&args.windows))
        .collect();
    list_once(&ground, &contenders[0], &bench.stop)?;
    let groups = groups(&ground, &contenders);
    let mut seeks: Vec<Seeks> = Vec::new();
    let most = ground.directories.last().map(|(path, _)| path);
    let cells = bench.play(&groups, |group, contender, _| {
        let files = group.cell.parameters["files"].as_u64().unwrap_or_default();
        let turn = turn(args, &ground, group.work, files, contender, &bench.stop)?;
        let Some((turn, log)) = turn else {
            return Ok(None);
        };
        let is_known = seeks.iter().any(|seeks| seeks.name == contender.name);
        if Some(group.work) == most && contender.is_drawn() && !is_known {
            seeks.extend(log.map(|log| Seeks::new(&contender.name, &log)));
        }
        Ok(Some(turn))
    })?;
    let disk = args.slow.as_ref().map(Slow::to_string);
    let settings = json!({
        "about": disk,
        "slow_disk": args.slow,
        "cache": match args.warm {
            true => "warm: each turn is run twice, and the second run is measured",
            false => ground.root.how(),
        },
        "legend": "Medians over rounds; ms: from the start of the process to its end; CPU: processor time \
                   of the process; reads: requests of the slow disk; MiB: the most memory of the process; \
                   ratios: times as fast as the fastest program.",
    });
    let run = bench.run(machine, settings);
    bench.finish(report::complete(
        run,
        cells,
        &contenders,
        &seeks,
        disk.as_deref(),
    ))
}

/// Lists each directory, without measuring it: the first listing makes the kernel allocate memory for
/// the inodes, which is slow in a virtual machine.
fn list_once(ground: &Ground, contender: &Contender, stop: &Stop) -> Result<(), Problem> {
    for (path, _) in &ground.directories {
        child::run(contender.command(path)?, false, stop)?;
    }
    Ok(())
}

/// A group of all contenders for each directory.
fn groups<'a>(ground: &'a Ground, contenders: &[Contender]) -> Vec<Group<&'a PathBuf, Contender>> {
    let group = |(path, files): &'a (PathBuf, u64)| {
        let parameters = json!({"files": files});
        let group = Group::new(files.to_string(), parameters, path, contenders.to_vec());
        group.titled(format!("{files} files"))
    };
    ground.directories.iter().map(group).collect()
}

impl Args {
    /// The numbers of files, in rising order.
    fn counts(&self) -> Vec<u64> {
        let mut counts: Vec<u64> = once_each(&self.files).iter().map(|count| count.0).collect();
        counts.sort_unstable();
        counts
    }
}

/// Runs one turn; `None` after Ctrl-C. Returns also the requests of a slow disk.
#[expect(clippy::type_complexity)]
fn turn(
    args: &Args,
    ground: &Ground,
    path: &Path,
    files: u64,
    contender: &Contender,
    stop: &Stop,
) -> Result<Option<(Turn<Option<Said>>, Option<Vec<Entry>>)>, Problem> {
    let play = |path, keep| child::run(contender.command(path)?, keep, stop);
    let before = if args.warm {
        play(path, false)?
    } else {
        ground.make_cold()?;
        play(ground.empty(), false)?
    };
    ground.root.take_log();
    let ended = match before {
        Some(_) => play(path, !contender.is_program())?,
        None => None,
    };
    let Some(ended) = ended else {
        return Ok(None);
    };
    let log = ground.root.take_log();
    let said = report::said(contender, files, &ended)?;
    let reads = log.as_deref().map(reads);
    Ok(Some((Turn::new(files, &ended, reads, said), log)))
}
