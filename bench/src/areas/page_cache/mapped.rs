//! `nowait-bench mapped`: the cost of a read of a mapped file.

use std::process::ExitCode;

use clap::ValueEnum;

use crate::contenders::{blocking, mapped};
use crate::harness::cache::Cache;
use crate::harness::contender::{Contenders, Fit, Named, once_each};
use crate::harness::offsets::Order;
use crate::harness::plan::{Plan, Work};
use crate::harness::round::Round;
use crate::harness::settings::Common;
use crate::harness::turn::Turn;
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// Mapped files: copies and borrowed bytes of a file that is in the page cache
///
/// Copies go into the same buffer again and again. Borrowed bytes are summed up, as numbers of 8
/// bytes, 1024 times for each place that is drawn. All of the file is mapped before a turn begins,
/// and that is not timed.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("16M")),
          mut_arg("seconds", |a| a.default_value("0.2")))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,

    /// The sizes of copies; each is measured
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_values = ["512", "4K"])]
    pub copy: Vec<Size>,

    /// The sizes of borrowed ranges, multiples of 8; each is measured
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_values = ["8", "4K"])]
    pub borrow: Vec<Size>,

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
    /// memmap2: a slice of an ordinary mapping
    Memmap2,
    /// compio: a read by io_uring
    Compio,
    /// nowait's blocking call on the file
    Nowait,
    /// nowait's `Mapping`
    Mapping,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        matches!(self, Name::Nowait | Name::Mapping)
    }
}

impl Name {
    fn copies(self, turn: &Turn<'_>) -> Result<Round, Problem> {
        match self {
            Name::Pread => blocking::pread(turn),
            Name::Preadv2 => blocking::preadv2(turn),
            Name::Memmap2 => mapped::copy_memmap2(turn),
            Name::Compio => mapped::copy_compio(turn),
            Name::Nowait => blocking::nowait(turn),
            Name::Mapping => mapped::copy(turn),
        }
    }

    fn borrows(self, turn: &Turn<'_>) -> Result<Round, Problem> {
        match self {
            Name::Memmap2 => mapped::borrow_memmap2(turn),
            _ => mapped::borrow(turn),
        }
    }

    fn can_borrow(&self) -> bool {
        matches!(self, Name::Memmap2 | Name::Mapping)
    }
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    if let Some(size) = args.borrow.iter().find(|size| size.0 % 8 != 0) {
        return Err(Problem::Usage(format!(
            "--borrow {size} is no multiple of 8"
        )));
    }
    let mut plan = Plan {
        cache: Cache::Warm,
        order: Order::Any,
        timed: 64,
        bases: &["pread", "memmap2"],
        views: &[View::MEMORY],
        ..Plan::new("mapped", &args.common, stop)
    };
    let names = plan.bench.choose(&args.contenders.names, |_| Fit::Yes)?;
    let borrowers = names.iter().copied().filter(Name::can_borrow).collect();
    for (sizes, how, names) in [
        (&args.copy, COPIED, names),
        (&args.borrow, "borrowed", borrowers),
    ] {
        for Size(block) in once_each(sizes) {
            for threads in once_each(&args.threads) {
                let mut work = Work::new(block, threads);
                work.label.order = Some(how.into());
                plan.add(work, names.clone());
            }
        }
    }
    plan.conduct(|name, turn, work| match work.label.order.as_deref() {
        Some(COPIED) => name.copies(turn),
        _ => name.borrows(turn),
    })
}

/// The order of the cells of copies.
const COPIED: &str = "copied";
