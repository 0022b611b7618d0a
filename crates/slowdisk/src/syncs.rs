//! The requests of fsync(2) that a FUSE filesystem has got, which can be stalled.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The requests of fsync(2).
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    state: Mutex<SyncState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    stalled: Option<PathBuf>,
    paths: Vec<PathBuf>,
}

impl Syncs {
    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stalls the requests for a file from now on, and ends the stall of others.
    pub(crate) fn stall(&self, stalled: Option<PathBuf>) {
        self.lock().stalled = stalled;
        self.changed.notify_all();
    }

    /// The files of the requests, in their order.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.lock().paths.clone()
    }

    /// A request was made for this file. Returns when it is not stalled.
    pub(crate) fn request(&self, path: PathBuf) {
        let mut state = self.lock();
        state.paths.push(path.clone());
        let stalled = |state: &mut SyncState| state.stalled.as_ref() == Some(&path);
        let waited = self.changed.wait_while(state, stalled);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
