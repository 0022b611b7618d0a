//! `nowait-bench mix`: three classes of reads at once in one event loop. This is the workload with
//! which preadv2's RWF_NONBLOCK was proposed. It shows if a cached request waits behind uncached
//! ones.

use std::process::ExitCode;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use nowait::Mode;
use nowait::engine::Backend;

use crate::contenders::future::Asked;
use crate::contenders::local::Refill;
use crate::contenders::{future, local, pool};
use crate::harness::cache::Cache;
use crate::harness::contender::{Fit, Named, Word};
use crate::harness::draws::{CLASSES, Mix};
use crate::harness::latencies;
use crate::harness::offsets::Order;
use crate::harness::plan::{Measured, Plan, Reader, Way, Work};
use crate::harness::plot::{Axis, Chart, Line};
use crate::harness::run::Contender;
use crate::harness::settings::{Common, check_blocks};
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The reads of a database: mostly cached, mostly uncached and sequential ones at once
///
/// One thread, the event loop of a server, keeps --depth requests in flight. --weights says how
/// often each of three files is read: f1 at random by popularity (zipf), mostly cached; f2 at
/// random and uniformly, mostly not cached; f3 sequentially. Of --size f1 has 1/12, f2 8/12 and f3
/// 3/12. With --file PATH the files are PATH-0, PATH-1 and PATH-2. --advice is for f1 and f2; f3
/// has the kernel's readahead. No block of f2 and f3 is read twice in a turn.
///
/// A new request begins when another one ends. So the rates of the classes follow from their
/// weights, and only latencies show if one class waits for another.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("6G")))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,

    /// The size of one read
    #[arg(long, value_name = "SIZE", default_value = "16K")]
    pub block: Size,

    /// The weights with which f1, f2 and f3 are drawn
    #[arg(long, value_name = "F1,F2,F3", value_delimiter = ',', num_args = 1,
          default_values = ["73", "18", "9"])]
    pub weights: Vec<u32>,

    /// The exponent of f1's popularity: the block of rank r is drawn in proportion to r^-THETA. 0
    /// draws all blocks equally often; databases have 0.9 to 1.2
    #[arg(long, value_name = "THETA", default_value = "1.1", value_parser = exponent)]
    pub theta: f64,

    /// Per cent of f1's reads whose blocks are cached when a turn begins: those of the most popular
    /// blocks. Below 99 the p99 of f1 is the latency of the device, and does not show if cached
    /// requests wait
    #[arg(long, value_name = "%", default_value = "99.5", value_parser = per_cent)]
    pub f1_hits: f64,

    /// Per cent of f2's blocks that are cached when a turn begins
    #[arg(long, value_name = "%", default_value = "2", value_parser = per_cent)]
    pub f2_hits: f64,

    /// Threads of `pool` and `pool+nowait`. Programs have 4 (libuv) to 100 (Samba). With 16 threads
    /// and a depth of 32 an ordinary disk is busy, and some requests wait for a thread
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub pool_threads: u32,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    pub contenders: Vec<Name>,
}

/// The text after the help.
pub const AFTER: &str = "\
`hits` is the share of reads that the page cache served, as the contender reports it: by provenance for the
ring and nowait (eager and strict), by the tries of pool+nowait. `book` is the share of reads whose blocks
were cached when the turn began or read earlier in it; f3 has none, because of the kernel's readahead.
`hit p99` is the 99th percentile of these reads: the time that a cached request takes.

JSON (--json): the shape of all areas (nowait-bench --help); each round has \"classes\": {\"f1\" | \"f2\" | \"f3\":
{\"ops\", \"ops_per_s\", \"mb_per_s\", \"hits\", \"booked\" (shares, 0 to 1, or null), \"under_20us\",
\"lat_us\", \"booked_lat_us\", \"buckets\": {\"usec\": {\"2\" … \"1000\"}, \"msec\": {\"2\" … \">=2000\"}}}};
ratios have figures such as \"classes/f1/lat_us/p99\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

fn per_cent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=100.0).contains(&share) => Ok(share),
        _ => Err("per cent: a number from 0 to 100".into()),
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(theta) if (0.0..=10.0).contains(&theta) => Ok(theta),
        _ => Err("an exponent: a number from 0 to 10".into()),
    }
}

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// A pool of threads: every read is queued
    Pool,
    /// A pool of threads: the event loop tries preadv2(RWF_NOWAIT) before a read is queued
    #[value(name = "pool+nowait")]
    PoolNowait,
    /// nowait's LocalEngine: every read goes to an io_uring ring that the event loop drives
    Ring,
    /// nowait's futures, eager, on a ring
    EagerUring,
    /// nowait's futures, eager, on worker threads
    EagerThreads,
    /// nowait's futures, strict (the event loop never waits for the device), on a ring
    StrictUring,
    /// nowait's futures, strict, on worker threads
    StrictThreads,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        !matches!(self, Name::Pool | Name::PoolNowait)
    }
}

