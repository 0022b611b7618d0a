//! The read path, whole: plan, try, and what goes on to the engine.
//!
//! ```text
//!  start ─ plan ─► CacheFirst ─ preadv2(NOWAIT) ──all──► Done
//!             │                     └─ prefix / nothing ─► Rest
//!             ├──► AskFirst ─ resident? ─yes─► read in the caller ──all──► Done
//!             │                    └─no─────────────────────────► Rest
//!             ├──► Inline ─ pread ──────────────────────────────► Done
//!             └──► Queue ───────────────────────────────────────► Rest
//! ```

mod cached;
pub(crate) mod history;
pub(crate) mod plan;

use std::os::fd::AsFd;

pub use cached::{Cached, cached};
pub use history::{Advice, History, Recent, Trying};
pub use plan::{Facts, Mode, Plan, Reason, Request, plan};

use cached::{Attempt, attempt, ended};
use history::WINDOW;

use crate::completion::{Origin, Provenance};
use crate::engine::{Core, Route};
use crate::error::{Error, Result};
use crate::flags::RwFlags;
use crate::handle::Handle;
use crate::op::buffer::Space;
use crate::op::read::into_space;
use crate::op::{Fadvise, Op};
use crate::residency::{self, Held};
use crate::stats::{Count, ns_since, sometimes_now};
use crate::sys::Errno;
use crate::sys::rw::checked;

/// One read with `RWF_*` flags into borrowed memory: preadv2(2), once.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) where the kernel or the filesystem refuses one of
/// the flags (EOPNOTSUPP, ENOSYS), else the kernel's errno; EAGAIN from `NOWAIT` among them.
///
/// ```
/// use nowait::{RwFlags, read};
/// let file = std::fs::File::open("Cargo.toml")?;
/// let n = read::with_flags(&file, &mut [0; 16], 0, RwFlags::HIPRI)?;
/// assert_eq!(n, 16);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_flags<'a>(
    fd: impl AsFd,
    buf: impl Into<Space<'a>>,
    offset: u64,
    flags: RwFlags,
) -> Result<usize> {
    let mut space = buf.into();
    checked(Some(offset), space.len())
        .and_then(|()| into_space(fd.as_fd(), &mut space, Some(offset), flags.bits()))
        .map_err(|errno| Error::os("preadv2", errno))
}

/// What came of the caller's part of a read.
#[derive(Debug)]
pub(crate) enum Start {
    /// All of it: so many bytes, fewer than asked only at the end of the file.
    Done(usize, Provenance),
    /// The rest is the engine's.
    Rest(Rest),
    /// It can't be done.
    Failed(Errno),
}

/// What is left of a read for the engine.
#[derive(Debug)]
pub(crate) struct Rest {
    /// How many bytes are in the buffer already.
    pub(crate) done: usize,
    /// Where those came from.
    pub(crate) provenance: Provenance,
    /// Whether the caller looked for the next byte in the page cache and did not find it.
    pub(crate) missed: bool,
    /// Who is to do it.
    pub(crate) route: Route,
}

/// The caller's part of one read: decides by the plan, and does what the plan has the caller do.
///
/// `alone` says whether nothing else is in flight on the engine.
pub(crate) fn start(
    core: &Core,
    handle: &Handle,
    space: &mut Space<'_>,
    offset: u64,
    flags: RwFlags,
    batch: bool,
    alone: impl FnOnce() -> bool,
) -> Start {
    let len = space.len();
    if let Err(errno) = checked(Some(offset), len) {
        return Start::Failed(errno);
    }
    if core.polled {
        // O_DIRECT files alone, and the engine says so of others.
        return rest(0, false, Route::Ring);
    }
    let mode = handle.mode().unwrap_or(core.mode);
    let facts = handle.facts(mode);
    let advice = handle.history().advise(core.trying, || core.costs());
    let request = Request {
        len,
        flags,
        positional: true,
        batch,
        // Hits don't look: the count of what is in flight is written by all threads.
        alone: advice == Advice::Skip && alone(),
    };
    let timer = sometimes_now();
    let started = match plan(request, facts, mode, advice, core.copy_limit) {
        Plan::CacheFirst => try_cache(core, handle, space, offset),
        Plan::AskFirst => ask_first(core, handle, space, offset, facts),
        Plan::Inline => inline(core, handle, space, offset),
        Plan::Queue(reason) => {
            if reason == Reason::Hopeless {
                core.counters.count(Count::Skipped);
            }
            let route = if reason == Reason::Large {
                Route::Worker
            } else {
                Route::Ring
            };
            rest(0, false, route)
        }
    };
    if let Some(timer) = timer {
        let ns = ns_since(timer);
        core.counters.stall(ns);
        match &started {
            Start::Done(_, p) if p.cached > 0 => core.observed.hit(len, ns),
            Start::Rest(rest) if rest.missed => core.observed.miss(ns),
            _ => {}
        }
    }
    started
}

