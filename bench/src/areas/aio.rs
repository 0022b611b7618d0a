//! `nowait-bench aio`: fio's posixaio engine on glibc's AIO, and the same fio with
//! `libnowait_aio.so` preloaded. The jobs are fio's own files, in `jobs/aio/`.
//!
//! # The JSON shape (keys may be added)
//! ```text
//! {
//!   "bench": "aio", "version", "machine": {…}, "settings": {…}, "interrupted": bool,
//!   "rows": [{
//!     "row", "job", "cache": "cold" | "warm" | "hot and cold", "depth",
//!     "contenders": {NAME: {PART: {"rounds": [FIGURES], "median": FIGURES}}},
//!     "ratios": {NAME: {PART: {"iops": INTERVAL, "p50": INTERVAL, "p99": INTERVAL}}}   to glibc
//!   }]
//! }
//! PART is a job of the file: random, sequential, hot, cold, f1, f2, f3
//! FIGURES = {"iops", "p50_us", "p99_us", "bw": {"min", "max", "per", "avg", "stdev"}, "buckets"}
//! INTERVAL = {"median", "low95", "high95"}, of the ratios within each round
//! ```

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::contenders::fio;
use crate::harness::cache::{evict, read_through};
use crate::harness::class::as_fio;
use crate::harness::contender::{Fit, once_each};
use crate::harness::files::{Files, Wanted};
use crate::harness::interval::Interval;
use crate::harness::machine::Machine;
use crate::harness::print::print;
use crate::harness::run::FEWEST;
use crate::harness::run::median;
use crate::harness::text::{Paint, digits};
use nowait_cli::problem::{INTERRUPTED, Problem};
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// POSIX AIO under fio: glibc's, and nowait's drop-in
///
/// Every row is one of fio's job files, run with both within each round, in turn, on the same files
/// in the same state of the page cache.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The drop-in; if not said, libnowait_aio.so beside this program
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// Read PATH-0 (small) and PATH-1 (large). What is not there is made and kept. Without this
    /// option files are made in the current directory and removed at the end
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// How large files to make, an eighth of it for the small one
    #[arg(long, default_value = "2G")]
    size: Size,

    /// How long each runs in each round
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// How many rounds; ratios need 3, a range that covers 95 % needs 6
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Which rows
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["random-cold-1", "random-cold-32", "random-warm-1", "random-warm-32",
                            "mixed", "mixed-paced", "sequential", "seed-cold", "seed-warm"])]
    rows: Vec<Row>,

    /// Who takes part
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["glibc", "nowait"])]
    contenders: Vec<Name>,

    /// The seed of the random places
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// The help of its JSON.
pub const AFTER: &str = "\
Ratios are taken within rounds; below 1 is better for latencies. seed-cold and seed-warm are the
experiment that RWF_NONBLOCK was proposed with, in the form in which it was printed then.
Ctrl-C prints what was measured.

JSON (--json): {\"bench\", \"version\", \"machine\", \"settings\", \"interrupted\", \"rows\": [{\"row\", \"job\",
\"cache\", \"depth\", \"contenders\": {NAME: {PART: {\"rounds\": [FIGURES], \"median\": FIGURES}}},
\"ratios\": {NAME: {PART: {\"iops\", \"p50\", \"p99\"}}}}]}; FIGURES has iops, p50_us, p99_us, bw, buckets.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Row {
    /// 4K random reads of a file that is not cached, one at a time
    #[value(name = "random-cold-1")]
    #[serde(rename = "random-cold-1")]
    RandomCold1,
    /// The same, 32 in flight
    #[value(name = "random-cold-32")]
    #[serde(rename = "random-cold-32")]
    RandomCold32,
    /// 4K random reads of a file that is cached, one at a time
    #[value(name = "random-warm-1")]
    #[serde(rename = "random-warm-1")]
    RandomWarm1,
    /// The same, 32 in flight
    #[value(name = "random-warm-32")]
    #[serde(rename = "random-warm-32")]
    RandomWarm32,
    /// A cached file, one read after the other, beside one that is not, 32 in flight
    Mixed,
    /// The same, with a pause between two reads of the cached file
    MixedPaced,
    /// One file from its start on, not cached
    Sequential,
    /// f1, f2 and f3, nothing cached before
    SeedCold,
    /// The same, everything cached before
    SeedWarm,
}

/// What the page cache has before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Cold,
    Warm,
    /// The small file.
    Half,
}

