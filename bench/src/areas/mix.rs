//! `nowait-bench mix`: three classes of reads at once in one event loop, the workload with which
//! preadv2's RWF_NONBLOCK was proposed. The figures show if a cached request waits behind uncached
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
use crate::harness::cell::Contender;
use crate::harness::contender::{Contenders, Fit, Named, Word};
use crate::harness::draws::{CLASSES, Mix};
use crate::harness::latencies;
use crate::harness::offsets::Order;
use crate::harness::plan::{Measured, Plan, Work};
use crate::harness::plot::{Axis, Chart, Line};
use crate::harness::round::Round;
use crate::harness::settings::Common;
use crate::harness::turn::Turn;
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The reads of a database: mostly cached, mostly uncached and sequential ones at once
///
/// One thread, the event loop of a server, keeps --depth requests of 16K in flight. Of 100, 73 are
/// for f1, at random by popularity (zipf with the exponent 1.1), 99.5 % of them cached; 18 are for
/// f2, at random and uniformly, 2 % of them cached; and 9 read f3 sequentially, with the kernel's
/// readahead. Of --size f1 has 1/12, f2 8/12 and f3 3/12. With --file PATH the files are PATH-0,
/// PATH-1 and PATH-2. No block of f2 and f3 is read twice in a turn.
///
/// A new request begins when another one ends. The rates of the classes therefore follow from their
/// weights, and only latencies show if one class waits for another.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("6G")))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    contenders: Contenders<Name>,
}

pub const AFTER: &str = "\
`hits` is the share of reads that the page cache served, as the contender reports it: by provenance for the
ring and nowait (eager and strict), by the tries of pool+nowait. `book` is the share of reads whose blocks
were cached when the turn began or read earlier in it; f3 has none, because of the kernel's readahead.
`hit p99` is the 99th percentile of these reads: the time that a cached request takes.

JSON (--json): the shape of all areas (nowait-bench --help); each round has \"classes\": {\"f1\" | \"f2\" | \"f3\":
{\"ops\", \"ops_per_s\", \"mb_per_s\", \"hits\", \"booked\" (shares, 0 to 1, or null), \"under_20us\",
\"lat_us\", \"booked_lat_us\", \"buckets\": {\"usec\": {\"2\" … \"1000\"}, \"msec\": {\"2\" … \">=2000\"}}}};
ratios have figures such as \"classes/f1/lat_us/p99\".";

/// The parameters of the mix. Below 99 % of hits the p99 of f1 is the latency of the device, and
/// does not show if cached requests wait.
const MIX: Mix = Mix {
    weights: [73, 18, 9],
    theta: 1.1,
    f1_hits: 0.995,
    f2_hits: 0.02,
};

/// The bytes of one read.
const BLOCK: u64 = 16 << 10;

/// The threads of `pool` and `pool+nowait`. Programs have 4 (libuv) to 100 (Samba). With 16 threads
/// and a depth of 32 an ordinary disk is busy, and some requests wait for a thread.
const POOL_THREADS: usize = 16;

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

    fn play(self, turn: &Turn<'_>) -> Result<Round, Problem> {
        match (self, self.asked()) {
            (_, Some(asked)) => future::many(turn, asked),
            (Name::Ring, _) => local::batches(turn, Refill::Always),
            _ => pool::pool(turn, POOL_THREADS, self == Name::PoolNowait),
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

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let mut plan = Plan {
        shares: vec![1, 8, 3],
        cache: Cache::Mixed {
            mix: MIX,
            block: BLOCK,
        },
        order: Order::Mix(MIX),
        views: &[View::TOTAL, View::F1, View::F2, View::F3],
        ..Plan::new("mix", &args.common, stop)
    };
    plan.bench.note(format!(
        "pool and pool+nowait have {POOL_THREADS} threads; nowait starts as many workers as it needs, \
         up to its default of 64"
    ));
    let names = plan.bench.choose(&args.contenders.names, Name::fits)?;
    plan.add(Work::only(BLOCK), names);
    let mut measured = plan.measure(|name, turn, _| name.play(turn))?;
    for (class, what) in CLASSES.into_iter().zip(WHATS) {
        let prefix = format!("classes/{class}/");
        let cells = measured.run.cells.iter();
        let tables = cells.filter_map(|cell| latencies::table(class, cell, &prefix));
        measured.run.tables.extend(tables.collect::<Vec<_>>());
        let chart = chart(&measured, class, what);
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
fn chart(measured: &Measured, class: &'static str, what: &str) -> Option<Chart> {
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
        subtitle: format!("reads of {} on {}", Size(BLOCK), run.machine),
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