/// What a worker should have the kernel read ahead now that a read of `len` bytes from `offset` on
/// came to this; mostly nothing.
///
/// A strict file has no readahead of its own (the caller would pay for it): where reads follow each
/// other and have met what is not cached, a worker starts one, and the next one before the reads
/// have come to the end of it.
pub(crate) fn ahead(
    core: &Core,
    handle: &Handle,
    (offset, len): (u64, usize),
    started: &Start,
) -> Option<Op> {
    let mode = handle.mode().unwrap_or(core.mode);
    if mode == Mode::Eager || handle.is_direct() {
        return None;
    }
    let missed = matches!(started, Start::Rest(_));
    let from = handle.history().ahead(offset, len as u64, missed)?;
    Some(Fadvise::new(handle, from, WINDOW, rustix::fs::Advice::WillNeed).into())
}

/// NOWAIT in the caller; what it does not bring is the engine's.
fn try_cache(core: &Core, handle: &Handle, space: &mut Space<'_>, offset: u64) -> Start {
    match attempt(handle.as_fd(), space, offset) {
        Attempt::All(n) => {
            handle.nowait_read_worked();
            handle.history().hit();
            core.counters
                .add2(Count::Hits, 1, Count::HitBytes, n as u64);
            Start::Done(n, from(n, Origin::Cache))
        }
        Attempt::Prefix(n) => {
            handle.nowait_read_worked();
            handle.history().miss();
            core.counters
                .add2(Count::Prefixes, 1, Count::PrefixBytes, n as u64);
            rest(n, true, Route::Ring)
        }
        Attempt::Nothing => {
            handle.nowait_read_worked();
            handle.history().miss();
            core.counters.count(Count::Misses);
            rest(0, true, Route::Ring)
        }
        Attempt::NotNow => {
            core.counters.count(Count::Misses);
            rest(0, false, Route::Ring)
        }
        Attempt::FalseEof => {
            core.counters.count(Count::FalseEnds);
            rest(0, false, Route::Ring)
        }
        Attempt::Refused(_) => {
            handle.nowait_read_refused();
            core.counters.count(Count::Refusals);
            rest(0, false, Route::Ring)
        }
        Attempt::Failed(errno) => Start::Failed(errno),
    }
}

/// Residency first; only what is there is read in the caller.
fn ask_first(
    core: &Core,
    handle: &Handle,
    space: &mut Space<'_>,
    offset: u64,
    facts: Facts,
) -> Start {
    match residency::ask(handle, offset, space.len()) {
        Held::Whole if facts.nowait_refused => plain(core, handle, space, offset),
        Held::Whole => {
            let started = try_cache(core, handle, space, offset);
            if matches!(&started, Start::Rest(rest) if rest.missed) {
                core.counters.count(Count::Races);
            }
            started
        }
        Held::Not => {
            handle.history().miss();
            core.counters.count(Count::Misses);
            rest(0, true, Route::Ring)
        }
        Held::Unknown => rest(0, false, Route::Ring),
    }
}

/// Where NOWAIT is refused (overlayfs) and the pages were there a moment ago: an ordinary read.
fn plain(core: &Core, handle: &Handle, space: &mut Space<'_>, offset: u64) -> Start {
    let started = in_caller(handle, space, offset, Origin::Cache);
    if let Start::Done(n, _) = started {
        handle.history().hit();
        core.counters
            .add2(Count::Hits, 1, Count::HitBytes, n as u64);
    }
    started
}

/// A memory-backed file: an ordinary read.
fn inline(core: &Core, handle: &Handle, space: &mut Space<'_>, offset: u64) -> Start {
    core.counters.count(Count::Inline);
    in_caller(handle, space, offset, Origin::Cache)
}

/// An ordinary read in the caller; the engine goes on after a short one that is not the end.
fn in_caller(handle: &Handle, space: &mut Space<'_>, offset: u64, origin: Origin) -> Start {
    match into_space(handle.as_fd(), space, Some(offset), 0) {
        Ok(n) if n == space.len() || n == 0 => Start::Done(n, from(n, origin)),
        Ok(n) if ended(handle.as_fd(), offset, n) => Start::Done(n, from(n, origin)),
        Ok(n) => rest(n, false, Route::Ring),
        Err(Errno::INTR) => rest(0, false, Route::Ring),
        Err(errno) => Start::Failed(errno),
    }
}

fn rest(done: usize, missed: bool, route: Route) -> Start {
    Start::Rest(Rest {
        done,
        provenance: from(done, Origin::Cache),
        missed,
        route,
    })
}

fn from(n: usize, origin: Origin) -> Provenance {
    let mut provenance = Provenance::default();
    provenance.add(n, origin);
    provenance
}

/// The caller's part of an engine operation that is a read, and what is to be read ahead besides:
/// `None` if it is the engine's as it is.
pub(crate) fn start_op(
    core: &Core,
    op: &mut Op,
    batch: bool,
    alone: impl FnOnce() -> bool,
) -> Option<(Start, Option<Op>)> {
    let crate::op::Kind::Read(read) = &mut op.kind else {
        return None;
    };
    let (offset, flags) = (read.positional()?, read.flagged());
    if read.is_direct() {
        // As the plan would say, sooner: such reads come by the million.
        return None;
    }
    let mut then = None;
    let started = read.start(|handle, space| {
        let len = space.len();
        let started = start(core, handle, space, offset, flags, batch, alone);
        then = ahead(core, handle, (offset, len), &started);
        started
    });
    Some((started, then))
}
