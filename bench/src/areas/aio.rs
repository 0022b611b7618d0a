//! `nowait-bench aio`: fio's posixaio engine on glibc's AIO, and the same fio with
//! `libnowait_aio.so` preloaded. The jobs are files of fio, in `aio/`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::contenders::fio;
use crate::harness::bench::{Bench, Group};
use crate::harness::cache::{evict, read_through};
use crate::harness::cell::Cell;
use crate::harness::child;
use crate::harness::column::Column;
use crate::harness::contender::{Contenders, Fit, Named, Word, once_each};
use crate::harness::files::Files;
use crate::harness::latencies;
use crate::harness::machine::Machine;
use crate::harness::processes::LIBRARIES;
use crate::harness::run::Run;
use crate::harness::settings::Timed;
use crate::harness::table::Table;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// POSIX AIO under fio: glibc's, and nowait's drop-in library
///
/// Each row is a job file of fio. In each round fio runs it with every contender in turn, on the
/// same files and with the page cache in the same state.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The drop-in library [default: libnowait_aio.so in NOWAIT_LIBRARY_DIR, or else in the directory of
    /// this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// Read PATH-0 (small) and PATH-1 (large). A missing file is made and kept. Without this option
    /// files are made in the current directory and removed at the end
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// The size of both files together; the small one has an eighth of it
    #[arg(long, default_value = "2G")]
    size: Size,

    /// The rows to measure
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["random-cold-1", "random-cold-32", "random-warm-1", "random-warm-32",
                            "mixed", "mixed-paced", "sequential", "seed-cold", "seed-warm"])]
    rows: Vec<Row>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    timed: Timed,
}

pub const AFTER: &str = "\
Ratios are taken within rounds; below 1 is better for latencies. seed-cold and seed-warm are the
experiment that RWF_NONBLOCK was proposed with.
Ctrl-C prints what was measured.

JSON (--json): the shape of all areas (nowait-bench --help). A cell is one job of a row: it has the parameters
\"row\", \"job\" (random, sequential, hot, cold, f1, f2, f3), \"cache\" and \"depth\". A round has
ops_per_s, lat_us {p50, p99}, fio's bw {min, max, per, avg, stdev} in KB/s, and its latency buckets.";

/// The rows: a job file and a state of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Row {
    /// 4K random reads of a file that is not cached, one at a time
    #[value(name = "random-cold-1")]
    RandomCold1,
    /// 4K random reads of a file that is not cached, 32 in flight
    #[value(name = "random-cold-32")]
    RandomCold32,
    /// 4K random reads of a file that is cached, one at a time
    #[value(name = "random-warm-1")]
    RandomWarm1,
    /// 4K random reads of a file that is cached, 32 in flight
    #[value(name = "random-warm-32")]
    RandomWarm32,
    /// Reads of a cached file, one at a time, beside reads of an uncached file, 32 in flight
    Mixed,
    /// As mixed, with a pause between two reads of the cached file
    MixedPaced,
    /// Sequential reads of a file that is not cached
    Sequential,
    /// The three jobs f1, f2 and f3; no file is cached at the start
    SeedCold,
    /// The three jobs f1, f2 and f3; all files are cached at the start
    SeedWarm,
}

/// The state of the page cache before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Cold,
    Warm,
    /// The small file is cached, the large one is not.
    Half,
}

impl Row {
    /// The job file, the state of the page cache, and the number of reads in flight.
    fn what(self) -> (&'static str, State, u32) {
        const RANDOM: &str = include_str!("aio/random.fio");
        const SEED: &str = include_str!("aio/seed.fio");
        match self {
            Row::RandomCold1 => (RANDOM, State::Cold, 1),
            Row::RandomCold32 => (RANDOM, State::Cold, 32),
            Row::RandomWarm1 => (RANDOM, State::Warm, 1),
            Row::RandomWarm32 => (RANDOM, State::Warm, 32),
            Row::Mixed | Row::MixedPaced => (include_str!("aio/mixed.fio"), State::Half, 32),
            Row::Sequential => (include_str!("aio/sequential.fio"), State::Cold, 8),
            Row::SeedCold => (SEED, State::Cold, 16),
            Row::SeedWarm => (SEED, State::Warm, 16),
        }
    }

    /// Microseconds between two reads of the cached file.
    fn pause(self) -> u32 {
        if self == Row::MixedPaced { 200 } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// fio's engine posixaio with the AIO of glibc
    Glibc,
    /// fio's engine posixaio with the drop-in library preloaded
    Nowait,
    /// fio's engine io_uring
    #[value(name = "io_uring")]
    IoUring,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self == Name::Nowait
    }
}

