//! `nowait demo` reads random blocks of a file in three ways: with pread(2), through a pool of
//! threads, and with nowait. It shows the rates, the latencies and the time for which a read blocks
//! the calling thread.
//!
//! The order of work: [`file`] makes or opens the file, [`contender`] has the three ways to read,
//! [`turn`] is one measurement of one of them, [`live`] shows the results so far, and [`report`]
//! makes the output.

mod contender;
mod file;
mod live;
mod report;
mod turn;
mod way;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use contender::Contender;
use file::DemoFile;
use live::Live;
use report::{Backend, Report, Rows};
use turn::{Figures, Turn};
use way::Way;

use crate::name::shown;
use crate::output::Output;
use crate::problem::{INTERRUPTED, Problem};
use crate::size::Size;
use crate::stop::Stop;
use crate::terminal::Terminal;

/// Reads a file with pread(2), through threads and with nowait, and compares them.
///
/// Reads blocks of 4 KiB at random places of one file. Cached blocks are read one at a time. Blocks
/// that are not cached are read with 32 reads in flight by nowait and by a pool of threads, and
/// one at a time by pread(2). The contenders take turns of 0.15 s.
#[derive(clap::Args)]
#[command(
    after_long_help = r#"In a directory, the file is a temporary one without a name. The kernel removes it when the program ends. A
file that is named is read and not changed. Its pages are evicted from the page cache (POSIX_FADV_DONTNEED) before
each turn that reads from the disk.

Columns:
  reads/s       the median of the rounds
  median, p99   the time from the request to the result
  blocked       the time for which a read keeps the calling thread from other
                work: p99 of its longest part
  nowait makes  the rate of nowait divided by that of the row: the median of
                the rounds, and its 95 % confidence interval. If the interval
                contains 1, there is no difference

JSON (--json): one object.
  {
    "demo": 1,             version of this format
    "version",             of nowait
    "path",                as it was given
    "temporary",           true: a file without a name, in the directory "path"
    "filesystem",          null: unknown
    "bytes",               of the file that are read
    "block",               the bytes of a read
    "backend": {"name", "why"},
                           uring or threads
    "cached": ROWS, "cold": ROWS,
                           null: not measured
    "why_not_cold",        the reason; null: there is none
    "interrupted"
  }
  ROWS is {"rounds", "pread": ROW, "threads": ROW, "nowait": ROW}. "rounds" were
  completed. A ROW is
  {
    "in_flight",           reads at a time
    "reads_per_s": SPREAD,
    "latency_p50_ns", "latency_p99_ns", "blocked_p99_ns"
                           medians of the rounds
    "nowait_makes": {"median", "low95", "high95"}
                           reads per second of nowait divided by those of the
                           row: the median of the rounds, and its 95 %
                           confidence interval (with less than 6 rounds: the
                           lowest and the highest); not in "nowait"
  }
  SPREAD is {"median", "min", "max"} of the rounds.
Later programs may add keys without changing the version.

Examples:
  nowait demo                   a temporary file in the current directory
  nowait demo /srv/db/data      a file that exists
  nowait demo --json | jq .cold.threads.nowait_makes

Environment:
  NOWAIT_BACKEND  uring or threads: use only this backend (read by every
                  program that uses nowait)
  NO_COLOR        if not empty: no colours

Exit status:
  0    success, also if no read can be cold
  1    failure
  2    wrong usage
  130  interrupted; the rounds so far are printed"#
)]
pub struct Args {
    /// A directory for a temporary file, or a file
    #[arg(default_value = ".")]
    path: PathBuf,
    /// The bytes of the file that are read, at least 1M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = file::size)]
    size: Size,
    /// The number of rounds
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(demo(args).unwrap_or_else(|problem| problem.report()))
}

fn demo(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let file = DemoFile::find(&args.path, args.size, &stop)?;
    let mut report = Report::new(shown(&args.path), &file, Backend::tried()?);
    report.cached = measure(&file, Way::Cached, args.rounds, &stop)?;
    if !stop.asked() {
        report.why_not_cold = file.why_not_cold();
        if report.why_not_cold.is_none() {
            report.cold = measure(&file, Way::Cold, args.rounds, &stop)?;
        }
    }
    report.interrupted = stop.asked();
    if report.interrupted && report.cached.is_none() {
        return Err(Problem::Interrupted);
    }
    let terminal = Terminal::look();
    let mut out = Output::new(terminal);
    match args.json {
        true => writeln!(out, "{}", report.json()?)?,
        false => out.write_all(report.text(terminal).as_bytes())?,
    }
    out.flush()?;
    Ok(ExitCode::from(if report.interrupted {
        INTERRUPTED
    } else {
        0
    }))
}

/// Measures all contenders in turn. Each round begins with another one. `None` if no round was
/// completed.
fn measure(file: &DemoFile, way: Way, rounds: u32, stop: &Stop) -> Result<Option<Rows>, Problem> {
    let live = Live::new(way, rounds);
    let mut complete = Vec::new();
    for round in 0..rounds as usize {
        let mut turns = [Figures::default(); Contender::ALL.len()];
        for number in 0..turns.len() {
            let index = (round + number) % turns.len();
            file.prepare(way, stop)?;
            let turn = Turn::new(file, way, round as u64, stop);
            turns[index] = Contender::ALL[index].run(turn)?;
            if stop.asked() {
                return Ok(Rows::of(&complete, way));
            }
            live.show(index, turns[index].reads_per_s);
        }
        complete.push(turns);
    }
    Ok(Rows::of(&complete, way))
}
