//! File I/O on Linux that does not make you wait.
//!
//! What the page cache holds is served at once, in the caller; what it does not goes to an
//! asynchronous engine: io_uring, or threads where a container denies it. User space only, on
//! stock kernels. Every result says where its bytes came from.
//!
//! ```
//! let file = nowait::File::blocking_open("Cargo.toml")?;
//! let read = pollster::block_on(file.read_at(vec![0; 4096], 0));
//! let n = read.result?;
//! println!("{n} bytes, {} of them from the page cache", read.provenance.cached);
//! assert!(read.buf.starts_with(b"[package]"));
//! # Ok::<(), nowait::Error>(())
//! ```
//!
//! # The nouns
//! - [`File`]: positional reads and writes on one open file, as futures that any executor can poll
//!   and as blocking calls. [`Handle`] is what it holds: the descriptor and what was learnt of it.
//! - [`engine::Engine`], [`engine::LocalEngine`]: what accepts operations ([`op::Op`]) and delivers
//!   [`Completion`]s, on an `io_uring` ring or on threads.
//! - [`read::cached`]: one page-cache-only read of any descriptor, without any engine.
//! - [`read::Plan`]: the decision how one read will be served. [`cost::Costs`] is what it rests on.
//! - [`Scan`]: the entries of a directory, with metadata; [`Walk`]: those of a tree;
//!   [`scan::readahead`]: a directory's inodes brought into the kernel's caches.
//! - [`residency`]: which pages of a file are in the page cache.
//! - [`capability::Kernel`]: what kernel and sandbox allow. [`stats::Stats`]: what was done.
//!
//! # The order of calls
//! ```text
//!  File::read_at ─► read::start ─► plan ─► cached::attempt ─ all ─► Completion
//!                                              └ rest ─► Engine ─► uring | threads ─► Completion
//!  Scan, Walk ─► Crew ─► the caller | the engine's workers: list ─► sort ─► ask ─► batches
//! ```

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "unit tests know their numbers"
    )
)]

mod alignment;
pub mod buffer;
pub mod capability;
mod cast;
pub mod completion;
pub mod cost;
pub mod engine;
mod error;
mod file;
pub mod filesystem;
mod flags;
mod foreign;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handle;
mod history;
mod metadata;
mod mode;
pub mod op;
mod policy;
mod provenance;
pub mod read;
mod readahead;
mod registered;
pub mod residency;
mod retry;
pub mod scan;
mod shown;
mod space;
pub mod stats;
mod support;
mod sync;
mod sys;
mod task_group;
#[cfg(feature = "tokio")]
pub mod tokio;
mod waker;
pub mod walk;
pub mod write;

pub use alignment::{Alignment, AtomicWrites};
pub use buffer::{IoBuf, IoBufExt, IoBufMut};
pub use completion::{BufResult, Completion, Ticket};
pub use engine::Engine;
pub use error::{Error, ErrorKind, Result};
pub use file::{File, Open, OpenOptions, ReadAt, SyncFile, WriteAt};
pub use flags::RwFlags;
pub use handle::Handle;
pub use metadata::{FileType, Metadata, StatxMask};
pub use mode::Mode;
pub use provenance::{Provenance, ServedBy};
pub use scan::Scan;
pub use shown::Shown;
pub use walk::Walk;