/// The figures of one job in fio's JSON: its bandwidth in KB/s, and its latency buckets, which are
/// per cent of the reads below each limit. `None` if some are missing.
fn figures(job: &Value) -> Option<Value> {
    let read = &job["read"];
    let us = |percentile: &str| {
        read["lat_ns"]["percentile"][percentile]
            .as_f64()
            .unwrap_or(0.0)
            / 1e3
    };
    Some(json!({
        "ops_per_s": read["iops"].as_f64()?,
        "lat_us": {"p50": us("50.000000"), "p99": us("99.000000")},
        "bw": {"min": read["bw_min"], "max": read["bw_max"], "per": read["bw_agg"],
               "avg": read["bw_mean"], "stdev": read["bw_dev"]},
        "buckets": {"usec": usec(job), "msec": job["latency_ms"]},
    }))
}

/// fio's buckets of microseconds. The buckets of nanoseconds, which fio of 2015 did not have, are
/// added to the one below 2 us.
fn usec(job: &Value) -> Value {
    let mut usec = Map::new();
    let below: f64 = job["latency_ns"]
        .as_object()
        .into_iter()
        .flat_map(Map::values)
        .filter_map(Value::as_f64)
        .sum();
    for (end, share) in job["latency_us"].as_object().into_iter().flatten() {
        let share = share.as_f64().unwrap_or(0.0);
        usec.insert(
            end.clone(),
            (share + if end == "2" { below } else { 0.0 }).into(),
        );
    }
    usec.into()
}

const COMPARED: [&str; 3] = ["ops_per_s", "lat_us/p50", "lat_us/p99"];

const COLUMNS: [Column; 6] = [
    Column::Median("kIOPS", "ops_per_s", 1e-3),
    Column::Median("p50 us", "lat_us/p50", 1.0),
    Column::Median("p99 us", "lat_us/p99", 1.0),
    Column::Ratio("IOPS", "ops_per_s"),
    Column::Ratio("p50", "lat_us/p50"),
    Column::Ratio("p99", "lat_us/p99"),
];

/// The columns of fio's bandwidth, in KB/s.
const BANDWIDTH: [Column; 5] = [
    Column::Whole("bw min", "bw/min"),
    Column::Whole("max", "bw/max"),
    Column::Median("per %", "bw/per", 1.0),
    Column::Whole("avg", "bw/avg"),
    Column::Whole("stdev", "bw/stdev"),
];

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("aio", &args.timed, stop);
    if let Fit::No(why) = fio::fits("posixaio") {
        return Err(Problem::Failed(why));
    }
    let names = bench.choose(&args.contenders.names, |_| Fit::Yes)?;
    let library = match names.contains(&Name::Nowait) {
        true => Some(library(args.library.as_deref())?),
        false => None,
    };
    let file = (args.file.as_deref(), args.size);
    let files = Files::prepare(file, &[1, 7], 64 << 10, &bench.stop)?;
    let machine = Machine::look(&files.paths[1])?;
    files.sync()?;
    let group = |row: Row| {
        let (_, state, depth) = row.what();
        let cache = match state {
            State::Cold => "cold",
            State::Warm => "warm",
            State::Half => "hot and cold",
        };
        let parameters = json!({"row": row.word(), "cache": cache, "depth": depth});
        Group::new(row.word(), parameters, row, names.clone())
    };
    let groups: Vec<_> = once_each(&args.rows).into_iter().map(group).collect();
    let cells = bench.play(&groups, |group, name: &Name, number| {
        prepare(group.work.what().1, &files)?;
        if bench.stop.asked() {
            return Ok(None);
        }
        let seed = args.timed.rounds.seed_of(number) >> 1;
        let fio = command(args, group.work, *name, &files, library.as_deref(), seed);
        let ended = child::talk(fio, group.work.what().0.as_bytes(), None, &bench.stop);
        files.check()?;
        match bench.stop.asked() {
            true => Ok(None),
            false => read(&ended?.said).map(Some),
        }
    })?;
    let settings = json!({
        "files": files,
        "library": library.as_ref().map(|path| path.to_string_lossy()),
        "cold": "POSIX_FADV_DONTNEED on the files before each run",
    });
    let mut run = bench.run(machine, settings);
    cells.iter().for_each(|row| report(row, &mut run));
    bench.finish(run)
}

