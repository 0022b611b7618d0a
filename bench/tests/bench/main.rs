//! `nowait-bench` as a program: what it prints, what it refuses, and what it leaves behind. No test
//! depends on how fast anything is.

mod aio;
mod common;
mod compare;
mod directories;
mod iops;
mod page_cache;
mod residency;
mod runtimes;
