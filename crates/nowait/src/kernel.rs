//! The abilities of the kernel, of a filesystem and of a file.

pub(crate) mod alignment;
pub mod capability;
pub mod filesystem;
pub(crate) mod flags;
pub(crate) mod support;
