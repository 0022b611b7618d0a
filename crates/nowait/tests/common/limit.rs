//! A time limit for tests that could hang.

pub use test_support::limit::Limit;
