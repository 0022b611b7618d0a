//! Pressure on memory or on the file, under which pages of the file are reclaimed.
//!
//! - `light`, `heavy`: the limit of the process's memory cgroup is less than the file needs. A
//!   thread dirties memory, frees it, reads as much of another file, and repeats this, so that the
//!   kernel keeps reclaiming pages also if the questions miss rarely. The memory is a
//!   memfd_create(2) file, which cannot be reclaimed without swap. The other file has only holes,
//!   so reading it uses no device.
//! - the same without a cgroup: the thread takes memory until the kernel begins to reclaim, then
//!   frees and takes a part of it. This slows down all programs on the machine.
//! - `evict`: a thread evicts parts of the file (POSIX_FADV_DONTNEED) and reads them back. It needs
//!   no privilege, and shows that the bench detects races.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::fs::{Advice, MemfdFlags};
use serde::{Deserialize, Serialize};

use crate::harness::scramble::mix;
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;

/// The pressure on the pages of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// No pressure: the whole file stays cached
    None,
    /// Memory lacks 1/8 of the file's size, and a thread takes and frees 1/16 of it every 20 ms
    Light,
    /// Memory lacks 1/2 of the file's size, and a thread takes and frees 1/8 of it without a pause
    Heavy,
    /// Enough memory; a thread evicts parts of the file and reads them back
    Evict,
}

/// The amounts of a shortage of memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Squeeze {
    /// Bytes that the cgroup lacks.
    pub lacks: u64,
    /// Bytes that the thread takes and frees.
    pub takes: u64,
    /// The pause before the thread takes memory again.
    pub pause: Duration,
}

impl Pressure {
    /// The shortage of memory for a file of this size; `None` if memory is not short.
    pub fn squeeze(self, file: u64) -> Option<Squeeze> {
        match self {
            Pressure::Light => Some(Squeeze {
                lacks: file / 8,
                takes: file / 16,
                pause: Duration::from_millis(20),
            }),
            Pressure::Heavy => Some(Squeeze {
                lacks: file / 2,
                takes: file / 8,
                pause: Duration::ZERO,
            }),
            Pressure::None | Pressure::Evict => None,
        }
    }
}

/// Bytes of one write. The thread checks for its end after each.
const STEP: u64 = 1 << 20;

/// Memory that a thread takes and frees.
pub struct Held {
    memory: File,
    /// The other file, and the offset of the next read of it.
    holes: File,
    next: u64,
    /// The buffer of a write or read.
    step: Vec<u8>,
    /// Bytes that are never freed.
    base: u64,
    squeeze: Squeeze,
}

impl Held {
    /// No memory at first, for a process whose cgroup lacks memory.
    pub fn nothing(squeeze: Squeeze, beside: &Path) -> Result<Held, Problem> {
        let memory = rustix::fs::memfd_create("nowait-race", MemfdFlags::CLOEXEC)
            .map_err(|e| Problem::of("memfd_create", e))?;
        Ok(Held {
            memory: memory.into(),
            holes: holes(beside)?,
            next: 0,
            step: vec![1; STEP as usize],
            base: 0,
            squeeze,
        })
    }

    /// Takes memory until the kernel reclaims some, or `most` bytes, for a process without a
    /// cgroup. Returns a note on the result.
    pub fn until_reclaim(
        squeeze: Squeeze,
        beside: &Path,
        most: u64,
    ) -> Result<(Held, String), Problem> {
        let mut held = Held::nothing(squeeze, beside)?;
        let before = scanned();
        let mut size = 0;
        while size + STEP <= most && scanned() == before {
            held.take(size)?;
            size += STEP;
        }
        held.squeeze.takes = held.squeeze.takes.min(size / 2);
        held.base = size - held.squeeze.takes;
        let size = Size(size);
        Ok((
            held,
            match (before, scanned() == before) {
                (None, _) => format!(
                    "the pressure thread holds {size}; /proc/vmstat does not say if the kernel \
                     reclaims any"
                ),
                (_, false) => format!(
                    "the pressure thread holds {size}: then the kernel began to reclaim memory of \
                     all programs on the machine"
                ),
                (_, true) => format!(
                    "the pressure thread holds {size}, as much as it may, and the kernel reclaimed \
                     nothing: there was NO pressure; a larger --memory makes some"
                ),
            },
        ))
    }

