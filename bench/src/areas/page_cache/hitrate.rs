//! `nowait-bench hitrate`: the cost of a read at each hit rate, if the page cache is tried always,
//! never, after asking for residency, in strict mode, and as the library decides.

use std::process::ExitCode;

use clap::ValueEnum;
use nowait::Mode;
use nowait::read::NowaitPolicy;
use serde::Serialize;
use serde_json::{Value, json};

use super::crossing::{Curve, crossings};
use super::turnover::{self, Better, TurnOver};
use crate::contenders::future::{self, Asked};
use crate::harness::cache::Cache;
use crate::harness::cell::{Cell, Ratio, object};
use crate::harness::contender::{Contenders, Named, Word, once_each};
use crate::harness::files::Files;
use crate::harness::offsets;
use crate::harness::plan::{Label, Plan, Work};
use crate::harness::plot::{Axis, Chart, Line, Mark};
use crate::harness::run::Run;
use crate::harness::settings::Common;
use crate::harness::table::{Entry, Table};
use crate::harness::view::View;
use nowait_cli::doctor::{self, BreakEven, SEED_BREAK_EVEN};
use nowait_cli::interval::Interval;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The cost of a read at each hit rate: trying the page cache always, never, and as nowait decides
///
/// Before each turn the file is evicted, and then the blocks that will be hits are read.
/// Each block is read once. There is no readahead, so the hit rate is exact.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("512M")),
          mut_arg("rounds", |a| a.default_value("7")),
          mut_arg("ops", |a| a.help("How many reads each contender makes in each round [default: 8000]")),
          mut_arg("seconds", |a| a.default_value(None::<&str>)))]
pub struct Args {
    #[command(flatten)]
    common: Common,

    /// The sizes of one read; each is measured
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_values = ["4K", "64K"])]
    block: Vec<Size>,

    /// The orders in which the blocks are read
    #[arg(long, value_enum, value_name = "A,B", value_delimiter = ',',
          default_values = ["random", "linear"])]
    order: Vec<Order>,

    /// The hit rates: per cent of the reads whose block is cached
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          default_values = ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90", "100"],
          value_parser = clap::value_parser!(u32).range(0..=100))]
    rates: Vec<u32>,

    #[command(flatten)]
    contenders: Contenders<Name>,
}

/// The order of a turn's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Each block once, in a random order
    Random,
    /// Each block once, from the first one on
    Linear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Every read tries the page cache in the calling thread
    Always,
    /// No read tries the page cache: all go to the engine
    Never,
    /// The calling thread asks for residency (cachestat(2)). It reads cached blocks with pread(2)
    /// and gives the others to the engine
    Ask,
    /// nowait's strict mode: asks for residency, and tries blocks that are cached
    Strict,
    /// nowait's default: decides by the history of the file
    Adaptive,
}

pub const AFTER: &str = "\
All contenders are futures on a shared engine. A thread for each processor polls them, with --depth in flight.
Contenders take turns within each round, at the same places and with the same blocks cached. The last table
has the hit rates at which curves cross, the ratio of adaptive's time to that of the better of always and
never, and the number of reads after which adaptive follows a file that changes from hits to misses, and
back. Ctrl-C ends the bench and prints what was measured; a second one ends the program at once.

