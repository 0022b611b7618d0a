//! Pressure on memory or on the file, under which pages of the file are reclaimed.
//!
//! - `light`, `heavy`: the limit of the process's memory cgroup is less than the file needs. A
//!   thread dirties memory, frees it, reads as much of another file, and repeats this, so that the
//!   kernel keeps reclaiming pages also if the questions miss rarely. The memory is a
//!   memfd_create(2) file, which cannot be reclaimed without swap. The other file has only holes,
//!   so reading it uses no device.
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

use crate::harness::contender::Named;
use nowait_cli::problem::Problem;
use nowait_cli::scramble::mix;

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

impl Named for Pressure {
    fn is_ours(&self) -> bool {
        false
    }
}

/// The amounts of a shortage of memory.
#[derive(Clone, Copy, Debug)]
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
    squeeze: Squeeze,
}

impl Held {
    /// No memory at first.
    pub fn new(squeeze: Squeeze, beside: &Path) -> Result<Held, Problem> {
        let memory = rustix::fs::memfd_create("nowait-race", MemfdFlags::CLOEXEC)
            .map_err(|e| Problem::of("memfd_create", e))?;
        Ok(Held {
            memory: memory.into(),
            holes: holes(beside)?,
            next: 0,
            step: vec![1; STEP as usize],
            squeeze,
        })
    }

    /// Takes and frees memory until `end` is set.
    pub fn breathe(mut self, end: &AtomicBool) -> Result<(), Problem> {
        loop {
            let failed = |e| Problem::of("the pressure thread's memory", e);
            for at in (0..self.squeeze.takes).step_by(STEP as usize) {
                if end.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.memory.write_all_at(&self.step, at).map_err(failed)?;
            }
            self.memory.set_len(0).map_err(failed)?;
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
