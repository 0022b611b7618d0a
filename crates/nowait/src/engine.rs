//! The engine accepts operations and delivers completions.
//!
//! ```text
//!                     ┌── Done: served from the page cache ─────────────────► Completion
//!  submit(op) ── plan ┤
//!                     ├── Queued: request ─► inbox ─► owner ─► ring ─┐
//!                     │                └──► pool ─► worker ─────────┴─► target: future | reap
//!                     └── Full: the operation is returned
//! ```
//!
//! [`Engine`] is shared (`Send + Sync`). One *owner* thread submits to its ring and reaps it,
//! because asynchronous buffered reads finish in the context of the thread that submitted them. A
//! [`LocalEngine`] is driven by the thread that made it, without a handoff. Both have bounded pools
//! of *workers*. Workers carry out operations that the ring does not support, and all operations if
//! io_uring is unavailable.

mod backend;
mod class;
pub(crate) mod completion;
mod completion_queue;
mod completion_target;
mod core;
mod deadlines;
mod features;
mod file_set;
mod in_flight;
mod local;
mod options;
mod pools;
mod request;
mod ring;
mod run;
mod semaphore;
mod shared;
mod spawn_blocking;
mod submit;
mod wait;
mod workers;
mod yield_before_sleep;

pub use backend::Backend;
#[cfg(any(fuzzing, nowait_internals))]
pub use completion_queue::completions::Completions;
pub use features::Feature;
pub use file_set::FileSet;
pub use local::LocalEngine;
pub use options::Options;
pub use ring::options::Polled;
pub use ring::support::RingSupport;
pub use run::Run;
pub use shared::Engine;
pub use spawn_blocking::SpawnBlocking;
pub use submit::Submit;
pub use wait::Wait;

#[cfg(feature = "tokio")]
pub(crate) use in_flight::{OpState, Reserved};
pub(crate) use run::OpFuture;
#[cfg(feature = "tokio")]
pub(crate) use semaphore::Watch;
pub(crate) use workers::Task;
