//! The metadata of a file that a response needs.

use std::io;
use std::time::SystemTime;

use nowait::op::Statx;
use nowait::{Engine, StatxMask};
use tower_http::services::fs;

/// The fields that `ServeDir` reads.
pub(crate) const MASK: StatxMask = StatxMask::TYPE
    .union(StatxMask::MTIME)
    .union(StatxMask::SIZE);

/// The type, the size and the time of the last change of a file, as a [`nowait::Metadata`].
#[derive(Clone, Copy, Debug)]
pub struct Metadata(nowait::Metadata);

impl Metadata {
    /// Asks in the calling thread if that does not block, and else in a worker.
    pub(crate) async fn ask(statx: Statx) -> io::Result<Metadata> {
        if let Some(known) = statx.try_cached() {
            return known.map(Metadata).map_err(as_std);
        }
        let done = Engine::process()?.run(statx).await;
        done.result.map_err(as_std)?;
        let metadata = done.op.metadata();
        metadata
            .map(Metadata)
            .ok_or_else(|| io::ErrorKind::Other.into())
    }
}

/// The error as the standard library has it: `ServeDir` asks for its errno.
fn as_std(error: nowait::Error) -> io::Error {
    let errno = error.errno().map(io::Error::from_raw_os_error);
    errno.unwrap_or_else(|| error.into())
}

impl fs::Metadata for Metadata {
    fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.0.modified()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}
