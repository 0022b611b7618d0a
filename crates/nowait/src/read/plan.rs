//! The plan: the decision how one read is served. It is a pure function of the request, the file's
//! facts and its history. [`path`](super::path) carries it out. Four answers of [`plan`] are known without it there:
//! an expected hit is tried, or goes to the ring with its batch; O_DIRECT goes to the engine, and so does each read of a
//! polled engine.

use crate::kernel::flags::RwFlags;
use crate::policy::history::CacheDecision;
use crate::policy::mode::Mode;

/// The decision how one read is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// Make a cached read (`RWF_NOWAIT`) in the calling thread. The engine reads the rest.
    CacheFirst,
    /// Query residency. If the range is resident, read it in the calling thread, otherwise in the
    /// engine.
    AskFirst,
    /// Make an ordinary read in the calling thread: the file is in memory.
    Inline,
    /// Hand the read to the engine immediately.
    Queue(Reason),
}

/// The reason why a read is handed to the engine immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The file is open with O_DIRECT: a cached read would do device I/O in the calling thread.
    Direct,
    /// The read is part of a batch: the ring tries the cache itself, with one system call for all.
    Batch,
    /// By the file's history trying does not pay, and other operations are in flight; or the policy
    /// is to never try.
    LowHitRate,
    /// The read is longer than a calling thread should copy.
    Large,
    /// The read has flags, which only the engine's reads pass on.
    Special,
    /// A try may wait or NOWAIT does not work on this file, and no residency source works.
    CannotTell,
}

/// The properties of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The length in bytes.
    pub len: usize,
    /// The `RWF_*` flags of the request.
    pub flags: RwFlags,
    /// True if it was submitted with others and can go to a ring with them.
    pub batch: bool,
}

/// The facts about a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The file was opened with O_DIRECT.
    pub direct: bool,
    /// The file is in memory (tmpfs, ramfs).
    pub memory: bool,
    /// `RWF_NOWAIT` was refused on the file.
    pub nowait_refused: bool,
    /// `RWF_NOWAIT` has worked on the file. If it has neither worked nor been refused, the next
    /// read tries.
    pub nowait_works: bool,
    /// A residency source is correct for the file.
    pub residency: bool,
    /// A try may wait: [`crate::policy::congestion`].
    pub congested: bool,
}

