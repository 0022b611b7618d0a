//! The peers, one file each: opening the file, and one operation.

pub mod blocking;
pub mod compio;
pub mod nowait;
mod on_threads;
mod on_tokio;
mod positional;
pub mod pread;
mod stream;
pub mod tokio_fs;
pub mod tokio_uring;
