//! Scans and walks whose entries are found by workers alone.

use std::task::{Context, Poll, Waker};

use nowait::Result;
use nowait::scan::{DirEntry, Entries};

/// All entries. A future is polled first: the calling thread then does no work.
pub fn by_workers<S>(entries: &mut Entries<S>) -> impl Iterator<Item = Result<DirEntry>> + '_ {
    let mut first = Vec::new();
    match entries.poll_batch(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(batch))) => first.extend((0..).map_while(|at| batch.get(at)).map(Ok)),
        Poll::Ready(Some(Err(error))) => first.push(Err(error)),
        Poll::Ready(None) | Poll::Pending => {}
    }
    first.into_iter().chain(entries)
}

/// All entries: found by workers alone, or first by the calling thread.
pub fn found<S>(
    entries: &mut Entries<S>,
    caller: bool,
) -> Box<dyn Iterator<Item = Result<DirEntry>> + '_> {
    match caller {
        true => Box::new(entries),
        false => Box::new(by_workers(entries)),
    }
}
