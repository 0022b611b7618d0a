//! Features of a ring: registered files and buffers, SQPOLL, polled completions, worker limits.

#[path = "../common"]
mod common {
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod completions;
    pub mod drive;
    pub mod files;
    pub mod handles;
    pub mod kinds;
    pub mod limit;
    pub mod results;
    pub mod rings;
    pub mod wait;
}

mod batch;
mod buffers;
mod files;
mod polled;
mod provenance;
mod readable;
mod restricted;
mod sqpoll;
mod sync;
mod workers;
