//! Evicts one file: counts its cached pages, gives the advice, and counts again.

use std::fs::File;
use std::sync::{Mutex, PoisonError};

use nowait::residency::{Answer, Residency, residency};
use rustix::fs::{Advice, Stat};

use crate::file_ref::OpenError;
use crate::seen_inodes::SeenInodes;

/// The action for each file.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// No action: its pages are only counted.
    Count,
    /// FADV_DONTNEED.
    Evict {
        /// Dirty pages are written first.
        flush: bool,
    },
}

impl Action {
    /// Returns true if the pages are only counted.
    pub fn is_dry_run(self) -> bool {
        matches!(self, Action::Count)
    }
}

/// The result for one file.
pub struct Outcome {
    pub stat: Stat,
    pub before: Answer<Residency>,
    pub after: Answer<Residency>,
    /// True if pages stayed and the filesystem stores its files in memory.
    pub in_memory: bool,
}

/// Evicts a file. Returns `None` if the file was already processed under another name.
pub fn evict(
    file: File,
    stat: Stat,
    action: Action,
    seen: &Mutex<SeenInodes>,
) -> Result<Option<Outcome>, OpenError> {
    // A panic of another thread cannot leave the set inconsistent.
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if !seen.insert(&stat) {
        return Ok(None);
    }
    drop(seen);
    let count = || residency(&file, 0..u64::MAX);
    let before = count()?;
    let after = match action {
        Action::Count => before,
        Action::Evict { flush } => {
            if flush && may_be_dirty(before) {
                rustix::fs::fdatasync(&file)?;
            }
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
            count()?
        }
    };
    let stayed = after.known().is_some_and(|after| after.cached > 0);
    let in_memory = stayed && nowait::Handle::new(file)?.filesystem().is_memory();
    Ok(Some(Outcome {
        stat,
        before,
        after,
        in_memory,
    }))
}

/// Returns true if the file may have pages to write, also if that is unknown.
fn may_be_dirty(before: Answer<Residency>) -> bool {
    before.known().is_none_or(|known| {
        let clean = known.dirty == Some(0) && known.writeback == Some(0);
        !clean
    })
}
