//! `nowait-bench hitrate`: the cost of a read at each hit rate, if the page cache is tried always, never,
//! after asking for residency, in strict mode, and as the library decides.
//!
//! # The keys of `findings` in its JSON (keys may be added)
//! ```text
//! "break_even": f | null,             hit rate from which trying pays, computed from the costs that
//!                                     doctor measures on this machine (one read at a time)
//! "ask_first_break_even": f | null,   hit rate from which trying beats asking first, computed too
//! "seed_break_even": 0.3,             ask_first_break_even on the kernel list in 2015
//! "curves": [{"block", "order",
//!             "always_never": [f],    hit rates at which the two curves cross
//!             "ask_always": [f],
//!             "adaptive": [{"rate", "better", "time", "low95", "high95", "cpu"}],
//!             "turn_over": {"to_misses", "to_hits", "of"} | null}]
//! ```
//! `adaptive` is adaptive's time per read divided by that of the better of always and never
//! (`better`), at each rate: the median of the ratios within rounds, and its range. `cpu` is the median
//! of the ratios of processor time. `turn_over` is the number of reads after which adaptive decides
//! like the better of the two (9 of 10 decisions in a window of 100) when the hit rate of a file falls
//! from 100 % to 0, and rises again; null: not within `of` reads.

use std::process::ExitCode;

use clap::ValueEnum;
use nowait::Mode;
use nowait::engine::Backend;
use nowait::read::NowaitPolicy;
use serde_json::{Map, Value, json};

use super::crossing::{Curve, crossings};
use super::turnover::{self, Better, TurnOver};
use crate::contenders::future::{self, Asked};
use crate::harness::cache::Cache;
use crate::harness::contender::{Cell, Contender, Fit, Label, Way, once_each};
use crate::harness::interval::{Interval, middle};
use crate::harness::offsets;
use crate::harness::plan::{Measured, Plan, measure};
use crate::harness::plot::{Axis, Chart, Line, Mark, Stroke};
use crate::harness::round::Round;
use crate::harness::run::FEWEST;
use crate::harness::settings::{Common, backend, check_blocks};
use crate::harness::table::{Entry, Table};
use crate::harness::view::View;
use nowait_cli::doctor::{self, BreakEven, SEED_BREAK_EVEN};
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The cost of a read at each hit rate: trying the page cache always, never, and as nowait decides
///
/// Before each turn the file is evicted, and then the blocks that will be hits are read.
/// Each block is read once. With --advice random there is no readahead, so the hit rate is exact.
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

    /// The contenders
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["always", "never", "ask", "strict", "adaptive"])]
    contenders: Vec<Name>,

    /// How many threads read, each with --depth reads in flight [default: the number of processors].
    /// With fewer threads a processor is idle, so that work of the engine's workers seems to cost less
    /// than it does
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    callers: Option<u32>,

    /// The backend of the engine: uring or threads [default: the library's choice]
    #[arg(long, value_parser = backend)]
    backend: Option<Backend>,
}

/// The order of a turn's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Each block once, in a random order
    Random,
    /// Each block once, from the first one on
    Linear,
}

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Every read tries the page cache in the calling thread
    Always,
    /// No read tries the page cache: all go to the engine
    Never,
    /// The calling thread asks for residency (cachestat(2)). It reads cached blocks with pread(2) and
    /// gives the others to the engine
    Ask,
    /// nowait's strict mode: asks for residency, and tries blocks that are cached
    Strict,
    /// nowait's default: decides by the history of the file
    Adaptive,
}

/// The text after the help.
pub const AFTER: &str = "\
All contenders are futures on a shared engine. --callers threads poll them, with --depth in flight each.
Contenders take turns within each round, at the same places and with the same blocks cached. The last table
has the hit rates at which curves cross, the ratio of adaptive's time to that of the better of always and
never, and the number of reads after which adaptive follows a file that changes from hits to misses, and
back. Ctrl-C ends the bench and prints what was measured; a second one ends the program at once.

