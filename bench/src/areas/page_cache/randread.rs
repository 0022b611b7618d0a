//! `nowait-bench randread`: random reads of a cold file, many in flight. This is the test with
//! which asynchronous buffered reads of io_uring were proposed (4K reads of 4G on ext4, depth 32).

use std::process::ExitCode;

use clap::ValueEnum;
use nowait::Mode;
use nowait::engine::Backend;

use crate::contenders::future::Asked;
use crate::contenders::local::Refill;
use crate::contenders::{blocking, fio, future, local};
use crate::harness::contender::{Fit, Named, Word};
use crate::harness::latencies;
use crate::harness::plan::{Plan, Reader, Way, Work};
use crate::harness::settings::{Common, check_blocks};
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
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

    /// The size of one read
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub block: Size,

    /// How many files to read; with --file PATH they are PATH-0, PATH-1, …
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub files: u32,

    /// The contenders [default: preadv, threads, uring, nowait and local, if available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    pub contenders: Vec<Name>,
}

const DEFAULT: [Name; 5] = [
    Name::Preadv,
    Name::Threads,
    Name::Uring,
    Name::Nowait,
    Name::Local,
];

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// A loop of pread(2): one read at a time
    Pread,
    /// A loop of preadv(2): one read at a time
    Preadv,
    /// nowait's futures on worker threads
    Threads,
    /// nowait's futures on an io_uring ring
    Uring,
    /// nowait's futures with the default options
    Nowait,
    /// nowait's futures in strict mode: the calling thread never waits for the device
    NowaitStrict,
    /// nowait's LocalEngine: batches, which the reading thread submits
    Local,
    /// fio with its engine io_uring
    #[value(name = "fio-io_uring")]
    FioIoUring,
    /// fio with its engine psync: one read at a time
    FioPsync,
    /// fio with its engine posixaio
    FioPosixaio,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        matches!(
            self,
            Name::Threads | Name::Uring | Name::Nowait | Name::NowaitStrict | Name::Local
        )
    }
}

impl Name {
    fn asked(self) -> Asked {
        match self {
            Name::Threads => Asked {
                backend: Some(Backend::Threads),
                ..Asked::default()
            },
            Name::Uring => Asked {
                backend: Some(Backend::Uring),
                ..Asked::default()
            },
            Name::NowaitStrict => Asked {
                mode: Mode::Strict,
                ..Asked::default()
            },
            _ => Asked::default(),
        }
    }

    fn way(self) -> Way {
        let asked = self.asked();
        match self {
            Name::Pread => Box::new(blocking::pread),
            Name::Preadv => Box::new(blocking::preadv),
            Name::Threads | Name::Uring | Name::Nowait | Name::NowaitStrict => {
                Box::new(move |turn| future::many(turn, asked))
            }
            Name::Local => Box::new(|turn| local::batches(turn, Refill::Always)),
            Name::FioIoUring => fio::way("io_uring"),
            Name::FioPsync => fio::way("psync"),
            Name::FioPosixaio => fio::way("posixaio"),
        }
    }

    fn fits(self) -> Fit {
        match self {
            Name::Pread | Name::Preadv | Name::Local => Fit::Yes,
            Name::Threads | Name::Uring | Name::Nowait | Name::NowaitStrict => {
                self.asked().fits(&self.word())
            }
            Name::FioIoUring => fio::fits("io_uring"),
            Name::FioPsync => fio::fits("psync"),
            Name::FioPosixaio => fio::fits("posixaio"),
        }
    }
}

/// Measures the reads and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    check_blocks(&[args.block], args.common.depth)?;
    let mut plan = Plan {
        shares: vec![1; args.files as usize],
        bases: &["preadv", "pread"],
        views: &[View::DEVICE, View::TIMES],
        charts: Some(latencies::charts),
        ..Plan::new("randread", &args.common, stop)?
    };
    let names = plan
        .bench
        .choose_of(&args.contenders, &DEFAULT, Name::fits)?;
    let readers = names.iter().map(|name| Reader::new(name, name.way()));
    plan.add(Work::only(args.block.0), readers);
    plan.conduct()
}
