//! Memory that an operation owns while the kernel may access it.
//!
//! The traits are safe to implement and dyn-compatible. An operation holds its buffer boxed. It
//! asks the buffer for its memory once, when the operation is made. It calls no method of the
//! buffer until it returns the buffer: the borrow that [`IoBufMut::as_uninit`] and [`IoBuf::bytes`]
//! return lasts that long.
//!
//! An implementation may panic. `as_uninit`, `bytes` and `set_filled` are called in the thread that
//! makes the operation or takes its buffer back, and a panic propagates there. The engine may drop
//! a buffer together with its operation. A panic of the buffer's destructor then has no further
//! effect.

pub(crate) mod bounce;
mod io_buf;
pub(crate) mod memory;
mod pool;
mod raw;

pub use io_buf::{Buffer, IoBuf, IoBufExt, IoBufMut, Limit, Source, downcast, downcast_source};
pub use pool::{BufferPool, PoolBuffer};

pub use crate::sys::raw_memory::RawMemory;
pub use crate::sys::uninit_slice::UninitSlice;
