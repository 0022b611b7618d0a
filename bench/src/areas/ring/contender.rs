//! The contenders, and their availability.

use std::io;

use clap::ValueEnum;

use super::task::{Done, Task};
use super::{bare, engine};
use crate::contenders::local;
use crate::harness::contender::{Fit, Named, Word};

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait's LocalEngine
    Nowait,
    /// The crate io-uring: a ring without an engine
    IoUring,
    /// liburing, in C
    Liburing,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self == Name::Nowait
    }
}

impl Name {
    /// Returns if the contender is available in this build and on this kernel.
    pub fn fits(self) -> Fit {
        match self {
            Name::Nowait => local::fits(&self.word()),
            Name::Liburing if cfg!(not(feature = "liburing")) => Fit::No(
                "this build has no liburing: install a C compiler and liburing-dev, and build \
                 nowait-bench with --features liburing"
                    .into(),
            ),
            Name::IoUring | Name::Liburing => match bare::ring(1) {
                Ok(_) => Fit::Yes,
                Err(e) => Fit::No(format!("io_uring_setup(2) failed: {e}")),
            },
        }
    }

    /// Reads for a turn.
    pub fn read(self, task: &Task) -> io::Result<Done> {
        match self {
            Name::Nowait => engine::read(task),
            Name::IoUring => bare::read(task),
            #[cfg(feature = "liburing")]
            Name::Liburing => super::liburing::read(task),
            #[cfg(not(feature = "liburing"))]
            Name::Liburing => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
