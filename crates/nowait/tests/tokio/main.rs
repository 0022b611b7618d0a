//! `nowait::tokio`, compared with `tokio::fs`.

#[path = "../common"]
mod common {
    pub mod accounting;
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod files;
    pub mod forked;
    pub mod growing;
    pub mod limit;
    pub mod mounts;
    pub mod old_container;
    pub mod rig;
    pub mod samples;
    pub mod sandbox;
    pub mod shared_engine;
    pub mod terminal;
    pub mod truncation;
    pub mod wait;
}

mod bad;
mod calls;
mod differential;
mod dir_calls;
mod file;
mod open_and_read;
mod ours;
mod paused_clock;
mod position;
mod read_to_end;
mod stat_only;
mod surface;
