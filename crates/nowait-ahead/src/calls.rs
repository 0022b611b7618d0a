//! The functions that the library interposes. Each calls the C library's, and returns its result.

mod directory;
mod open;
mod stat;
mod tree;
