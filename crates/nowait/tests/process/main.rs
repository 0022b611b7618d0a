//! Processes that fork, or in which system calls, memory, threads or descriptors are refused.
//!
//! Each test runs its body in a child process of its own, in which no other test runs.

#[path = "../common"]
mod common {
    pub mod backends;
    pub mod by_workers;
    pub mod cache;
    pub mod children;
    pub mod completions;
    pub mod drive;
    pub mod drop_here;
    pub mod errnos;
    pub mod files;
    pub mod forked;
    pub mod handles;
    pub mod limit;
    pub mod old_container;
    pub mod results;
    pub mod sandbox;
    pub mod shared_engine;
    pub mod terminal;
    pub mod wait;
}

mod denied_ring;
mod errnos;
mod failing;
mod false_end;
mod fork;
mod fork_borrowed;
mod fork_load;
mod interrupted;
mod limits;
mod process_one;
mod scarce;
mod shutdown;
