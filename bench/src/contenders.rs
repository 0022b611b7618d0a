//! The contenders that read a file in several areas: one file for each way to read.

pub mod blocking;
mod call;
pub mod fio;
pub mod future;
pub mod local;
pub mod mapped;
pub mod pool;
