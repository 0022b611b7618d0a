//! Reads and writes of files: the bytes, the source that a completion reports, residency, strict mode.

#[path = "../common"]
mod common {
    pub mod accounting;
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod completions;
    pub mod drive;
    pub mod files;
    pub mod handles;
    pub mod limit;
    pub mod mounts;
    pub mod nobody;
    pub mod rig;
    pub mod samples;
    pub mod shared_engine;
    pub mod wait;
}

mod bytes;
mod cached_read;
mod direct;
mod erofs;
mod history;
mod hit_path;
mod keep_cache;
mod other_uid;
mod overlay;
mod provenance;
mod raw_memory;
mod residency;
mod residency_calls;
mod strict;
