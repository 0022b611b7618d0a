//! Files for asyncio: the part of `nowait.asyncio_files` that has no buffer.
//!
//! ```text
//!  await handle.read_at(…) ─ first step ─► budget? ─no──────────► yields None, continues in the
//!                                             │                   loop's next iteration
//!                                             ▼ yes
//!                                  page cache? ─yes─► result, without a turn of the loop
//!                                             │no
//!                                             ▼
//!  engine (never attaches) ◄─ future ─► yields an asyncio.Future ◄─ eventfd of the loop
//! ```

pub mod awaitable;
mod budget;
mod event_loop;
mod failure;
pub mod functions;
pub mod handle;
mod in_engine;
mod memory;
mod operation;
mod read;
mod stat;
pub mod text;
pub mod write;
