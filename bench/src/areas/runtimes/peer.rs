//! The contenders.

use serde::{Deserialize, Serialize};

use crate::areas::runtimes::cell::Cell;
use crate::harness::contender::Named;

/// A way to use a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Threads that call pread(2) and pwrite(2)
    Pread,
    /// std's read_at and write_at in tokio's spawn_blocking
    SpawnBlocking,
    /// tokio::fs::File: seek, then read or write
    TokioFs,
    /// tokio::fs::File in a build in which tokio reads on its own ring (tokio_unstable)
    TokioFsRing,
    /// tokio-uring: a runtime with a ring on each thread
    TokioUring,
    /// compio: a runtime with a ring on each thread
    Compio,
    /// nowait::tokio::File: read_at and write_at
    Nowait,
    /// nowait::tokio::File in strict mode
    NowaitStrict,
    /// nowait::tokio::File without a ring, on worker threads
    NowaitThreads,
    /// nowait::tokio::File: seek, then read or write, as with tokio::fs
    NowaitStream,
}

impl Named for Peer {
    fn is_ours(&self) -> bool {
        matches!(
            self,
            Peer::Nowait | Peer::NowaitStrict | Peer::NowaitThreads | Peer::NowaitStream
        )
    }
}

impl Peer {
    /// True if the peer takes part in a cell. Strict mode and tokio's ring do not change
    /// writes.
    pub fn takes_part(self, cell: &Cell) -> bool {
        !cell.is_write() || !matches!(self, Peer::NowaitStrict | Peer::TokioFsRing)
    }
}
