//! The contenders, their options, and the contender of fio that each is compared with.

use clap::ValueEnum;
use nowait_cli::problem::Problem;

use super::aio;
use super::engine::Kind;
use super::load::Load;
use super::psync::Psync;
use crate::contenders::fio::{self, Fio};
use crate::harness::contender::{Fit, Named};
use crate::harness::round::Round;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait's LocalEngine with the default options
    Local,
    /// LocalEngine with registered files and buffers
    LocalFixed,
    /// LocalEngine with registered files and buffers, and a kernel thread for submissions (SQPOLL)
    LocalSqpoll,
    /// nowait's Engine: one thread submits, another one drives the ring
    Shared,
    /// Linux's old asynchronous interface: io_submit(2), io_getevents(2)
    Libaio,
    /// A loop of pread(2): one read at a time
    Psync,
    /// fio with its engine io_uring
    #[value(name = "fio-io_uring")]
    FioIoUring,
    /// fio with its engine io_uring, registered files and buffers
    #[value(name = "fio-io_uring-fixed")]
    FioIoUringFixed,
    /// fio with its engine io_uring, registered files and buffers, and SQPOLL
    #[value(name = "fio-io_uring-sqpoll")]
    FioIoUringSqpoll,
    /// fio with its engine libaio
    FioLibaio,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        self.kind().is_some()
    }
}

impl Name {
    /// The contender of fio with the same options.
    pub fn beside(self) -> Option<Name> {
        match self {
            Name::Local => Some(Name::FioIoUring),
            Name::LocalFixed => Some(Name::FioIoUringFixed),
            Name::LocalSqpoll => Some(Name::FioIoUringSqpoll),
            Name::Libaio => Some(Name::FioLibaio),
            _ => None,
        }
    }

    /// The number of reads in flight, at most `depth`.
    pub fn depth(self, depth: usize) -> usize {
        if self == Name::Psync { 1 } else { depth }
    }

    fn kind(self) -> Option<Kind> {
        let kind = |fixed, sqpoll, shared| Kind {
            fixed,
            sqpoll,
            shared,
        };
        match self {
            Name::Local => Some(kind(false, false, false)),
            Name::LocalFixed => Some(kind(true, false, false)),
            Name::LocalSqpoll => Some(kind(true, true, false)),
            Name::Shared => Some(kind(false, false, true)),
            _ => None,
        }
    }

    /// The contender of fio; `None` if it is not fio.
    pub fn fio(self) -> Option<Fio> {
        const FIXED: [&str; 2] = ["--registerfiles=1", "--fixedbufs=1"];
        const SQPOLL: [&str; 3] = [FIXED[0], FIXED[1], "--sqthread_poll=1"];
        match self {
            Name::FioIoUring => Some(Fio::new("io_uring", &[])),
            Name::FioIoUringFixed => Some(Fio::new("io_uring", &FIXED)),
            Name::FioIoUringSqpoll => Some(Fio::new("io_uring", &SQPOLL)),
            Name::FioLibaio => Some(Fio::new("libaio", &[])),
            _ => None,
        }
    }

    /// Returns if the contender is available for the files of a turn.
    pub fn fits(self, load: &Load<'_>) -> Fit {
        match (self.kind(), self.fio()) {
            (Some(kind), _) => kind.fits(load),
            (_, Some(fio)) => fio::fits(fio.engine),
            _ if self == Name::Libaio => aio::fits(),
            _ => Fit::Yes,
        }
    }

    /// Runs one turn.
    pub fn play(self, load: &Load<'_>) -> Result<Round, Problem> {
        match (self, self.kind()) {
            (_, Some(kind)) => load.play(|parts| kind.queue(parts)),
            (Name::Libaio, _) => load.play(aio::Queue::new),
            _ => load.play(Psync::new),
        }
    }
}