JSON (--json): the shape of all areas (nowait-bench --help); the cells' parameters are \"block\", \"order\" and
\"rate\", and \"findings\" has \"break_even\", \"ask_first_break_even\", \"seed_break_even\", and \"curves\":
[{\"block\", \"order\", \"always_never\": [rates], \"ask_always\": [rates], \"adaptive\": [{\"rate\",
\"better\", \"median\", \"low95\", \"high95\", \"cpu\"}], \"turn_over\": {\"to_misses\", \"to_hits\", \"of\"} | null}].";

impl Order {
    fn places(self) -> offsets::Order {
        match self {
            Order::Random => offsets::Order::Once,
            Order::Linear => offsets::Order::Rising,
        }
    }
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        true
    }
}

impl Name {
    fn asked(self) -> Asked {
        let asked = Asked::default();
        match self {
            Name::Always => Asked {
                trying: NowaitPolicy::Always,
                ..asked
            },
            Name::Never => Asked {
                trying: NowaitPolicy::Never,
                ..asked
            },
            Name::Ask => Asked {
                trying: NowaitPolicy::Never,
                caller_asks: true,
                ..asked
            },
            Name::Strict => Asked {
                mode: Mode::Strict,
                ..asked
            },
            Name::Adaptive => asked,
        }
    }
}

impl Args {
    /// Every block size in every order.
    fn curves(&self) -> Vec<(Size, Order)> {
        let orders = once_each(&self.order);
        once_each(&self.block)
            .into_iter()
            .flat_map(|block| orders.iter().map(move |order| (block, *order)))
            .collect()
    }
}

/// How many threads read, each with --depth reads in flight. With fewer threads a processor is
/// idle, so that work of the engine's workers seems to cost less than it does.
fn callers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let mut plan = Plan {
        cache: Cache::Part(0),
        bases: &["always"],
        views: &[View::EACH],
        ..Plan::new("hitrate", &args.common, stop)
    };
    let fits = |name: Name| name.asked().fits(&name.word());
    let names = plan.bench.choose(&args.contenders.names, fits)?;
    let mut rates = once_each(&args.rates);
    rates.sort_unstable();
    for (Size(block), order) in args.curves() {
        for &rate in &rates {
            let label = Label {
                block: Some(block),
                order: Some(order.word()),
                rate: Some(rate),
                ..Label::default()
            };
            let work = Work {
                label,
                threads: callers(),
                state: Some((Cache::Part(rate), order.places())),
                ..Work::only(block)
            };
            plan.add(work, names.clone());
        }
    }
    let measured = plan.measure(|name, turn, _| future::many(turn, name.asked()))?;
    let costs = doctor::Bench::prepare(&measured.files.paths[0]).map(|bench| bench.costs().1);
    let costs = costs.map_err(Problem::Failed)?;
    let (mut curves, mut charts) = (Vec::new(), Vec::new());
    for (block, order) in args.curves() {
        let mut found = Found::of(&measured.run, block, order);
        if !plan.bench.stop.asked() {
            found.turn_over = found.turn_over(args, &measured.files)?;
        }
        charts.push(found.chart(args, &measured.run, costs));
        charts.extend(found.bytes_chart(&measured.run));
        curves.push(found);
    }
    let mut run = measured.run;
    run.tables.push(summary(costs, &curves));
    run.findings = object(json!({
        "break_even": costs.trying,
        "ask_first_break_even": costs.asking,
        "seed_break_even": SEED_BREAK_EVEN,
        "curves": curves.iter().map(Found::json).collect::<Vec<_>>(),
    }));
    run.charts = charts;
    plan.bench.finish(run)
}

/// The hit rates from which trying the page cache pays, and from which it beats asking for
/// residency first; the ratio of adaptive's time to that of the better of always and never; the
/// number of reads after which adaptive follows a file that turns to misses and back to hits.
fn summary(costs: BreakEven, curves: &[Found]) -> Table {
    let percent = |rate: f64| format!("{rate:.0} %");
    let computed = |rate: Option<f64>| rate.map_or("-".into(), |rate| percent(100.0 * rate));
    let mut rows = vec![
        vec![
            "computed, one read at a time".into(),
            computed(costs.trying).into(),
            computed(costs.asking).into(),
        ],
        vec![
            "the kernel list in 2015".into(),
            "-".into(),
            percent(100.0 * SEED_BREAK_EVEN).into(),
        ],
    ];
    for found in curves {
        let crossing = |one, other| -> Entry {
            let all = found.crossings(one, other).into_iter();
            let all: Vec<String> = all.map(percent).collect();
            match all.is_empty() {
                true => "no crossing".into(),
                false => all.join(", ").into(),
            }
        };
        let worst = found.worst().map_or(Entry::default(), |worst| {
            let Entry { text, verdict } = Entry::ratio(Some(worst.time), false);
            Entry {
                text: format!("{text} at {} %", worst.rate),
                verdict,
            }
        });
        let after = |reads: Option<u64>| match (reads, found.turn_over) {
            (Some(reads), _) => reads.to_string(),
            (None, Some(turn)) => format!("> {}", turn.of),
            (None, None) => "-".into(),
        };
        let turn = |pick: fn(TurnOver) -> Option<u64>| -> Entry {
            after(found.turn_over.and_then(pick)).into()
        };
        rows.push(vec![
            format!("{} {}", found.block, found.order.word()).into(),
            crossing("always", "never"),
            crossing("ask", "always"),
            worst,
            turn(|turn| turn.to_misses),
            turn(|turn| turn.to_hits),
        ]);
    }
    let columns = [
        "try from",
        "beats asking from",
        "adaptive x better, at most",
        "to misses",
        "to hits",
    ];
    rows.iter_mut()
        .for_each(|row| row.resize(1 + columns.len(), Entry::default()));
    Table::new("break-even", columns, rows)
}

