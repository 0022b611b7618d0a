//! `nowait-bench` as a program: its output, its errors, and the files that it leaves. No test depends on a
//! time.

mod ahead;
mod aio;
mod asks;
mod bad_input;
mod common;
mod compare;
mod container;
mod directories;
mod documents;
mod iops;
mod keep_cache;
mod object_store;
mod page_cache;
mod programs;
mod report;
mod residency;
mod ring;
mod runtimes;
mod server;
mod sources;
mod tools;