JSON (--json): the shape of all areas (nowait-bench --help); the cells' parameters are \"block\", \"order\" and
\"rate\", and \"findings\" has \"break_even\", \"ask_first_break_even\", \"seed_break_even\", and \"curves\":
[{\"block\", \"order\", \"always_never\": [rates], \"ask_always\": [rates], \"adaptive\": [{\"rate\",
\"better\", \"time\", \"low95\", \"high95\", \"cpu\"}], \"turn_over\": {\"to_misses\", \"to_hits\", \"of\"} | null}].

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

impl Order {
    fn word(self) -> &'static str {
        match self {
            Order::Random => "random",
            Order::Linear => "linear",
        }
    }

    fn places(self) -> offsets::Order {
        match self {
            Order::Random => offsets::Order::Once,
            Order::Linear => offsets::Order::Rising,
        }
    }
}

impl Name {
    fn word(self) -> &'static str {
        match self {
            Name::Always => "always",
            Name::Never => "never",
            Name::Ask => "ask",
            Name::Strict => "strict",
            Name::Adaptive => "adaptive",
        }
    }

    fn asked(self, backend: Option<Backend>) -> Asked {
        let asked = Asked {
            backend,
            ..Asked::default()
        };
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
    fn plan(&self) -> Result<Plan<'_>, Problem> {
        check_blocks(&self.block, self.common.depth)?;
        if self.common.drop_caches {
            return Err(Problem::Usage(
                "--drop-caches does not fit an area in which a part of the file is cached: leave it out".into(),
            ));
        }
        let names = once_each(&self.contenders);
        let mut notes = Vec::new();
        for name in &names {
            match name.asked(self.backend).fits(name.word()) {
                Fit::Yes => {}
                Fit::With(note) => notes.push(note),
                Fit::No(why) => return Err(Problem::Failed(why)),
            }
        }
        let mut rates = once_each(&self.rates);
        rates.sort_unstable();
        let mut cells = Vec::new();
        for (Size(block), order) in self.curves() {
            for &rate in &rates {
                let way = |name: &Name| -> Way {
                    let asked = name.asked(self.backend);
                    Box::new(move |turn| future::many(turn, asked))
                };
                let contenders = names.iter().map(|name| Contender {
                    name: name.word(),
                    ours: true,
                    way: way(name),
                });
                cells.push(Cell {
                    label: Label {
                        block: Some(block),
                        order: Some(order.word()),
                        rate: Some(rate),
                        ..Label::default()
                    },
                    contenders: contenders.collect(),
                    block,
                    threads: self.callers(),
                    state: Some((Cache::Part(rate), order.places())),
                });
            }
        }
        Ok(Plan {
            bench: "hitrate",
            common: &self.common,
            shares: vec![1],
            blocks: self.block.iter().map(|b| b.0).collect(),
            cache: Cache::Part(0),
            order: offsets::Order::Once,
            timed: 1,
            cells,
            bases: &["always"],
            charts: None,
            views: &[View::EACH],
            notes,
        })
    }

    fn callers(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.callers.map_or_else(processors, |n| n as usize)
    }

    /// Every block size in every order.
    fn curves(&self) -> Vec<(Size, Order)> {
        let orders = once_each(&self.order);
        once_each(&self.block)
            .into_iter()
            .flat_map(|block| orders.iter().map(move |order| (block, *order)))
            .collect()
    }
}

/// Measures all hit rates and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let measured = measure(args.plan()?, stop)?;
    let costs = doctor::Bench::prepare(&measured.files.paths[0]).map(|bench| bench.costs().1);
    let costs = costs.map_err(Problem::Failed)?;
    let (mut curves, mut charts) = (Vec::new(), Vec::new());
    for (block, order) in args.curves() {
        let mut found = Found::of(&measured, block, order);
        if !measured.stop.asked() {
            found.turn_over = found.turn_over(args, &measured)?;
        }
        charts.push(found.chart(&measured, costs));
        charts.extend(found.bytes_chart(&measured));
        curves.push(found);
    }
    let mut run = measured.into_run();
    run.tables.push(summary(costs, &curves));
    run.findings = Map::from_iter([
        ("break_even".to_owned(), json!(costs.trying)),
        ("ask_first_break_even".to_owned(), json!(costs.asking)),
        ("seed_break_even".to_owned(), json!(SEED_BREAK_EVEN)),
        (
            "curves".to_owned(),
            curves.iter().map(Found::json).collect(),
        ),
    ]);
    run.charts = charts;
    args.common.output.finish(run)
}