/// Adds a cell for each job of a row.
fn report(row: &Cell, run: &mut Run) {
    let first = row
        .contenders
        .first()
        .and_then(|contender| contender.median.as_object());
    let jobs: Vec<&String> = first.into_iter().flat_map(Map::keys).collect();
    for job in &jobs {
        let name = match jobs.len() {
            1 => row.name.clone(),
            _ => format!("{} {job}", row.name),
        };
        let mut cell = Cell::new(&name, row.parameters.clone().into());
        cell.parameters.insert("job".into(), json!(job));
        for contender in &row.contenders {
            let rounds = contender
                .rounds
                .iter()
                .map(|jobs| jobs[job.as_str()].clone());
            cell.add(&contender.name, contender.ours, &rounds.collect::<Vec<_>>());
        }
        let base = Name::Glibc.word();
        run.add(cell, &[&base], &COMPARED, &COLUMNS);
        if let Some(cell) = run.cells.last().filter(|_| row.name.starts_with("seed")) {
            let bandwidth = format!("{name}, KB/s");
            run.tables
                .push(Table::of(&bandwidth, cell, &base, "", &BANDWIDTH));
            run.tables.extend(latencies::table(&name, cell, ""));
        }
    }
}

/// The path of the drop-in library.
fn library(said: Option<&Path>) -> Result<PathBuf, Problem> {
    const NAME: &str = "libnowait_aio.so";
    let path = match (said, std::env::var_os(LIBRARIES)) {
        (Some(path), _) => path.to_path_buf(),
        (None, Some(directory)) => Path::new(&directory).join(NAME),
        (None, None) => std::env::current_exe()
            .map_err(|e| Problem::of("cannot find this program", e))?
            .with_file_name(NAME),
    };
    // The dynamic linker ignores a preloaded library that is missing, and searches for a name
    // without a slash elsewhere.
    std::fs::canonicalize(&path).map_err(|e| {
        Problem::Failed(format!(
            "{}: {e}; build it (cargo build --release -p nowait-aio), or name it with --library",
            path.display()
        ))
    })
}

/// Puts the page cache into a state.
fn prepare(state: State, files: &Files) -> Result<(), Problem> {
    let open: Vec<File> = files.open()?;
    if state != State::Warm {
        evict(&open)?;
    }
    let warm = match state {
        State::Cold => 0,
        State::Half => 1,
        State::Warm => open.len(),
    };
    for (file, size) in open.iter().zip(&files.sizes).take(warm) {
        read_through(file, *size)?;
    }
    Ok(())
}

/// fio for a row's job file, which it reads on standard input.
fn command(
    args: &Args,
    row: Row,
    name: Name,
    files: &Files,
    library: Option<&Path>,
    seed: u64,
) -> Command {
    let (_, _, depth) = row.what();
    let mut command = Command::new("fio");
    command
        .args(["--output-format=json", "--clat_percentiles=0"])
        .args(["--lat_percentiles=1", "-"])
        .env(
            "ENGINE",
            if name == Name::IoUring {
                "io_uring"
            } else {
                "posixaio"
            },
        )
        .env("SMALL", fio::escaped(files.paths[0].as_os_str().as_bytes()))
        .env("LARGE", fio::escaped(files.paths[1].as_os_str().as_bytes()))
        .env("DEPTH", depth.to_string())
        .env("PAUSE", row.pause().to_string())
        .env("SEED", seed.to_string())
        .env(
            "MILLISECONDS",
            format!("{}", (args.timed.seconds * 1e3).ceil()),
        );
    if let (Name::Nowait, Some(library)) = (name, library) {
        command.env("LD_PRELOAD", preloaded(library));
    }
    command
}

/// The value of LD_PRELOAD: the drop-in, then the value that the user has set.
fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|b| !b.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(before);
    }
    all
}

/// Reads the figures of each job from what fio has printed.
fn read(said: &str) -> Result<BTreeMap<String, Value>, Problem> {
    let job = |job: &Value| Some((job["jobname"].as_str()?.to_owned(), figures(job)?));
    let all =
        fio::jobs(said).and_then(|jobs| jobs.iter().map(job).collect::<Option<BTreeMap<_, _>>>());
    all.filter(|all| !all.is_empty())
        .ok_or_else(|| fio::no_figures(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_below_two_microseconds_are_added_to_one() {
        let job = json!({"latency_ns": {"250": 1.5, "1000": 2.5},
                         "latency_us": {"2": 10.0, "4": 5.0}});
        assert_eq!(usec(&job), json!({"2": 14.0, "4": 5.0}));
    }
}
