//! The identity of a directory.

/// Device and inode number (`st_dev`, `st_ino`).
pub type Id = (u64, u64);