/// The hit rates from which trying the page cache pays, and from which it beats asking for residency
/// first; the ratio of adaptive's time to that of the better of always and never; the number of reads
/// after which adaptive follows a file that turns to misses and back to hits.
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
            let ratio = Interval {
                median: worst.time,
                low95: worst.low95,
                high95: worst.high95,
            };
            let Entry { text, verdict } = Entry::ratio(Some(ratio), false);
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
        "",
        "try from",
        "beats asking from",
        "adaptive x better, at most",
        "to misses",
        "to hits",
    ];
    rows.iter_mut()
        .for_each(|row| row.resize(columns.len(), Entry::default()));
    Table {
        title: "break-even".into(),
        columns: columns.map(str::to_owned).into(),
        rows,
        ..Table::default()
    }
}

/// The findings for one block size in one order.
struct Found {
    block: Size,
    order: Order,
    /// Microseconds per read, by contender.
    curves: Vec<(&'static str, Curve)>,
    adaptive: Vec<Beside>,
    turn_over: Option<TurnOver>,
}

/// The comparison of adaptive with the better of always and never, at one hit rate.
struct Beside {
    rate: u32,
    better: &'static str,
    /// Adaptive's time divided by that of the better one: the median over rounds, and its range.
    time: f64,
    low95: f64,
    high95: f64,
    /// The median of the ratios of processor time.
    cpu: f64,
}

impl Found {
    fn of(measured: &Measured<'_>, block: Size, order: Order) -> Found {
        let mut curves: Vec<(&'static str, Curve)> = Vec::new();
        let mut adaptive = Vec::new();
        for (rate, cell, of_cell) in cells(measured, block, order) {
            for (contender, rounds) in cell.contenders.iter().zip(of_cell) {
                let Some(cost) = time(rounds) else { continue };
                let point = (f64::from(rate), cost);
                match curves.iter_mut().find(|(name, _)| *name == contender.name) {
                    Some((_, curve)) => curve.push(point),
                    None => curves.push((contender.name, vec![point])),
                }
            }
            let rounds = |name: &str| {
                let at = cell.contenders.iter().position(|c| c.name == name)?;
                Some(&of_cell[at][..])
            };
            adaptive.extend(beside(rate, rounds));
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
    fn turn_over(&self, args: &Args, measured: &Measured<'_>) -> Result<Option<TurnOver>, Problem> {
        let tries = |rate: u32| {
            let beside = self.adaptive.iter().find(|beside| beside.rate == rate)?;
            Some(beside.better == Name::Always.word())
        };
        let (Some(at_hits), Some(at_misses), Order::Random) = (tries(100), tries(0), self.order)
        else {
            return Ok(None);
        };
        let asked = Name::Adaptive.asked(args.backend);
        turnover::measure(
            &measured.files,
            self.block.0,
            (asked, args.common.depth as usize),
            Better { at_hits, at_misses },
            args.common.rounds.seed,
        )
    }

    fn worst(&self) -> Option<&Beside> {
        self.adaptive
            .iter()
            .max_by(|a, b| a.time.total_cmp(&b.time))
    }

    fn json(&self) -> Value {
        let adaptive = self.adaptive.iter().map(|beside| {
            json!({"rate": beside.rate, "better": beside.better, "time": beside.time,
                   "low95": beside.low95, "high95": beside.high95, "cpu": beside.cpu})
        });
        json!({
            "block": self.block.0,
            "order": self.order.word(),
            "always_never": self.crossings("always", "never"),
            "ask_always": self.crossings("ask", "always"),
            "adaptive": adaptive.collect::<Vec<_>>(),
            "turn_over": self.turn_over,
        })
    }

    /// The bytes of a read of adaptive that come from the device and from the page cache.
    fn bytes_chart(&self, measured: &Measured<'_>) -> Option<Chart> {
        let block = self.block.0 as f64;
        let mut device: Curve = Vec::new();
        for (rate, cell, of_cell) in cells(measured, self.block, self.order) {
            let name = |c: &Contender| c.name == Name::Adaptive.word();
            let rounds = &of_cell[cell.contenders.iter().position(name)?];
            let bytes = rounds.iter().filter_map(|round| round.device_bytes_per_op);
            let mut bytes: Vec<f64> = bytes.collect();
            if !bytes.is_empty() {
                device.push((f64::from(rate), middle(&mut bytes) / 1024.0));
            }
        }
        let cached = device.iter();
        let cached = cached.map(|&(rate, kib)| (rate, (block / 1024.0 - kib).max(0.0)));
        let line = |name: &str, points: Curve| Line {
            name: name.into(),
            points,
            stroke: Stroke::Solid,
        };
        let lines = vec![line("page cache", cached.collect()), line("device", device)];
        (!lines[0].points.is_empty()).then(|| Chart {
            name: format!("bytes-{}-{}", self.block, self.order.word()),
            title: format!(
                "Bytes of a read from cache and device, {} {}",
                self.block,
                self.order.word()
            ),
            subtitle: format!("contender adaptive, {}", measured.machine),
            x: Axis {
                label: "hit rate in %".into(),
                log: false,
            },
            y: Axis {
                label: "KiB per read".into(),
                log: false,
            },
            lines,
            marks: Vec::new(),
        })
    }

    fn chart(&self, measured: &Measured<'_>, costs: BreakEven) -> Chart {
        let percent = |rate: f64, what: &str| Mark {
            at: 100.0 * rate,
            label: format!("{what} {:.0} %", 100.0 * rate),
        };
        let mut marks = vec![percent(SEED_BREAK_EVEN, "2015, asking or trying:")];
        marks.extend(
            costs
                .trying
                .map(|rate| percent(rate, "trying pays, computed:")),
        );
        for (one, other) in [("always", "never"), ("ask", "always")] {
            let crossings = self.crossings(one, other);
            marks.extend(
                crossings
                    .iter()
                    .map(|rate| percent(rate / 100.0, &format!("{one} = {other}:"))),
            );
        }
        let common = measured.plan.common;
        Chart {
            name: format!("hitrate-{}-{}", self.block, self.order.word()),
            title: format!("Time per read, {} {}", self.block, self.order.word()),
            subtitle: format!(
                "callers {}, depth {}, rounds {}, {}",
                measured.plan.cells[0].threads,
                common.depth,
                common.rounds.count(),
                measured.machine
            ),
            x: Axis {
                label: "hit rate in %".into(),
                log: false,
            },
            y: Axis {
                label: "microseconds".into(),
                log: true,
            },
            lines: self
                .curves
                .iter()
                .map(|(name, points)| Line {
                    name: (*name).into(),
                    points: points.clone(),
                    stroke: match *name == Name::Adaptive.word() {
                        true => Stroke::Dashed,
                        false => Stroke::Solid,
                    },
                })
                .collect(),
            marks,
        }
    }
}

/// The cells of one curve: hit rate, cell, `[contender][round]`.
fn cells<'m>(
    measured: &'m Measured<'_>,
    block: Size,
    order: Order,
) -> impl Iterator<Item = (u32, &'m Cell, &'m Vec<Vec<Round>>)> {
    let cells = measured.plan.cells.iter().zip(&measured.rounds);
    cells.filter_map(move |(cell, rounds)| {
        let label = cell.label;
        let is_of_curve = label.block == Some(block.0) && label.order == Some(order.word());
        Some((label.rate.filter(|_| is_of_curve)?, cell, rounds))
    })
}

/// Microseconds per read, the median over rounds.
fn time(rounds: &[Round]) -> Option<f64> {
    let mut each: Vec<f64> = rounds.iter().map(|r| 1e6 / r.ops_per_s).collect();
    (!each.is_empty()).then(|| middle(&mut each))
}

/// Compares adaptive with the better of always and never, if all three have rounds.
fn beside<'r>(rate: u32, rounds: impl Fn(&str) -> Option<&'r [Round]>) -> Option<Beside> {
    let (always, never) = (Name::Always.word(), Name::Never.word());
    let better = if time(rounds(always)?)? <= time(rounds(never)?)? {
        always
    } else {
        never
    };
    let adaptive = rounds(Name::Adaptive.word())?;
    let adaptive_in = |figure: fn(&Round) -> f64| -> Option<Interval> {
        let better = rounds(better)?;
        let each = adaptive.iter().zip(better);
        let mut each: Vec<f64> = each
            .map(|(a, b)| figure(a) / figure(b).max(1e-12))
            .collect();
        (each.len() >= FEWEST).then(|| Interval::of(&mut each))
    };
    let time = adaptive_in(|round| round.us_per_op)?;
    let cpu = adaptive_in(|round| round.cpu_us_per_op)?;
    Some(Beside {
        rate,
        better,
        time: time.median,
        low95: time.low95,
        high95: time.high95,
        cpu: cpu.median,
    })
}
