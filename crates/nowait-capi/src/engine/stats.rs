//! The counters of an engine.

use libc::size_t;
use nowait::stats::Stats;

use crate::guard::Extensible;

/// The work of an engine since it was made. `size` is set by the program to sizeof(struct
/// nw_stats).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nw_stats {
    /// sizeof(struct nw_stats).
    pub size: size_t,
    /// Reads that the page cache served completely, in the calling thread.
    pub hits: u64,
    /// Bytes of such reads.
    pub hit_bytes: u64,
    /// Reads of which the page cache had a leading part.
    pub prefixes: u64,
    /// Tries that found nothing.
    pub misses: u64,
    /// Reads that did not try because of the file's history.
    pub skipped: u64,
    /// Operations handed to the engine.
    pub handoffs: u64,
    /// Operations completed by the ring.
    pub ring: u64,
    /// Operations completed by workers.
    pub workers: u64,
    /// Submissions to a full engine.
    pub full: u64,
    /// Bytes read or written by the engine.
    pub engine_bytes: u64,
    /// Operations that failed.
    pub errors: u64,
}

// SAFETY: integers, and the size comes first.
unsafe impl Extensible for nw_stats {}

impl nw_stats {
    pub(super) fn of(stats: &Stats) -> nw_stats {
        nw_stats {
            size: 0,
            hits: stats.hits,
            hit_bytes: stats.hit_bytes,
            prefixes: stats.prefixes,
            misses: stats.misses,
            skipped: stats.skipped,
            handoffs: stats.handoffs,
            ring: stats.ring,
            workers: stats.workers,
            full: stats.full,
            engine_bytes: stats.engine_bytes,
            errors: stats.errors,
        }
    }
}
