//! The shared memory through which programs tell `nowait run` of the directories that they open.
//!
//! `nowait run` creates a [`Channel`] and reads [`Event`]s from it. The preload library
//! libnowait_ahead.so attaches to it in each program and [tells](Channel::tell) of directories and
//! calls of stat(2). A program makes no system call for that and never waits: it takes no lock, and
//! an event that finds no place overwrites the oldest one. A program that is killed at any
//! instruction leaves the channel usable.
#![allow(unsafe_code)]

use std::time::Duration;

mod claims;
mod counter;
mod event;
mod evicted;
mod mappings;
mod memory;
mod ring;
mod sandbox;

pub use counter::Moment;
pub use event::{Event, Kind, Missing, PATH_MAX, Place, birth, key};
pub use evicted::EvictedFiles;
pub use mappings::{release_mappings, used_mappings};
pub use ring::{Channel, Counts, Listening, Reader};
pub use sandbox::has_filter;

/// The environment variable with the channel's path and key, `PATH:KEY`.
pub const VARIABLE: &str = "NOWAIT_AHEAD_CHANNEL";
/// The environment variable with the path and key of the channel for surveys of the page cache.
pub const SURVEY_VARIABLE: &str = "NOWAIT_SURVEY_CHANNEL";
/// The environment variable with the path and key of the channel for what programs use, by which
/// `nowait run --learn` loads the same before they run again.
pub const LEARN_VARIABLE: &str = "NOWAIT_LEARN_CHANNEL";
/// The environment variable that turns the library off, with the value `off`.
pub const SWITCH: &str = "NOWAIT_AHEAD";
/// The bytes of a directory (`st_size`) that is large. The names of some thousand files take as
/// much.
pub const LARGE: i64 = 128 << 10;
/// The number of names that a program lists in a row, after which the directory is sent as
/// [`Kind::Large`].
pub const MANY: usize = 512;
/// A call that takes this long may have waited for the disk. A cached one takes 1 or 2 µs, and
/// longer if another program had the processor meanwhile: `nowait run` looks if the thread has
/// slept.
pub const SLOW: Duration = Duration::from_micros(12);
/// A call that takes this long may have waited for the head of a rotating disk to move.
pub const SEEK: Duration = Duration::from_millis(2);
