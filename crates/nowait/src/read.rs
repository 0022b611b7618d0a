//! The read path: plan, try, and hand the rest to the engine.
//!
//! ```text
//!  start ─ plan ─► CacheFirst ─ preadv2(NOWAIT) ──all──► Done
//!             │                     └─ prefix / nothing ─► Rest
//!             ├──► AskFirst ─ resident? ─yes─► read in this thread ─all──► Done
//!             │                    └─no─────────────────────────► Rest
//!             ├──► Inline ─ pread ──────────────────────────────► Done
//!             └──► Queue ───────────────────────────────────────► Rest
//! ```

pub(crate) mod blocking;
mod cached;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod start;
pub(crate) mod to_end;
mod without_engine;

use std::os::fd::AsFd;

pub use crate::policy::COPY_LIMIT;
pub use crate::policy::history::{CacheDecision, History, NowaitPolicy, Recent};
pub(crate) use cached::cached_file;
pub use cached::{Cached, cached, cached_by_nowait};
pub use plan::{Plan, Reason};
pub use without_engine::{BareFile, Rules, try_cached};

use crate::error::{Error, Result};
use crate::kernel::flags::RwFlags;
use crate::sys::rw;
use crate::sys::uninit_slice::UninitSlice;

/// One preadv2(2) call with `RWF_*` flags into borrowed memory.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the kernel or the filesystem refuses one of
/// the flags (EOPNOTSUPP, ENOSYS); otherwise the kernel's errno, such as EAGAIN with `NOWAIT`.
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
    buf: impl Into<UninitSlice<'a>>,
    offset: u64,
    flags: RwFlags,
) -> Result<usize> {
    let mut space = buf.into();
    rw::preadv2(fd.as_fd(), &mut space, Some(offset), flags.bits())
        .map_err(|errno| Error::os("preadv2", errno))
}
