//! `nowait-bench randread`: random reads of a cold file, many in flight. This is the test with
//! which asynchronous buffered reads of io_uring were proposed (4K reads of 4G on ext4, depth 32).

use std::process::ExitCode;

use clap::ValueEnum;
use nowait::engine::Backend;

use crate::contenders::future::Asked;
use crate::contenders::local::Refill;
use crate::contenders::{blocking, future, local};
use crate::harness::contender::{Contenders, Fit, Named, Word};
use crate::harness::latencies;
use crate::harness::plan::{Plan, Work};
use crate::harness::round::Round;
use crate::harness::settings::Common;
use crate::harness::turn::Turn;
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// Random reads of a cold file, many in flight: preadv, threads, io_uring and nowait side by side
///
/// The original test, 4 GiB in 4 KiB reads at depth 32, is `--size 4G --ops 1048576`. No block is
/// read again before all blocks were read, so no read is served by an earlier one.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("1G")))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    contenders: Contenders<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// A loop of preadv(2): one read at a time
    Preadv,
    /// nowait's futures on worker threads
    Threads,
    /// nowait's futures on an io_uring ring
    Uring,
    /// nowait's futures with the default options
    Nowait,
    /// nowait's LocalEngine: batches, which the reading thread submits
    Local,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self != Name::Preadv
    }
}

impl Name {
    /// The options of the engine, for contenders that are futures.
    fn asked(self) -> Option<Asked> {
        let backend = match self {
            Name::Preadv | Name::Local => return None,
            Name::Threads => Some(Backend::Threads),
            Name::Uring => Some(Backend::Uring),
            Name::Nowait => None,
        };
        Some(Asked {
            backend,
            ..Asked::default()
        })
    }

    fn play(self, turn: &Turn<'_>) -> Result<Round, Problem> {
        match (self, self.asked()) {
            (_, Some(asked)) => future::many(turn, asked),
            (Name::Local, _) => local::batches(turn, Refill::Always),
            _ => blocking::preadv(turn),
        }
    }

    fn fits(self) -> Fit {
        self.asked()
            .map_or(Fit::Yes, |asked| asked.fits(&self.word()))
    }
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let mut plan = Plan {
        bases: &["preadv"],
        views: &[View::DEVICE, View::TIMES],
        charts: Some(latencies::charts),
        ..Plan::new("randread", &args.common, stop)
    };
    let names = plan.bench.choose(&args.contenders.names, Name::fits)?;
    plan.add(Work::only(4096), names);
    plan.conduct(|name, turn, _| name.play(turn))
}
