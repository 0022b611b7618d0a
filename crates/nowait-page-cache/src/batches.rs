//! The batches of a walk, listed by a thread of their own. The calling thread does not wait for the
//! device, so that it can handle a stop request while a device hangs. If the process may not have
//! another thread, the calling thread lists.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use nowait::Walk;
use nowait::scan::Batch;
use nowait::scan::Canceller;
use nowait::walk::{Options, Stats};

use crate::reporter::{Reporter, report_error};
use crate::stop::{LOOK, Stop};

/// The maximum number of batches that are listed and not yet taken.
const MAX_PENDING: usize = 8;

/// The batches of a walk. Dropping them ends the walk.
pub struct Batches<'a> {
    listing: Listing,
    canceller: Canceller,
    stop: &'a Stop,
    stats: Stats,
}

/// The thread that lists.
enum Listing {
    Other(Receiver<(Option<nowait::Result<Batch>>, Stats)>),
    /// The calling thread.
    Own(Walk),
}

impl<'a> Batches<'a> {
    /// Begins the walk of a given root. Reports a failure and returns `None` if that is not
    /// possible.
    pub fn open(
        root: &Path,
        options: &Options,
        reporter: &dyn Reporter,
        stop: &'a Stop,
    ) -> Option<Batches<'a>> {
        let walk = options
            .blocking_open(root)
            .map_err(|error| report_error(reporter, root, true, &error))
            .ok()?;
        Some(Batches::of(walk, stop))
    }

    /// The batches of a walk that was begun.
    pub(crate) fn of(walk: Walk, stop: &'a Stop) -> Batches<'a> {
        let canceller = walk.canceller();
        let (to, listed) = mpsc::sync_channel(MAX_PENDING);
        // A thread that is not started does not give back what it owns, so it is sent the walk.
        let (hand_over, handed_over) = mpsc::sync_channel::<Walk>(1);
        let list = move || {
            let Ok(mut walk) = handed_over.recv() else {
                return;
            };
            loop {
                let batch = walk.blocking_batch();
                let is_last = batch.is_none();
                // Fails if the batches were dropped.
                if to.send((batch, walk.stats())).is_err() || is_last {
                    return;
                }
            }
        };
        let listing = match thread::Builder::new().spawn(list) {
            Ok(_) => {
                // Cannot fail: the thread waits for it.
                let _ = hand_over.send(walk);
                Listing::Other(listed)
            }
            Err(_) => Listing::Own(walk),
        };
        Batches {
            listing,
            canceller,
            stop,
            stats: Stats::default(),
        }
    }

    /// The work of the walk up to the last batch that was taken.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

impl Iterator for Batches<'_> {
    type Item = nowait::Result<Batch>;

    /// Waits for the next batch. Returns `None` at the end of the walk, and after a stop request.
    fn next(&mut self) -> Option<nowait::Result<Batch>> {
        while !self.stop.asked() {
            let listed = match &mut self.listing {
                Listing::Other(listed) => listed,
                Listing::Own(walk) => {
                    let batch = walk.blocking_batch();
                    self.stats = walk.stats();
                    return batch;
                }
            };
            match listed.recv_timeout(LOOK) {
                Ok((batch, stats)) => {
                    self.stats = stats;
                    return batch;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

impl Drop for Batches<'_> {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}
