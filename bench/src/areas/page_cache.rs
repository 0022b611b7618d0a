//! Reads through the page cache: cold, cached, at each hit rate, and the cost of single calls.

pub mod cached;
mod crossing;
pub mod hitrate;
pub mod mapped;
pub mod randread;
pub mod syscalls;
mod turnover;