    /// Takes and frees memory until `end` is set.
    pub fn breathe(mut self, end: &AtomicBool) -> Result<(), Problem> {
        loop {
            let mut at = self.base;
            while at < self.base + self.squeeze.takes {
                if end.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.take(at)?;
                at += STEP;
            }
            self.memory
                .set_len(self.base)
                .map_err(|e| Problem::of("the pressure thread's memory", e))?;
            self.fill(end)?;
            pause(self.squeeze.pause, end);
        }
    }

    /// Reads as much of the other file as was freed.
    fn fill(&mut self, end: &AtomicBool) -> Result<(), Problem> {
        for _ in 0..self.squeeze.takes / STEP {
            if end.load(Ordering::Relaxed) {
                break;
            }
            self.holes
                .read_exact_at(&mut self.step, self.next)
                .map_err(|e| Problem::of("the pressure thread's file", e))?;
            self.next = (self.next + STEP) % HOLES;
        }
        Ok(())
    }

    fn take(&self, at: u64) -> Result<(), Problem> {
        self.memory
            .write_all_at(&self.step, at)
            .map_err(|e| Problem::of("the pressure thread's memory", e))
    }
}

/// Bytes of the other file. Its first pages are reclaimed before the thread reads them again.
const HOLES: u64 = 64 << 30;

/// A file without a name that has only holes, in the directory of `beside` or in the current one.
fn holes(beside: &Path) -> Result<File, Problem> {
    let directory = beside.parent().filter(|d| !d.as_os_str().is_empty());
    directory
        .and_then(|directory| tempfile::tempfile_in(directory).ok())
        .map_or_else(|| tempfile::tempfile_in("."), Ok)
        .and_then(|file| file.set_len(HOLES).map(|()| file))
        .map_err(|e| {
            Problem::Failed(format!(
                "the pressure thread needs an empty file in the current directory: {e}; go to a \
                 directory that you may write to"
            ))
        })
}

fn pause(time: Duration, end: &AtomicBool) {
    let until = Instant::now() + time;
    while !end.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// The most memory that a pressure thread takes by default: 7/8 of the available memory.
pub fn most() -> u64 {
    available_memory().map_or(0, |bytes| bytes - bytes / 8)
}

/// The number of pages that the kernel has scanned for reclaim, because the machine lacked memory.
fn scanned() -> Option<u64> {
    let text = nowait_cli::proc::read("/proc/vmstat");
    let [by_kswapd, direct] =
        ["pgscan_kswapd", "pgscan_direct"].map(|name| nowait_cli::proc::number_of(&text, name));
    Some(by_kswapd? + direct?)
}

/// The number of parts of the file; one is evicted at a time.
const PARTS: u64 = 32;

/// Evicts parts of a file and reads them back, until `end` is set.
pub fn evict(path: &Path, size: u64, end: &AtomicBool) -> Result<(), Problem> {
    let file = crate::harness::files::open(path)?;
    let part = size / PARTS;
    let mut buffer = vec![0; part as usize];
    for i in 0u64.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let at = mix(i) % PARTS * part;
        rustix::fs::fadvise(&file, at, std::num::NonZeroU64::new(part), Advice::DontNeed)
            .map_err(|e| Problem::of("fadvise DONTNEED", e))?;
        pause(Duration::from_millis(1), end);
        file.read_exact_at(&mut buffer, at)
            .map_err(|e| Problem::of("read", e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_up_to_the_limit_and_given_back() {
        let squeeze = Pressure::Heavy.squeeze(64 << 20).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("data");
        let (held, note) = Held::until_reclaim(squeeze, &beside, 4 << 20).unwrap();
        let size = held.memory.metadata().unwrap().len();
        assert!(
            size <= 4 << 20 && note.contains(&Size(size).to_string()),
            "{note}"
        );
        assert_eq!(held.base + held.squeeze.takes, size);
        held.breathe(&AtomicBool::new(true)).unwrap();
    }
}
