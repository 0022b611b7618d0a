//! The contenders: the servers.

use clap::ValueEnum;

use crate::harness::contender::Named;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait::tokio::File, a stream of 64 KiB pieces
    Nowait,
    /// nowait::tokio::read, the whole file
    NowaitRead,
    /// tokio::fs::File, a stream of 64 KiB pieces
    TokioFs,
    /// The whole file in tokio's spawn_blocking, as tokio::fs::read
    SpawnBlocking,
    /// The whole file in the task, which blocks a thread of the runtime
    Blocking,
    /// ServeDir of tower-http
    ServeDir,
    /// ServeDir of tower-http over nowait
    ServeDirNowait,
    /// nginx with `sendfile on` and `aio threads`
    Nginx,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        matches!(self, Name::Nowait | Name::NowaitRead | Name::ServeDirNowait)
    }
}
