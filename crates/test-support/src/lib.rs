//! Helpers of the tests of all crates.

pub mod calls;
pub mod limit;
pub mod opens;
pub mod pages;
pub mod repeat;

pub use limit::{LONG, Limit, ended, wait_until};
pub use repeat::{Excuse, repeat};