impl Name {
    /// The options of the engine, for contenders that are futures.
    fn asked(self) -> Option<Asked> {
        let asked = |mode, backend| {
            Some(Asked {
                mode,
                backend: Some(backend),
                ..Asked::default()
            })
        };
        match self {
            Name::Pool | Name::PoolNowait | Name::Ring => None,
            Name::EagerUring => asked(Mode::Eager, Backend::Uring),
            Name::EagerThreads => asked(Mode::Eager, Backend::Threads),
            Name::StrictUring => asked(Mode::Strict, Backend::Uring),
            Name::StrictThreads => asked(Mode::Strict, Backend::Threads),
        }
    }

    fn way(self, threads: usize) -> Way {
        match (self, self.asked()) {
            (_, Some(asked)) => Box::new(move |turn| future::many(turn, asked)),
            (Name::Ring, _) => Box::new(|turn| local::batches(turn, Refill::Always)),
            _ => Box::new(move |turn| pool::pool(turn, threads, self == Name::PoolNowait)),
        }
    }

    fn fits(self) -> Fit {
        match (self, self.asked()) {
            (_, Some(asked)) => asked.fits(&self.word()),
            (Name::Ring, _) => local::fits(&self.word()),
            _ => Fit::Yes,
        }
    }
}

impl Args {
    fn mix(&self) -> Result<Mix, Problem> {
        let Ok(weights) = <[u32; 3]>::try_from(&self.weights[..]) else {
            return Err(Problem::Usage(format!(
                "--weights has {} numbers: give three, for f1, f2 and f3, such as 73,18,9",
                self.weights.len()
            )));
        };
        if weights == [0; 3] {
            return Err(Problem::Usage(
                "--weights are all 0: give at least one class more than 0".into(),
            ));
        }
        Ok(Mix {
            weights,
            theta: self.theta,
            f1_hits: self.f1_hits / 100.0,
            f2_hits: self.f2_hits / 100.0,
        })
    }
}

/// Measures the mix and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    check_blocks(&[args.block], args.common.depth)?;
    let (mix, block) = (args.mix()?, args.block.0);
    let mut plan = Plan {
        shares: vec![1, 8, 3],
        cache: Cache::Mixed { mix, block },
        order: Order::Mix(mix),
        views: &[View::TOTAL, View::F1, View::F2, View::F3],
        ..Plan::new("mix", &args.common, stop)?
    };
    plan.bench.note(format!(
        "pool and pool+nowait have {} threads (--pool-threads); nowait starts as many workers as it \
         needs, up to its default of 64",
        args.pool_threads
    ));
    let names = plan.bench.choose(&args.contenders, Name::fits)?;
    let way = |name: &Name| name.way(args.pool_threads as usize);
    plan.add(
        Work::only(block),
        names.iter().map(|name| Reader::new(name, way(name))),
    );
    let mut measured = plan.measure()?;
    for (class, what) in CLASSES.into_iter().zip(WHATS) {
        let prefix = format!("classes/{class}/");
        let cells = measured.run.cells.iter();
        let tables = cells.filter_map(|cell| latencies::table(class, cell, &prefix));
        measured.run.tables.extend(tables.collect::<Vec<_>>());
        let chart = chart(args.block, &measured, class, what);
        measured.run.charts.extend(chart);
    }
    plan.bench.finish(measured.run)
}

/// The classes for people.
const WHATS: [&str; 3] = [
    "random by popularity, mostly cached",
    "random, mostly not cached",
    "sequential",
];

/// The share of the reads of a class that took no longer than a latency.
fn chart(block: Size, measured: &Measured, class: &'static str, what: &str) -> Option<Chart> {
    let Measured { run, latencies, .. } = measured;
    let line = |contender: &Contender| {
        let all = latencies.get(&(contender.name.clone(), class));
        let points = all.map_or(Vec::new(), distribution);
        Line::new(
            &contender.name,
            points,
            !contender.name.ends_with("threads"),
        )
    };
    let lines: Vec<Line> = run.cells[0].contenders.iter().map(line).collect();
    let is_drawn = lines.iter().any(|line| !line.points.is_empty());
    is_drawn.then(|| Chart {
        name: class.into(),
        title: format!("{class}: {what}"),
        subtitle: format!("reads of {block} on {}", run.machine),
        x: Axis::log("latency, us"),
        y: Axis::linear("reads that took no longer, %"),
        lines,
        marks: Vec::new(),
    })
}

/// Points of a curve for each factor of ten in latency.
const POINTS: i32 = 40;

/// Microseconds, and per cent of the reads that took no longer.
fn distribution(all: &Histogram<u64>) -> Vec<(f64, f64)> {
    if all.is_empty() {
        return Vec::new();
    }
    // The points begin at half a microsecond.
    (0..)
        .map(|i| 500.0 * 10f64.powf(f64::from(i) / f64::from(POINTS)))
        .map(|ns| (ns / 1e3, all.percentile_below(ns as u64)))
        .skip_while(|&(_, share)| share == 0.0)
        .scan(false, |full, point| {
            let go_on = !*full;
            *full = point.1 >= 100.0;
            go_on.then_some(point)
        })
        .collect()
}
