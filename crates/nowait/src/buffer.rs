//! Memory that an operation owns while the kernel may touch it.
//!
//! The traits are safe to implement and dyn-compatible. An operation holds its buffer boxed. It asks
//! for the memory once, when it is made, and calls nothing of the buffer until it gives it back: the
//! borrow that [`IoBufMut::space`] and [`IoBuf::bytes`] return lasts that long.
//!
//! An implementation may panic. `space`, `bytes` and `set_filled` are called in the thread that makes
//! the operation or takes its buffer back, and their panics are that thread's. A buffer that is
//! dropped with its operation may be dropped by the engine; a panic of its destructor ends there.

mod io_buf;
pub(crate) mod memory;
mod pool;
pub(crate) mod window;

pub use io_buf::{Buffer, IoBuf, IoBufExt, IoBufMut, Limit, Source, downcast, downcast_source};
pub use pool::{BufferPool, Pages, PoolBuffer};

pub use crate::space::Space;
