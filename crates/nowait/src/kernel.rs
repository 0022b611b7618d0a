//! The features that the kernel, a filesystem and a file support.

pub(crate) mod alignment;
pub mod filesystem;
pub(crate) mod flags;
pub mod support;