/// The findings for one block size in one order.
struct Found {
    block: Size,
    order: Order,
    /// Microseconds per read, by contender.
    curves: Vec<(String, Curve)>,
    adaptive: Vec<Beside>,
    turn_over: Option<TurnOver>,
}

/// The comparison of adaptive with the better of always and never, at one hit rate.
#[derive(Serialize)]
struct Beside {
    rate: u32,
    better: String,
    /// Adaptive's time divided by that of the better one.
    #[serde(flatten)]
    time: Interval,
    /// The median of the ratios of processor time.
    cpu: f64,
}

impl Found {
    fn of(run: &Run, block: Size, order: Order) -> Found {
        let mut curves: Vec<(String, Curve)> = Vec::new();
        let mut adaptive = Vec::new();
        for (rate, cell) in cells(run, block, order) {
            for contender in &cell.contenders {
                let Some(cost) = contender.figure("us_per_op") else {
                    continue;
                };
                let point = (f64::from(rate), cost);
                match curves.iter_mut().find(|(name, _)| *name == contender.name) {
                    Some((_, curve)) => curve.push(point),
                    None => curves.push((contender.name.clone(), vec![point])),
                }
            }
            adaptive.extend(beside(rate, cell));
        }
        Found {
            block,
            order,
            curves,
            adaptive,
            turn_over: None,
        }
    }

    fn curve(&self, name: &str) -> Option<&Curve> {
        let (_, curve) = self.curves.iter().find(|(of, _)| *of == name)?;
        Some(curve)
    }

    fn crossings(&self, one: &str, other: &str) -> Vec<f64> {
        match (self.curve(one), self.curve(other)) {
            (Some(one), Some(other)) => crossings(one, other),
            _ => Vec::new(),
        }
    }

    /// Measures a file whose hit rate changes, if the better way for hits and for misses is known.
    fn turn_over(&self, args: &Args, files: &Files) -> Result<Option<TurnOver>, Problem> {
        let tries = |rate: u32| {
            let beside = self.adaptive.iter().find(|beside| beside.rate == rate)?;
            Some(beside.better == Name::Always.word())
        };
        let (Some(at_hits), Some(at_misses), Order::Random) = (tries(100), tries(0), self.order)
        else {
            return Ok(None);
        };
        let asked = Name::Adaptive.asked();
        turnover::measure(
            files,
            self.block.0,
            (asked, args.common.depth as usize),
            Better { at_hits, at_misses },
            args.common.rounds.seed,
        )
    }

    fn worst(&self) -> Option<&Beside> {
        let worst = |a: &&Beside, b: &&Beside| a.time.median.total_cmp(&b.time.median);
        self.adaptive.iter().max_by(worst)
    }

    fn json(&self) -> Value {
        json!({
            "block": self.block.0,
            "order": self.order.word(),
            "always_never": self.crossings("always", "never"),
            "ask_always": self.crossings("ask", "always"),
            "adaptive": self.adaptive,
            "turn_over": self.turn_over,
        })
    }

