//! `nowait-bench cached`: the cost of a read that the page cache can serve.

use std::process::ExitCode;

use clap::ValueEnum;

use crate::contenders::future::Asked;
use crate::contenders::local::Refill;
use crate::contenders::{blocking, future, local};
use crate::harness::cache::Cache;
use crate::harness::contender::{Contenders, Fit, Named, Word, once_each};
use crate::harness::latencies;
use crate::harness::offsets::Order;
use crate::harness::plan::{Plan, Work};
use crate::harness::round::Round;
use crate::harness::settings::Common;
use crate::harness::turn::Turn;
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The cost of a hit: random reads of a file that is in the page cache
///
/// The rate is that of whole turns. Latencies and stalls are those of one read in 64, for every
/// contender alike, since a timer around each read would change the result. A plain loop without
/// this program checks the ratios, which agree within 3 % on a quiet machine: cargo run --release
/// --example hit_loop -- FILE
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("64M")),
          mut_arg("seconds", |a| a.default_value("0.2")))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,

    /// The sizes of one read; each is measured
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',',
          default_values = ["512", "4K", "64K", "1M"])]
    pub block: Vec<Size>,

    /// How many threads read at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["1", "2"],
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Vec<u32>,

    #[command(flatten)]
    contenders: Contenders<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// pread(2)
    Pread,
    /// preadv2(2) with RWF_NOWAIT, by system call
    Preadv2,
    /// nowait's blocking call
    Nowait,
    /// nowait's future: polled once, and awaited only if it is not ready then
    NowaitFuture,
    /// nowait's LocalEngine, one read after the other
    #[value(name = "local-1")]
    Local1,
    /// nowait's LocalEngine, in batches of --depth
    Local,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        !matches!(self, Name::Pread | Name::Preadv2)
    }
}

impl Name {
    fn play(self, turn: &Turn<'_>) -> Result<Round, Problem> {
        match self {
            Name::Pread => blocking::pread(turn),
            Name::Preadv2 => blocking::preadv2(turn),
            Name::Nowait => blocking::nowait(turn),
            Name::NowaitFuture => future::single(turn),
            Name::Local1 => local::one_by_one(turn),
            Name::Local => local::batches(turn, Refill::Whole),
        }
    }

    fn fits(self) -> Fit {
        match self {
            Name::NowaitFuture => Asked::default().fits(&self.word()),
            _ => Fit::Yes,
        }
    }
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let mut plan = Plan {
        cache: Cache::Warm,
        order: Order::Any,
        timed: 64,
        bases: &["pread"],
        views: &[View::MEMORY],
        charts: Some(latencies::charts),
        ..Plan::new("cached", &args.common, stop)
    };
    let names = plan.bench.choose(&args.contenders.names, Name::fits)?;
    for Size(block) in once_each(&args.block) {
        for threads in once_each(&args.threads) {
            plan.add(Work::new(block, threads), names.clone());
        }
    }
    plan.conduct(|name, turn, _| name.play(turn))
}
