//! The contenders, their options, and the contender of fio that each is compared with.

use clap::ValueEnum;

use super::engine::Kind;
use super::load::Load;
use super::{libaio, psync};
use crate::contenders::fio::{self, Fio};
use crate::harness::contender::{Fit, Named};
use crate::harness::files::Files;
use crate::harness::round::Round;
use nowait_cli::problem::Problem;

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait's LocalEngine with the default options
    Local,
    /// LocalEngine with registered files and buffers
    LocalFixed,
    /// LocalEngine with registered files and buffers, polling for completions
    LocalPolled,
    /// LocalEngine with registered files and buffers, and a kernel thread for submissions (SQPOLL)
    LocalSqpoll,
    /// nowait's Engine: one thread submits, another one drives the ring
    Shared,
    /// Linux's old asynchronous interface: io_submit(2), io_getevents(2)
    Libaio,
    /// A loop of pread(2) or pwrite(2): one operation at a time
    Psync,
    /// fio with its engine io_uring
    #[value(name = "fio-io_uring")]
    FioIoUring,
    /// fio with its engine io_uring, registered files and buffers
    #[value(name = "fio-io_uring-fixed")]
    FioIoUringFixed,
    /// fio with its engine io_uring, registered files and buffers, polling for completions
    #[value(name = "fio-io_uring-polled")]
    FioIoUringPolled,
    /// fio with its engine io_uring, registered files and buffers, and SQPOLL
    #[value(name = "fio-io_uring-sqpoll")]
    FioIoUringSqpoll,
    /// fio with its engine libaio
    FioLibaio,
    /// SPDK: always left out, with the reason
    Spdk,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        self.kind().is_some()
    }
}

impl Name {
    /// True if the contender polls for completions.
    pub fn polled(self) -> bool {
        matches!(
            self,
            Name::LocalPolled | Name::FioIoUringPolled | Name::Spdk
        )
    }

    /// The contender of fio with the same options.
    pub fn beside(self) -> Option<Name> {
        match self {
            Name::Local => Some(Name::FioIoUring),
            Name::LocalFixed => Some(Name::FioIoUringFixed),
            Name::LocalPolled => Some(Name::FioIoUringPolled),
            Name::LocalSqpoll => Some(Name::FioIoUringSqpoll),
            Name::Libaio => Some(Name::FioLibaio),
            _ => None,
        }
    }

    /// The number of operations in flight, at most `depth`.
    pub fn depth(self, depth: usize) -> usize {
        if self == Name::Psync { 1 } else { depth }
    }

    fn kind(self) -> Option<Kind> {
        let (fixed, polled) = (true, true);
        let plain = Kind::default();
        match self {
            Name::Local => Some(plain),
            Name::LocalFixed => Some(Kind { fixed, ..plain }),
            Name::LocalPolled => Some(Kind {
                fixed,
                polled,
                ..plain
            }),
            Name::LocalSqpoll => Some(Kind {
                fixed,
                sqpoll: true,
                ..plain
            }),
            Name::Shared => Some(Kind {
                shared: true,
                ..plain
            }),
            _ => None,
        }
    }

    /// The contender of fio; `None` if it is not fio.
    pub fn fio(self) -> Option<Fio> {
        self.options().map(|(engine, _)| Fio::new(engine))
    }

    /// The engine of fio and its special options; `None` if the contender is not fio.
    fn options(self) -> Option<(&'static str, &'static [&'static str])> {
        const FIXED: [&str; 2] = ["--registerfiles=1", "--fixedbufs=1"];
        match self {
            Name::FioIoUring => Some(("io_uring", &[])),
            Name::FioIoUringFixed => Some(("io_uring", &FIXED)),
            Name::FioIoUringPolled => Some(("io_uring", &[FIXED[0], FIXED[1], "--hipri=1"])),
            Name::FioIoUringSqpoll => {
                Some(("io_uring", &[FIXED[0], FIXED[1], "--sqthread_poll=1"]))
            }
            Name::FioLibaio => Some(("libaio", &[])),
            _ => None,
        }
    }

    /// Returns if the contender is available for these files.
    pub fn fits(self, files: &Files, block: u64) -> Fit {
        if let Some(kind) = self.kind() {
            return kind.fits(files, block);
        }
        match self {
            Name::Spdk => Fit::No(
                "it needs an NVMe device without a kernel driver, which this program does not set up".into(),
            ),
            Name::Libaio => libaio::fits(),
            Name::FioIoUringPolled => match Name::LocalPolled.fits(files, block) {
                Fit::No(why) => Fit::No(why),
                Fit::Yes | Fit::With(_) => fio::fits("io_uring"),
            },
            _ => self.options().map_or(Fit::Yes, |(engine, _)| fio::fits(engine)),
        }
    }

    /// Runs one turn.
    pub fn play(self, load: &Load<'_>, fio: Option<&Fio>) -> Result<Round, Problem> {
        if let (Some(fio), Some((_, options))) = (fio, self.options()) {
            let common = fio_options(load);
            let common = common.iter().map(String::as_str);
            let all: Vec<&str> = common.chain(options.iter().copied()).collect();
            return fio.play(&load.turn, &all);
        }
        match (self, self.kind()) {
            (_, Some(kind)) => kind.play(load),
            (Name::Libaio, _) => libaio::play(load),
            _ => psync::play(load),
        }
    }
}

/// The options with which fio does the same as the other contenders.
fn fio_options(load: &Load<'_>) -> Vec<String> {
    let mut options = vec![
        "--direct=1".into(),
        format!("--iodepth_batch={}", load.batch),
        format!("--iodepth_batch_complete_min={}", load.batch),
        format!("--iodepth_batch_complete_max={}", load.turn.depth),
    ];
    match load.write {
        true => options.push("--rw=randwrite".into()),
        false => options.extend(["--rw=randread".into(), "--readonly".into()]),
    }
    options.push(format!("--cpus_allowed={}", load.core));
    if !load.latencies {
        options.push("--gtod_reduce=1".into());
    }
    options
}