    /// The bytes of a read of adaptive that come from the device and from the page cache.
    fn bytes_chart(&self, run: &Run) -> Option<Chart> {
        let point = |(rate, cell): (u32, &Cell)| {
            let adaptive = cell.contender(&Name::Adaptive.word())?;
            let bytes = adaptive.figure("device_bytes_per_op")?;
            Some((f64::from(rate), bytes / 1024.0))
        };
        let device: Curve = cells(run, self.block, self.order)
            .filter_map(point)
            .collect();
        let kib = self.block.0 as f64 / 1024.0;
        let cached = device
            .iter()
            .map(|&(rate, of_device)| (rate, (kib - of_device).max(0.0)));
        let cached = cached.collect();
        let title = "Bytes of a read from cache and device";
        (!device.is_empty()).then(|| Chart {
            name: format!("bytes-{}-{}", self.block, self.order.word()),
            title: format!("{title}, {} {}", self.block, self.order.word()),
            subtitle: format!("contender adaptive, {}", run.machine),
            x: Axis::linear("hit rate in %"),
            y: Axis::linear("KiB per read"),
            lines: vec![
                Line::new("page cache", cached, true),
                Line::new("device", device, true),
            ],
            marks: Vec::new(),
        })
    }

    fn chart(&self, args: &Args, run: &Run, costs: BreakEven) -> Chart {
        let percent = |rate: f64, what: &str| Mark {
            at: 100.0 * rate,
            label: format!("{what} {:.0} %", 100.0 * rate),
        };
        let mut marks = vec![percent(SEED_BREAK_EVEN, "2015, asking or trying:")];
        let trying = costs
            .trying
            .map(|rate| percent(rate, "trying pays, computed:"));
        marks.extend(trying);
        for (one, other) in [("always", "never"), ("ask", "always")] {
            let mark = |rate| percent(rate / 100.0, &format!("{one} = {other}:"));
            marks.extend(self.crossings(one, other).into_iter().map(mark));
        }
        let line = |(name, points): &(String, Curve)| {
            Line::new(name, points.clone(), *name != Name::Adaptive.word())
        };
        Chart {
            name: format!("hitrate-{}-{}", self.block, self.order.word()),
            title: format!("Time per read, {} {}", self.block, self.order.word()),
            subtitle: format!(
                "callers {}, depth {}, rounds {}, {}",
                callers(),
                args.common.depth,
                args.common.rounds.count(),
                run.machine
            ),
            x: Axis::linear("hit rate in %"),
            y: Axis::log("microseconds"),
            lines: self.curves.iter().map(line).collect(),
            marks,
        }
    }
}

/// The cells of one curve, with their hit rates.
fn cells(run: &Run, block: Size, order: Order) -> impl Iterator<Item = (u32, &Cell)> {
    run.cells.iter().filter_map(move |cell| {
        let of = &cell.parameters;
        let is_of_curve = of["block"] == block.0 && of["order"] == order.word();
        let rate = of["rate"].as_u64().filter(|_| is_of_curve)?;
        Some((rate as u32, cell))
    })
}

/// Compares adaptive with the better of always and never, if all three have rounds.
fn beside(rate: u32, cell: &Cell) -> Option<Beside> {
    let of = |name: Name| {
        let contender = cell.contender(&name.word())?;
        Some((contender, contender.figure("us_per_op")?))
    };
    let (always, never) = (of(Name::Always)?, of(Name::Never)?);
    let better = if always.1 <= never.1 {
        always.0
    } else {
        never.0
    };
    let (adaptive, _) = of(Name::Adaptive)?;
    let ratio = Ratio::of(adaptive, better, &["us_per_op", "cpu_us_per_op"])?;
    Some(Beside {
        rate,
        better: better.name.clone(),
        time: *ratio.figures.get("us_per_op")?,
        cpu: ratio.figures.get("cpu_us_per_op")?.median,
    })
}