/// Decides how a read is served.
///
/// `most` is the maximum length, in bytes, of a read that is copied in the calling thread. `decide`
/// asks the file's history, which counts the read: it is called only if the read may try. `is_alone`
/// returns true if nothing else is in flight on the engine. It is called only if the decision is to
/// skip the try.
pub(crate) fn plan(
    request: Request,
    facts: Facts,
    mode: Mode,
    most: usize,
    decide: impl FnOnce() -> CacheDecision,
    is_alone: impl FnOnce() -> bool,
) -> Plan {
    if facts.direct {
        return Plan::Queue(Reason::Direct);
    }
    if !request.flags.is_empty() {
        return Plan::Queue(Reason::Special);
    }
    if facts.memory && request.len <= most {
        return Plan::Inline;
    }
    if request.len > most {
        return Plan::Queue(Reason::Large);
    }
    if request.batch && mode == Mode::Eager && facts.nowait_works {
        return Plan::Queue(Reason::Batch);
    }
    let tries = mode == Mode::Eager && !facts.nowait_refused;
    let asks = !tries || facts.congested;
    let plan = match (asks, facts.residency) {
        (false, _) => Plan::CacheFirst,
        (true, true) => Plan::AskFirst,
        (true, false) => return Plan::Queue(Reason::CannotTell),
    };
    match decide() {
        CacheDecision::Try => plan,
        // The failed try starts the read immediately, and no other operation waits meanwhile. An
        // engine that sleeps would start the read later. If the try may wait, residency is
        // queried instead.
        CacheDecision::Skip if tries && is_alone() => plan,
        CacheDecision::Skip | CacheDecision::Never => Plan::Queue(Reason::LowHitRate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::COPY_LIMIT;

    const READ: Request = Request {
        len: 4096,
        flags: RwFlags::empty(),
        batch: false,
    };
    const EXT4: Facts = Facts {
        direct: false,
        memory: false,
        nowait_refused: false,
        nowait_works: true,
        residency: true,
        congested: false,
    };
    const OVERLAY: Facts = Facts {
        nowait_refused: true,
        nowait_works: false,
        ..EXT4
    };
    const TMPFS: Facts = Facts {
        memory: true,
        nowait_refused: true,
        nowait_works: false,
        ..EXT4
    };
    const DIRECT: Facts = Facts {
        direct: true,
        ..EXT4
    };
    const CONGESTED: Facts = Facts {
        congested: true,
        ..EXT4
    };
    const CONGESTED_AND_BLIND: Facts = Facts {
        residency: false,
        ..CONGESTED
    };
    const BLIND: Facts = Facts {
        residency: false,
        ..EXT4
    };

    #[test]
    fn every_row() {
        use CacheDecision::{Never, Skip, Try};
        use Mode::{Eager, Strict};
        use Plan::{AskFirst, CacheFirst, Inline, Queue};
        let batch = Request {
            batch: true,
            ..READ
        };
        // In its rows nothing else is in flight.
        let alone = Request { len: 4095, ..READ };
        let large = Request {
            len: COPY_LIMIT + 1,
            ..READ
        };
        let flagged = Request {
            flags: RwFlags::HIPRI,
            ..READ
        };
        let rows = [
            (READ, EXT4, Eager, Try, CacheFirst),
            (READ, EXT4, Eager, Skip, Queue(Reason::LowHitRate)),
            (READ, EXT4, Eager, Never, Queue(Reason::LowHitRate)),
            (alone, EXT4, Eager, Skip, CacheFirst),
            (alone, EXT4, Eager, Never, Queue(Reason::LowHitRate)),
            (alone, EXT4, Strict, Skip, Queue(Reason::LowHitRate)),
            (alone, OVERLAY, Eager, Skip, Queue(Reason::LowHitRate)),
            (READ, EXT4, Strict, Try, AskFirst),
            (READ, EXT4, Strict, Skip, Queue(Reason::LowHitRate)),
            (READ, CONGESTED, Eager, Try, AskFirst),
            (alone, CONGESTED, Eager, Skip, AskFirst),
            (READ, CONGESTED, Eager, Skip, Queue(Reason::LowHitRate)),
            (batch, CONGESTED, Eager, Try, Queue(Reason::Batch)),
            (
                READ,
                CONGESTED_AND_BLIND,
                Eager,
                Try,
                Queue(Reason::CannotTell),
            ),
            (READ, BLIND, Eager, Try, CacheFirst),
            (READ, BLIND, Strict, Try, Queue(Reason::CannotTell)),
            (READ, OVERLAY, Eager, Try, AskFirst),
            (READ, OVERLAY, Strict, Try, AskFirst),
            (
                READ,
                Facts {
                    residency: false,
                    ..OVERLAY
                },
                Eager,
                Try,
                Queue(Reason::CannotTell),
            ),
            (READ, TMPFS, Eager, Try, Inline),
            (READ, TMPFS, Strict, Skip, Inline),
            (large, TMPFS, Eager, Try, Queue(Reason::Large)),
            (READ, DIRECT, Eager, Try, Queue(Reason::Direct)),
            (READ, DIRECT, Strict, Try, Queue(Reason::Direct)),
            (batch, EXT4, Eager, Try, Queue(Reason::Batch)),
            (
                batch,
                Facts {
                    nowait_works: false,
                    ..EXT4
                },
                Eager,
                Try,
                CacheFirst,
            ),
            (batch, EXT4, Strict, Try, AskFirst),
            (batch, OVERLAY, Eager, Try, AskFirst),
            (large, EXT4, Eager, Try, Queue(Reason::Large)),
            (
                Request {
                    batch: true,
                    ..large
                },
                EXT4,
                Eager,
                Try,
                Queue(Reason::Large),
            ),
            (large, EXT4, Strict, Try, Queue(Reason::Large)),
            (flagged, EXT4, Eager, Try, Queue(Reason::Special)),
            (flagged, TMPFS, Eager, Try, Queue(Reason::Special)),
        ];
        for (request, facts, mode, decision, want) in rows {
            let is_alone = || request == alone;
            let got = plan(request, facts, mode, COPY_LIMIT, || decision, is_alone);
            assert_eq!(got, want, "{request:?} {facts:?} {mode:?} {decision:?}");
        }
    }
}
