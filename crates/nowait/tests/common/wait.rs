//! Waiting for another thread.

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use test_support::limit::{LONG, wait_until};