impl Row {
    fn word(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Its job file, the state of the page cache, and how many reads are in flight.
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

    fn is_seed(self) -> bool {
        matches!(self, Row::SeedCold | Row::SeedWarm)
    }
}

/// Who can take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Name {
    /// fio's posixaio engine as it is
    Glibc,
    /// The same with the drop-in preloaded
    Nowait,
    /// fio's io_uring engine, the mark to reach
    #[value(name = "io_uring")]
    #[serde(rename = "io_uring")]
    IoUring,
}

impl Name {
    fn word(self) -> &'static str {
        match self {
            Name::Glibc => "glibc",
            Name::Nowait => "nowait",
            Name::IoUring => "io_uring",
        }
    }

    fn engine(self) -> &'static str {
        match self {
            Name::Glibc | Name::Nowait => "posixaio",
            Name::IoUring => "io_uring",
        }
    }
}

/// One job of one contender in one round.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    /// KB/s, as fio says it.
    bw: Value,
    /// Per cent of the reads below each end.
    buckets: Value,
}

impl Figures {
    /// Of one job of fio's JSON.
    fn of(job: &Value) -> Option<Figures> {
        let read = &job["read"];
        let percentile = |p: &str| Some(read["lat_ns"]["percentile"][p].as_f64()? / 1e3);
        let bw = |key: &str| read[key].clone();
        Some(Figures {
            iops: read["iops"].as_f64()?,
            p50_us: percentile("50.000000").unwrap_or(0.0),
            p99_us: percentile("99.000000").unwrap_or(0.0),
            bw: json!({"min": bw("bw_min"), "max": bw("bw_max"), "per": bw("bw_agg"),
                       "avg": bw("bw_mean"), "stdev": bw("bw_dev")}),
            buckets: json!({"usec": usec(job), "msec": job["latency_ms"]}),
        })
    }
}

/// fio has buckets of nanoseconds too, which the seed's did not: below 2 us is below 2 us.
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

/// The figures of each round, by job.
type Rounds = BTreeMap<String, Vec<Figures>>;

/// One row, measured.
struct Measured {
    row: Row,
    contenders: Vec<(Name, Rounds)>,
}

/// Three ratios to glibc.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratios {
    iops: Interval,
    p50: Interval,
    p99: Interval,
}

impl Measured {
    fn of(&self, name: Name) -> Option<&Rounds> {
        let found = self.contenders.iter().find(|(n, _)| *n == name);
        found.map(|(_, rounds)| rounds)
    }

    /// How one job of a contender compares with glibc's.
    fn ratios(&self, name: Name, part: &str) -> Option<Ratios> {
        let (a, b) = (self.of(name)?.get(part)?, self.of(Name::Glibc)?.get(part)?);
        if name == Name::Glibc || a.len().min(b.len()) < FEWEST {
            return None;
        }
        let of = |figure: fn(&Figures) -> f64| {
            let each = a.iter().zip(b);
            let mut each: Vec<f64> = each
                .map(|(a, b)| figure(a) / figure(b).max(1e-12))
                .collect();
            Interval::of(&mut each)
        };
        Some(Ratios {
            iops: of(|f| f.iops),
            p50: of(|f| f.p50_us),
            p99: of(|f| f.p99_us),
        })
    }

    fn json(&self) -> Value {
        let (job, state, depth) = self.row.what();
        let mut contenders = Map::new();
        let mut ratios = Map::new();
        for (name, rounds) in &self.contenders {
            let mut of_parts = Map::new();
            let mut compared = Map::new();
            for (part, figures) in rounds {
                of_parts.insert(
                    part.clone(),
                    json!({"rounds": figures, "median": middle(figures)}),
                );
                if let Some(ratio) = self.ratios(*name, part) {
                    compared.insert(part.clone(), json!(ratio));
                }
            }
            contenders.insert(name.word().into(), of_parts.into());
            if !compared.is_empty() {
                ratios.insert(name.word().into(), compared.into());
            }
        }
        let cache = match state {
            State::Cold => "cold",
            State::Warm => "warm",
            State::Half => "hot and cold",
        };
        json!({"row": self.row, "job": job, "cache": cache, "depth": depth,
               "contenders": contenders, "ratios": ratios})
    }

