//! `nowait-bench cached`: the cost of a read that the page cache can serve.

use clap::ValueEnum;
use serde::Serialize;

use crate::contenders::future::Asked;
use crate::contenders::local::Refill;
use crate::contenders::{blocking, future, local};
use crate::harness::cache::Cache;
use crate::harness::contender::{Cell, Contender, Fit, Label, Way, once_each};
use crate::harness::latencies;
use crate::harness::offsets::Order;
use crate::harness::plan::Plan;
use crate::harness::settings::{Common, check_blocks};
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;

/// The cost of a hit: random reads of a file that is in the page cache
///
/// The rate is that of whole turns. Latencies and stalls are those of one read in 64, for every
/// contender alike, since a timer around each read would change the result. A plain loop without this
/// program checks the ratios, which agree within 3 % on a quiet machine:
/// cargo run --release --example hit_loop -- FILE
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

    /// The contenders
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["pread", "preadv2", "nowait", "nowait-future", "local-1", "local"])]
    pub contenders: Vec<Name>,
}

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// pread(2)
    Pread,
    /// preadv2(2) with RWF_NOWAIT, by system call
    Preadv2,
    /// nowait's blocking call
    Nowait,
    /// nowait's future: polled once, and awaited only if it is not ready then
    NowaitFuture,
    /// nowait's future, with copies of any length in the calling thread (copy_limit)
    NowaitCopies,
    /// nowait's LocalEngine, one read after the other
    #[value(name = "local-1")]
    #[serde(rename = "local-1")]
    Local1,
    /// nowait's LocalEngine, in batches of --depth
    Local,
}

impl Name {
    fn word(self) -> &'static str {
        match self {
            Name::Pread => "pread",
            Name::Preadv2 => "preadv2",
            Name::Nowait => "nowait",
            Name::NowaitFuture => "nowait-future",
            Name::NowaitCopies => "nowait-copies",
            Name::Local1 => "local-1",
            Name::Local => "local",
        }
    }

    fn way(self) -> Way {
        match self {
            Name::Pread => Box::new(blocking::pread),
            Name::Preadv2 => Box::new(blocking::preadv2),
            Name::Nowait => Box::new(blocking::nowait),
            Name::NowaitFuture | Name::NowaitCopies => {
                Box::new(move |turn| future::single(turn, self.asked()))
            }
            Name::Local1 => Box::new(local::one_by_one),
            Name::Local => Box::new(|turn| local::batches(turn, Refill::Whole)),
        }
    }

    fn fits(self) -> Fit {
        match self {
            Name::NowaitFuture | Name::NowaitCopies => self.asked().fits(self.word()),
            _ => Fit::Yes,
        }
    }

    fn asked(self) -> Asked {
        Asked {
            copy_limit: (self == Name::NowaitCopies).then_some(usize::MAX),
            ..Asked::default()
        }
    }
}

impl Args {
    /// The plan of the measurement.
    pub fn plan(&self) -> Result<Plan<'_>, Problem> {
        let most = self.threads.iter().max().copied().unwrap_or(1);
        check_blocks(&self.block, self.common.depth * most)?;
        if self.common.drop_caches {
            return Err(Problem::Usage(
                "--drop-caches does not fit an area of cached reads: leave it out".into(),
            ));
        }
        let names = once_each(&self.contenders);
        for name in &names {
            if let Fit::No(why) = name.fits() {
                return Err(Problem::Failed(why));
            }
        }
        let mut cells = Vec::new();
        for Size(block) in once_each(&self.block) {
            for threads in once_each(&self.threads) {
                let contenders = names.iter().map(|name| Contender {
                    name: name.word(),
                    ours: !matches!(name, Name::Pread | Name::Preadv2),
                    way: name.way(),
                });
                cells.push(Cell {
                    label: Label {
                        block: Some(block),
                        threads: Some(threads as usize),
                        ..Label::default()
                    },
                    contenders: contenders.collect(),
                    block,
                    threads: threads as usize,
                    state: None,
                });
            }
        }
        Ok(Plan {
            bench: "cached",
            common: &self.common,
            shares: vec![1],
            blocks: self.block.iter().map(|b| b.0).collect(),
            cache: Cache::Warm,
            order: Order::Any,
            timed: 64,
            cells,
            bases: &["pread"],
            views: &[View::MEMORY],
            charts: Some(latencies::charts),
            notes: Vec::new(),
        })
    }
}
