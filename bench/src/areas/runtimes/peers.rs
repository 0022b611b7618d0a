//! The work of each peer, one file each: opening the file, and one operation.

mod blocking;
mod compio;
mod nowait;
mod on_threads;
mod on_tokio;
mod positional;
mod pread;
mod stream;
mod tokio_uring;

use std::io;

use super::gate::Gate;
use super::peer::Peer;

/// Runs all tasks of a turn and returns when they are done.
pub fn work(gate: &'static Gate) -> io::Result<()> {
    match gate.turn.peer {
        Peer::Pread => pread::work(gate),
        Peer::SpawnBlocking => blocking::work(gate),
        Peer::TokioFs | Peer::TokioFsRing => stream::tokio_fs(gate),
        Peer::TokioUring => tokio_uring::work(gate),
        Peer::Compio => compio::work(gate),
        Peer::Nowait | Peer::NowaitStrict | Peer::NowaitThreads => nowait::positional(gate),
        Peer::NowaitStream => nowait::stream(gate),
    }
}
