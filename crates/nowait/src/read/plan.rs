//! The plan: how one read will be served. A pure function of the request, the file's facts and
//! its history; [`super`] carries it out.

use crate::flags::RwFlags;
use crate::history::CacheDecision;
use crate::mode::Mode;

/// How one read will be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// A cached read (`RWF_NOWAIT`) in the caller; what it does not bring goes to the engine.
    CacheFirst,
    /// Ask whether the range is resident; if so read it in the caller, else hand it off.
    AskFirst,
    /// A plain read in the caller: the file lives in memory.
    Inline,
    /// Straight to the engine.
    Queue(Reason),
}

/// Why a read goes straight to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// O_DIRECT: a cached read would be device I/O in the caller.
    Direct,
    /// Part of a batch: the ring tries the cache itself, one system call for all.
    Batch,
    /// The file's history says that trying does not pay, and other operations are in flight; or the
    /// engine is never to try.
    LowHitRate,
    /// Longer than an event loop should copy at once.
    Large,
    /// Flags that only the engine's read carries, or a read at the file's own position.
    Special,
    /// Neither NOWAIT nor residency works on this file.
    CannotTell,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Bytes.
    pub len: usize,
    /// The request's own `RWF_*` flags.
    pub flags: RwFlags,
    /// Whether it has an offset (else it reads at the file's own position).
    pub positional: bool,
    /// Whether it came with others and can go to a ring with them.
    pub batch: bool,
    /// Whether nothing else is in flight on its engine. Need be known only where the decision is to
    /// skip the try.
    pub alone: bool,
}

/// What is known of the file.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Opened with O_DIRECT.
    pub direct: bool,
    /// Lives in memory (tmpfs, ramfs).
    pub memory: bool,
    /// `RWF_NOWAIT` was refused on it.
    pub nowait_refused: bool,
    /// `RWF_NOWAIT` has worked on it. Until one of the two is known, the next read tries.
    pub nowait_works: bool,
    /// Residency can be asked for truthfully.
    pub residency: bool,
}

/// The decision.
///
/// `most` is the largest read that is copied in the caller in one piece, in bytes.
pub fn plan(
    request: Request,
    facts: Facts,
    mode: Mode,
    decision: CacheDecision,
    most: usize,
) -> Plan {
    if facts.direct {
        return Plan::Queue(Reason::Direct);
    }
    if !request.positional || !request.flags.is_empty() {
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
    let plan = match (mode, facts.nowait_refused, facts.residency) {
        (Mode::Eager, false, _) => Plan::CacheFirst,
        (Mode::Eager, true, true) | (Mode::Strict, _, true) => Plan::AskFirst,
        (Mode::Eager, true, false) | (Mode::Strict, _, false) => {
            return Plan::Queue(Reason::CannotTell);
        }
    };
    match decision {
        CacheDecision::Try => plan,
        // A miss starts its read at once, and no other waits for its turn meanwhile: the device is
        // told sooner than an engine that sleeps could tell it.
        CacheDecision::Skip if request.alone && plan == Plan::CacheFirst => plan,
        CacheDecision::Skip | CacheDecision::Never => Plan::Queue(Reason::LowHitRate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Request = Request {
        len: 4096,
        flags: RwFlags::empty(),
        positional: true,
        batch: false,
        alone: false,
    };
    const EXT4: Facts = Facts {
        direct: false,
        memory: false,
        nowait_refused: false,
        nowait_works: true,
        residency: true,
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
    const BLIND: Facts = Facts {
        residency: false,
        ..EXT4
    };
    const COPY_LIMIT: usize = 256 << 10;

    #[test]
    fn every_row() {
        use CacheDecision::{Never, Skip, Try};
        use Mode::{Eager, Strict};
        use Plan::{AskFirst, CacheFirst, Inline, Queue};
        let batch = Request {
            batch: true,
            ..READ
        };
        let alone = Request {
            alone: true,
            ..READ
        };
        let large = Request {
            len: COPY_LIMIT + 1,
            ..READ
        };
        let stream = Request {
            positional: false,
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
            (stream, EXT4, Eager, Try, Queue(Reason::Special)),
            (flagged, EXT4, Eager, Try, Queue(Reason::Special)),
            (flagged, TMPFS, Eager, Try, Queue(Reason::Special)),
        ];
        for (request, facts, mode, decision, want) in rows {
            let got = plan(request, facts, mode, decision, COPY_LIMIT);
            assert_eq!(got, want, "{request:?} {facts:?} {mode:?} {decision:?}");
        }
    }
}
