//! The peers, one file each: how it opens the file, and what it does for one operation.

pub mod blocking;
pub mod compio;
pub mod nowait;
mod on_tokio;
pub mod pread;
mod stream;
pub mod tokio_fs;
pub mod tokio_uring;
