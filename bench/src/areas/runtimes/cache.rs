//! Puts the page cache into the state of a cell, before every turn.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nowait::residency::{page_size, residency};
use rustix::fs::Advice;

use crate::areas::runtimes::cell::Work;
use crate::areas::runtimes::turn::Turn;
use crate::harness::memory;

/// The way it is done, for the report.
pub const HOW: &str = "cached: the file's first 256 MiB are read through before a turn unless all of them are in the \
     page cache; cold: POSIX_FADV_DONTNEED until no page is, then as much \
     memory as the file needs is used and freed; mixed: the same, then the blocks that are \
     to be hits are read, without readahead; writes: fdatasync(2) before a turn, all pages cached";

/// Puts the page cache into the state for a turn.
pub fn prepare(turn: &Turn) -> io::Result<()> {
    let options = File::options()
        .read(true)
        .write(turn.is_write())
        .open(&turn.file)?;
    let file = &options;
    match turn.cell.work {
        Work::Cached => warm(file, turn.cell.span(turn.size)),
        Work::Cold => {
            evict(file)?;
            memory::touch(turn.size);
            Ok(())
        }
        Work::Mixed(rate) => {
            evict(file)?;
            memory::touch(turn.size);
            let places = turn.places();
            let all = turn.cell.reads(turn.size).unwrap_or(0) + turn.cell.lead() * turn.cell.tasks;
            let hits = (0..all).filter(|&i| places.is_hit(i, rate));
            warm_blocks(file, hits.map(|i| turn.place(&places, i)), turn.block())
        }
        Work::Sequential | Work::Positional => {
            file.sync_data()?;
            warm(file, turn.cell.span(turn.size))
        }
    }
}

/// Reads the file up to `end` into the page cache.
fn warm(file: &File, end: u64) -> io::Result<()> {
    if resident(file, end)?.is_some_and(|there| there >= end) {
        return Ok(());
    }
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < end {
        match file.read_at(&mut buffer, at)? {
            0 => break,
            n => at += n as u64,
        }
    }
    Ok(())
}

/// Evicts the file. The kernel may still be reading pages that an earlier turn asked for, so this is
/// repeated until none is left.
fn evict(file: &File) -> io::Result<()> {
    for _ in 0..50 {
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?;
        if resident(file, u64::MAX)?.is_none_or(|there| there == 0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(io::Error::other(
        "it stays in the page cache: another program maps or writes it, or its filesystem is in memory",
    ))
}

/// Reads these blocks into the page cache, without readahead.
fn warm_blocks(file: &File, offsets: impl Iterator<Item = u64>, block: usize) -> io::Result<()> {
    rustix::fs::fadvise(file, 0, None, Advice::Random)?;
    let mut offsets: Vec<u64> = offsets.collect();
    offsets.sort_unstable();
    // All blocks are requested first, so that the device has many requests at a time.
    for &at in &offsets {
        let len = std::num::NonZeroU64::new(block as u64);
        rustix::fs::fadvise(file, at, len, Advice::WillNeed)?;
    }
    let mut buffer = vec![0; block];
    for at in offsets {
        file.read_exact_at(&mut buffer, at)?;
    }
    Ok(())
}

/// How many of the first `end` bytes of the file are cached, in whole pages; `None` if the kernel does not
/// report it.
fn resident(file: &File, end: u64) -> io::Result<Option<u64>> {
    let answer = residency(file, 0..end).map_err(io::Error::other)?;
    Ok(answer.known().map(|known| known.cached * page_size()))
}
