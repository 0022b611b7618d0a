//! Decides if the names and inodes of directories are in the kernel's caches.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::fs::{AtFlags, RawDir, statat};

use crate::directory::reopen;

/// Counts the inodes that a walk has read since the last one that was not cached.
pub struct Cached {
    inodes: u32,
    at: Moment,
}

/// A time, and the blocks that this process has read from disks until then (`ru_inblock` of
/// getrusage(2)). A network filesystem does not count its reads there.
#[derive(Clone, Copy)]
struct Moment {
    time: Instant,
    reads: i64,
}

/// Inodes that take longer, on average, were not cached.
const MAX_TIME: Duration = Duration::from_micros(3);
/// The number of cached inodes in a row after which the whole tree is taken to be cached.
const MIN_INODES: u32 = 16_384;
/// The number of names that are read to decide if a directory is cached.
const MAX_NAMES: usize = 1024;
/// The inode of one name in this many is read.
const NAMES_PER_INODE: usize = 16;
/// The size of the buffer of getdents64(2) in bytes. Its names are in one or two blocks.
const BUFFER: usize = 4 << 10;

impl Cached {
    /// None yet.
    pub fn new() -> Cached {
        let at = Moment::now();
        Cached { inodes: 0, at }
    }

    /// Adds inodes that were just read. Returns true if enough in a row were cached.
    pub fn add(&mut self, inodes: usize) -> bool {
        self.add_at(inodes, Moment::now())
    }

    /// The time alone does not decide: several workers wait for different requests, and may return
    /// their inodes at the same moment.
    fn add_at(&mut self, inodes: usize, now: Moment) -> bool {
        self.inodes = self.inodes.saturating_add(inodes as u32);
        let took = now.time.saturating_duration_since(self.at.time);
        if now.reads != self.at.reads || took > MAX_TIME.saturating_mul(self.inodes) {
            *self = Cached { inodes: 0, at: now };
        }
        self.inodes >= MIN_INODES
    }
}

impl Moment {
    fn now() -> Moment {
        let usage = getrusage(UsageWho::RUSAGE_SELF);
        Moment {
            time: Instant::now(),
            reads: usage.map_or(0, |usage| usage.block_reads()),
        }
    }
}

/// Returns true if the first names of a directory and their inodes are cached.
pub fn is_cached(directory: impl AsFd) -> bool {
    first_waits(directory, 1).is_empty()
}

/// Reads the first names of a directory and some of their inodes, and returns the times of the
/// calls that waited, at most `max`. Returns none if all are cached, or if the directory cannot be
/// opened.
pub fn first_waits(directory: impl AsFd, max: usize) -> Vec<Duration> {
    let mut waits = Vec::new();
    let Some(directory) = reopen(directory) else {
        return waits;
    };
    let mut slept = sleeps();
    let mut began = Instant::now();
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut names = RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut has_enough = || {
        let now = sleeps();
        if now != slept {
            waits.push(began.elapsed());
        }
        (slept, began) = (now, Instant::now());
        waits.len() >= max
    };
    for number in 0..MAX_NAMES {
        let entry = names.next();
        if has_enough() {
            break;
        }
        let Some(Ok(entry)) = entry else { break };
        if number % NAMES_PER_INODE == 0 {
            // The file may have been removed.
            let _ = statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            if has_enough() {
                break;
            }
        }
    }
    waits
}

/// The number of times that this thread has slept.
fn sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds inodes that took so many µs and so many blocks of the disk.
    fn add(cached: &mut Cached, inodes: usize, micros: u64, reads: i64) -> bool {
        let now = Moment {
            time: cached.at.time + Duration::from_micros(micros),
            reads: cached.at.reads + reads,
        };
        cached.add_at(inodes, now)
    }

    #[test]
    fn inodes_are_cached_if_they_took_neither_time_nor_reads() {
        let mut cached = Cached::new();
        assert!(!add(&mut cached, 16_000, 30_000, 0));
        assert!(add(&mut cached, 1000, 40_000, 0));
        for (micros, reads) in [(60_000, 0), (0, 1)] {
            let mut cached = Cached::new();
            assert!(!add(&mut cached, 16_000, micros, reads));
            assert!(!add(&mut cached, 1000, 0, 0));
            assert!(add(&mut cached, 16_000, 0, 0));
        }
    }

    #[test]
    fn a_directory_that_was_just_listed_is_cached() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..2000 {
            std::fs::write(root.path().join(n.to_string()), "").unwrap();
        }
        let directory = std::fs::File::open(root.path()).unwrap();
        // The thread may wait for a lock of another program.
        assert!((0..100).any(|_| is_cached(&directory)));
    }
}
