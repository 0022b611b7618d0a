//! Removes files from the page cache, and finds the reasons why pages stay.
//!
//! ```text
//!  files ─► evict (threads): count, flush?, FADV_DONTNEED, count again ─► reasons ─► Row, Totals
//!                                                     MappingProcesses ───┘ processes that map it
//! ```
//! `FADV_DONTNEED` removes clean pages that are not in use. For dirty pages it starts writeback,
//! and the pages stay. Pages under writeback, mapped by a process, locked, or used by the kernel
//! stay, too. The kernel does not report the reason. It is derived from the counts before and after
//! the call and from `/proc/PID/maps`. The advice is given for whole files only: for a range of a
//! file the kernel would keep large folios that extend beyond the range.

mod eviction;
mod processes;
mod reason;
mod totals;

use std::sync::Mutex;

pub use eviction::Action;
pub use processes::{MappingProcess, MappingProcesses};
pub use reason::{Counted, Kind, Row, Why};
pub use totals::Totals;

use crate::examine::examine;
use crate::file_ref::FileRef;
use crate::reporter::Reporter;
use crate::seen_inodes::SeenInodes;

/// Evicts all files of a visit, on several threads. Calls `each` with each file and the totals so
/// far, in the order of the visit, until it returns an error. `visit` calls its argument with each
/// file, and ends when that returns an error.
pub fn evict_all<E>(
    visit: impl FnOnce(&mut dyn FnMut(FileRef) -> Result<(), E>) -> Result<(), E>,
    action: Action,
    seen: SeenInodes,
    reporter: &dyn Reporter,
    processes: &mut MappingProcesses,
    mut each: impl FnMut(&Row, &Totals) -> Result<(), E>,
) -> Result<Totals, E> {
    // Shared by the threads, so that only one of two names of a file is counted and evicted.
    let seen = Mutex::new(seen);
    let mut totals = Totals::default();
    // A sync through the holder's descriptor would take the error of a failed write from the holder.
    let open = match action {
        Action::Evict { flush: true } => FileRef::open,
        _ => FileRef::look,
    };
    examine(
        visit,
        open,
        |file, stat| eviction::evict(file, stat, action, &seen),
        |found, outcome| {
            match outcome {
                Ok(None) => {}
                Ok(Some(done)) => {
                    let row = Row::new(
                        found.path().into_owned(),
                        &done,
                        action.is_dry_run(),
                        processes,
                    );
                    totals.add(&row);
                    each(&row, &totals)?;
                }
                Err(why) => found.failed(reporter, why),
            }
            Ok(())
        },
    )?;
    Ok(totals)
}