    fn table(&self, text: &mut String, paint: Paint) {
        let _ = writeln!(text, "\n{}", paint.bold(&self.row.word()));
        let _ = writeln!(
            text,
            "{:<12}{:<10}{:>9}{:>10}{:>10}   IOPS x glibc       p50 x glibc        p99 x glibc",
            "", "", "kIOPS", "p50 us", "p99 us"
        );
        for (name, rounds) in &self.contenders {
            for (part, figures) in rounds {
                let of = middle(figures);
                let figure =
                    |key: &str, scale: f64| digits(of[key].as_f64().unwrap_or(0.0) * scale);
                let _ = write!(
                    text,
                    "{part:<12}{:<10}{:>9}{:>10}{:>10}",
                    name.word(),
                    figure("iops", 1e-3),
                    figure("p50_us", 1.0),
                    figure("p99_us", 1.0),
                );
                if let Some(ratios) = self.ratios(*name, part) {
                    for ratio in [ratios.iops, ratios.p50, ratios.p99] {
                        let Interval {
                            median,
                            low95,
                            high95,
                        } = ratio;
                        let range = format!("{}-{}", digits(low95), digits(high95));
                        let _ = write!(text, "   {:<16}", format!("{} ({range})", digits(median)));
                    }
                }
                text.truncate(text.trim_end().len());
                text.push('\n');
            }
        }
        if self.row.is_seed() {
            self.as_seed(text);
        }
    }

    /// As the seed was printed.
    fn as_seed(&self, text: &mut String) {
        for (name, rounds) in &self.contenders {
            let _ = writeln!(text, "\n{}:", name.word());
            for (part, figures) in rounds {
                let of = middle(figures);
                let bw = |key: &str| of["bw"][key].as_f64().unwrap_or(0.0);
                let _ = writeln!(
                    text,
                    " {part}:\n    bw (KB /s): min={:5.0}, max={:5.0}, per={:.2}%, avg={:.2}, \
                     stdev={:.2}",
                    bw("min"),
                    bw("max"),
                    bw("per"),
                    bw("avg"),
                    bw("stdev"),
                );
                for line in as_fio(&of["buckets"]) {
                    let _ = writeln!(text, "    {line}");
                }
            }
        }
    }
}

/// Each figure's median over the rounds.
fn middle(figures: &[Figures]) -> Value {
    let values: Vec<Value> = figures.iter().map(|figures| json!(figures)).collect();
    median(&values)
}

/// The bench, from its files to its tables.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    if let Fit::No(why) = fio::fits("posixaio") {
        return Err(Problem::Failed(why));
    }
    let names = once_each(&args.contenders);
    let library = if names.contains(&Name::Nowait) {
        Some(library(args.library.as_deref())?)
    } else {
        None
    };
    let stop = Stop::on_signals()?;
    let files = Files::prepare(
        Wanted {
            path: args.file.as_deref(),
            size: args.size,
            shares: &[1, 7],
            block: 64 << 10,
        },
        &stop,
    )?;
    let machine = Machine::look(&files.paths[1])?;
    for file in files.open()? {
        rustix::fs::fdatasync(&file).map_err(|e| Problem::of("fdatasync", e))?;
    }
    let mut measured: Vec<Measured> = once_each(&args.rows)
        .into_iter()
        .map(|row| Measured {
            row,
            contenders: names.iter().map(|name| (*name, Rounds::new())).collect(),
        })
        .collect();
    play(args, &files, library.as_deref(), &mut measured, &stop)?;
    let interrupted = stop.asked();
    if measured
        .iter()
        .flat_map(|row| &row.contenders)
        .all(|(_, rounds)| rounds.is_empty())
    {
        return Err(Problem::Interrupted);
    }
    let report = json!({
        "bench": "aio",
        "version": env!("CARGO_PKG_VERSION"),
        "machine": machine,
        "settings": {
            "files": files, "seconds": args.seconds, "rounds": args.rounds, "seed": args.seed,
            "library": library.as_ref().map(|path| path.to_string_lossy()),
            "order": "contenders take turns within a round; each round begins with the next one",
            "cold": "POSIX_FADV_DONTNEED on the files before each run",
        },
        "interrupted": interrupted,
        "rows": measured.iter().map(Measured::json).collect::<Vec<_>>(),
    });
    print(&report, args.json, |paint| {
        let mut text = format!(
            "nowait-bench {} aio on {machine}\n{} s a run, rounds: {}; ratios are medians of those \
             within each round\n",
            env!("CARGO_PKG_VERSION"),
            args.seconds,
            args.rounds,
        );
        for row in &measured {
            row.table(&mut text, paint);
        }
        text
    })?;
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// The drop-in: where the user says, or beside this program.
fn library(said: Option<&Path>) -> Result<PathBuf, Problem> {
    const NAME: &str = "libnowait_aio.so";
    let path = match said {
        Some(path) => path.to_path_buf(),
        None => std::env::current_exe()
            .map_err(|e| Problem::of("where is this program?", e))?
            .with_file_name(NAME),
    };
    // The dynamic linker passes over a library that is not there, and takes a name without a slash
    // for one to search for.
    std::fs::canonicalize(&path).map_err(|e| {
        Problem::Failed(format!(
            "{}: {e}; build it (cargo build --release -p nowait-aio), or name it with --library",
            path.display()
        ))
    })
}

