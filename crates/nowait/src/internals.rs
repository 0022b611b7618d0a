//! Private parts, for the fuzz targets in `fuzz/` and the benchmarks in `bench/benches/parts`.

use std::hint::black_box;

use crate::kernel::flags::RwFlags;
use crate::policy::mode::Mode;
use crate::read::CacheDecision;
use crate::read::plan::{self, Facts, Plan, Request};

pub use crate::engine::Completions;
pub use crate::scan::{Dirents, exactly_once};

/// See `filesystem::source_of`.
pub fn source_of<'a>(mounts: &'a [u8], number: &str) -> Option<&'a [u8]> {
    crate::kernel::filesystem::source_of(mounts, number)
}

/// See `read::plan`. The plan of a read of `len` bytes, on a filesystem that has NOWAIT reads.
pub fn plan(len: usize, mode: Mode, decision: CacheDecision) -> Plan {
    let request = Request {
        len,
        flags: RwFlags::empty(),
        batch: false,
    };
    let facts = Facts {
        direct: false,
        memory: false,
        nowait_refused: false,
        nowait_works: true,
        residency: true,
        congested: false,
    };
    let most = 256 << 10;
    plan::plan(
        black_box(request),
        black_box(facts),
        black_box(mode),
        black_box(most),
        || black_box(decision),
        || false,
    )
}
