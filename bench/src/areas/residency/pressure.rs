//! Pressure on memory, or on the file alone: what takes its pages away while they are asked about.
//!
//! - `light`, `heavy`: the process has a memory cgroup that allows less than the file needs, and a
//!   thread that takes memory, dirties it, gives it back, fills what is free now with pages of
//!   another file, and begins again: reclaim has to find pages over and over, however few the
//!   probe misses. The memory is a memfd(2): without swap nothing of it can be reclaimed, as of a
//!   mapping. The other file is one of holes, whose pages cost no device anything.
//! - the same without a cgroup: the thread takes memory until the kernel's reclaim begins, and then
//!   goes to and fro there. All programs on the machine feel that.
//! - `evict`: a thread drops parts of the file (POSIX_FADV_DONTNEED) and reads them back. Needs
//!   neither rights nor memory, and shows that a race is seen where there are many.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::fs::{Advice, MemfdFlags};
use serde::{Deserialize, Serialize};

use crate::harness::offsets::mix;
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;

/// What happens to the file's pages meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// Nothing: all of the file is and stays cached
    None,
    /// An eighth of the file too little memory, and a sixteenth taken every 20 ms
    Light,
    /// Half of the file too little memory, and an eighth taken without a pause
    Heavy,
    /// No shortage; a thread evicts parts of the file and reads them back
    Evict,
}

/// How memory is squeezed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Squeeze {
    /// Bytes that the cgroup lacks.
    pub lacks: u64,
    /// Bytes that are taken and given back.
    pub takes: u64,
    /// Between two takings.
    pub pause: Duration,
}

impl Pressure {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Pressure::None => "none",
            Pressure::Light => "light",
            Pressure::Heavy => "heavy",
            Pressure::Evict => "evict",
        }
    }

    /// On memory, for a file of this size.
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

/// What is written at once, between two looks at whether to end.
const STEP: u64 = 1 << 20;

/// Memory that a thread takes and gives back.
pub struct Held {
    memory: File,
    /// The other file, and where its next pages are.
    holes: File,
    next: u64,
    /// What is written and read at once.
    step: Vec<u8>,
    /// Bytes that stay taken.
    base: u64,
    squeeze: Squeeze,
}

impl Held {
    /// For a process whose cgroup lacks memory.
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

    /// For a process without a cgroup: takes memory until the kernel reclaims some, or `most`
    /// bytes. Says what came of it.
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
                    "the pressure thread holds {size}; whether the kernel reclaims any can't be \
                     seen here (/proc/vmstat)"
                ),
                (_, false) => format!(
                    "the pressure thread holds {size}: there the kernel began to reclaim, from \
                     every program on the machine"
                ),
                (_, true) => format!(
                    "the pressure thread holds {size}, as much as it may, and the kernel reclaimed \
                     nothing: there was NO pressure; a larger --memory makes some"
                ),
            },
        ))
    }

    /// Takes and gives back until told to end.
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

    /// Brings as much of the other file as was given back.
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

/// Bytes of the other file: when it begins again, its first pages have long gone.
const HOLES: u64 = 64 << 30;

/// A file of holes without a name, beside another or in the current directory.
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

/// The most that a pressure thread takes if nobody says how much: an eighth of what is available
/// stays.
pub fn most() -> u64 {
    available_memory().map_or(0, |bytes| bytes - bytes / 8)
}

/// Pages that the kernel has looked at to reclaim them, for want of memory on the whole machine.
fn scanned() -> Option<u64> {
    let text = nowait_cli::proc::read("/proc/vmstat");
    let [by_kswapd, direct] =
        ["pgscan_kswapd", "pgscan_direct"].map(|name| nowait_cli::proc::number_of(&text, name));
    Some(by_kswapd? + direct?)
}

/// Parts of a file that are evicted at once.
const PARTS: u64 = 32;

/// Evicts parts of a file and reads them back, until told to end.
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
