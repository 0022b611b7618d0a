//! The functions that the shared library exports, as C calls them: those of <aio.h>, _exit(2) and
//! _Exit(3).
//!
//! All but aio_suspend(3) run with cancellation disabled: POSIX has no cancellation points in them,
//! but the calls that they make are cancellation points. No panic leaves a function: `extern "C"`
//! ends the process instead.

mod block_list;
mod cancel;
mod exit;
mod init;
mod list;
mod names64;
mod status;
mod submit;
mod suspend;

pub use cancel::aio_cancel;
pub use init::aio_init;
pub use list::lio_listio;
pub use names64::*;
pub use status::{aio_error, aio_return};
pub use submit::{aio_fsync, aio_read, aio_write};
pub use suspend::aio_suspend;
