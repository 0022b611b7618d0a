//! One file taken out of the page cache: counted before, advised, counted after.

use std::sync::{Mutex, PoisonError};

use nowait::residency::{Answer, Residency, residency};
use rustix::fs::{Advice, Stat};

use crate::met::Met;
use crate::tree::{Found, Unopened};

/// What is to be done with each file.
#[derive(Clone, Copy)]
pub enum How {
    /// Nothing: it is only looked at.
    Look,
    /// FADV_DONTNEED, after its dirty pages were written if that is wanted.
    Advise { flush: bool },
}

/// A file that was dealt with.
pub struct Done {
    pub stat: Stat,
    pub before: Answer<Residency>,
    pub after: Answer<Residency>,
    /// Whether it lies in memory; asked only if something stayed.
    pub in_memory: bool,
}

/// Does it; nothing if the file was done under another name.
pub fn evict(found: &Found, how: How, met: &Mutex<Met>) -> Result<Option<Done>, Unopened> {
    let (file, stat) = found.open()?;
    // What a panic of another thread leaves behind is whole.
    let mut seen = met.lock().unwrap_or_else(PoisonError::into_inner);
    if !seen.first(&stat) {
        return Ok(None);
    }
    drop(seen);
    let count = || residency(&file, 0..u64::MAX);
    let before = count()?;
    let after = match how {
        How::Look => before,
        How::Advise { flush } => {
            if flush && may_be_dirty(before) {
                rustix::fs::fdatasync(&file)?;
            }
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
            count()?
        }
    };
    let stayed = after.known().is_some_and(|after| after.cached > 0);
    let in_memory = stayed && {
        let handle = nowait::Handle::new(file)?;
        handle.filesystem().is_memory()
    };
    Ok(Some(Done {
        stat,
        before,
        after,
        in_memory,
    }))
}

/// Whether there may be something to write: also where nobody can tell.
fn may_be_dirty(before: Answer<Residency>) -> bool {
    before.known().is_none_or(|known| {
        let clean = known.dirty == Some(0) && known.writeback == Some(0);
        !clean
    })
}