/// All rounds of all rows.
fn play(
    args: &Args,
    files: &Files,
    library: Option<&Path>,
    measured: &mut [Measured],
    stop: &Stop,
) -> Result<(), Problem> {
    let turns: usize = measured.iter().map(|row| row.contenders.len()).sum();
    let mut progress = Progress::of_turns((turns * args.rounds as usize) as u64);
    let mut done = 0;
    for number in 0..args.rounds as usize {
        for Measured { row, contenders } in measured.iter_mut() {
            let n = contenders.len();
            for i in (0..n).map(|i| (i + number) % n) {
                let (name, rounds) = &mut contenders[i];
                let round = number + 1;
                progress.at(
                    done,
                    format!("round {round}: {} {}", row.word(), name.word()),
                );
                done += 1;
                prepare(row.what().1, files)?;
                if stop.asked() {
                    return Ok(());
                }
                let seed = args.seed + number as u64;
                let said = fio::end(start(args, *row, *name, files, library, seed)?, stop)?;
                if stop.asked() {
                    return Ok(());
                }
                for (part, figures) in read(&said)? {
                    rounds.entry(part).or_default().push(figures);
                }
            }
        }
    }
    Ok(())
}

/// Puts the page cache into its state.
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

/// Starts fio on a row's job file.
fn start(
    args: &Args,
    row: Row,
    name: Name,
    files: &Files,
    library: Option<&Path>,
    seed: u64,
) -> Result<std::process::Child, Problem> {
    let (job, _, depth) = row.what();
    let mut command = Command::new("fio");
    command
        .args(["--output-format=json", "--clat_percentiles=0"])
        .args(["--lat_percentiles=1", "-"])
        .env("ENGINE", name.engine())
        .env("SMALL", fio::escaped(files.paths[0].as_os_str().as_bytes()))
        .env("LARGE", fio::escaped(files.paths[1].as_os_str().as_bytes()))
        .env("DEPTH", depth.to_string())
        .env("PAUSE", row.pause().to_string())
        .env("SEED", seed.to_string())
        .env("MILLISECONDS", format!("{}", (args.seconds * 1e3).ceil()));
    if let (Name::Nowait, Some(library)) = (name, library) {
        command.env("LD_PRELOAD", preloaded(library));
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|e| Problem::of("cannot start fio", e))?;
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        // If fio has ended already, it has said why.
        let _ = input.write_all(job.as_bytes());
    }
    Ok(child)
}

/// What LD_PRELOAD is to be: the drop-in before what the user has there.
fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|b| !b.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(before);
    }
    all
}

/// Takes in fio's JSON, before which it may have printed remarks.
fn read(said: &str) -> Result<BTreeMap<String, Figures>, Problem> {
    let json: Option<Value> = said
        .find('{')
        .and_then(|at| serde_json::from_str(&said[at..]).ok());
    let jobs = json.as_ref().and_then(|json| json["jobs"].as_array());
    let figures = jobs.and_then(|jobs| {
        jobs.iter()
            .map(|job| Some((job["jobname"].as_str()?.to_owned(), Figures::of(job)?)))
            .collect::<Option<BTreeMap<_, _>>>()
    });
    figures.filter(|all| !all.is_empty()).ok_or_else(|| {
        Problem::Failed(format!(
            "cannot make sense of what fio says: {}",
            said.chars().take(300).collect::<String>()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_less_than_two_microseconds_is_one_bucket_as_in_the_seed() {
        let job = json!({"latency_ns": {"250": 1.5, "1000": 2.5},
                         "latency_us": {"2": 10.0, "4": 5.0}});
        assert_eq!(usec(&job), json!({"2": 14.0, "4": 5.0}));
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let figures = |iops: f64| Figures {
            iops,
            p50_us: 1e6 / iops,
            p99_us: 2e6 / iops,
            bw: Value::Null,
            buckets: Value::Null,
        };
        let rounds =
            |all: [f64; 3]| Rounds::from([("random".to_owned(), all.map(figures).to_vec())]);
        let measured = Measured {
            row: Row::RandomCold1,
            contenders: vec![
                (Name::Glibc, rounds([1.0, 10.0, 100.0])),
                (Name::Nowait, rounds([4.0, 20.0, 300.0])),
            ],
        };
        let ratios = measured.ratios(Name::Nowait, "random").unwrap();
        assert_eq!(ratios.iops.median, 3.0);
        assert!((ratios.p99.median - 1.0 / 3.0).abs() < 1e-9);
        assert!(measured.ratios(Name::Glibc, "random").is_none());
    }
}
