//! The reasons why pages stayed.

use std::path::{Path, PathBuf};

use nowait::residency::{Answer, Reason, Residency};

use super::eviction::Outcome;
use super::processes::{MappingProcess, MappingProcesses};

/// One processed file.
#[derive(Debug)]
pub struct Row {
    /// The path.
    pub path: PathBuf,
    /// The size in bytes.
    pub size: u64,
    /// The counts, or the reason why they are unknown.
    pub counted: Result<Counted, Reason>,
    /// The reasons why pages stayed.
    pub why: Vec<Why>,
}

/// A file's memory in the page cache, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Cached before.
    pub before: u64,
    /// Evicted.
    pub evicted: u64,
    /// Cached after.
    pub stayed: u64,
}

/// One reason, and the number of bytes that stayed for it.
#[derive(Debug)]
pub struct Why {
    /// The reason.
    pub kind: Kind,
    /// The number of bytes.
    pub bytes: u64,
    /// The processes that map the file, if that is the reason.
    pub by: Vec<MappingProcess>,
}

/// A reason why pages stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Changed and not yet written.
    Dirty,
    /// Being written.
    Writeback,
    /// Mapped by processes.
    Mapped,
    /// The filesystem stores its files in memory.
    Memory,
    /// In use by the kernel, read again, or mapped by a process whose maps may not be read.
    Held,
    /// Any of the others: without cachestat(2) they cannot be told apart.
    Mixed,
}

impl Kind {
    /// The name of the reason. It does not change between versions.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Dirty => "dirty",
            Kind::Writeback => "writeback",
            Kind::Mapped => "mapped",
            Kind::Memory => "memory",
            Kind::Held => "held",
            Kind::Mixed => "mixed",
        }
    }
}

/// The reasons why the pages of `after` stay. In a dry run, pages that may be evicted have none.
fn reasons(
    path: &Path,
    done: &Outcome,
    after: &Residency,
    dry_run: bool,
    processes: &mut MappingProcesses,
) -> Vec<Why> {
    let mut why = Vec::new();
    let mut because = |kind, pages, by| {
        if pages > 0 {
            let bytes = pages * rustix::param::page_size() as u64;
            why.push(Why { kind, bytes, by });
        }
    };
    let mut mapped_by = |pages| match pages {
        0 => Vec::new(),
        _ => processes.of(&done.stat, path),
    };
    match (after.dirty, after.writeback) {
        _ if done.in_memory => because(Kind::Memory, after.cached, Vec::new()),
        (Some(dirty), Some(writeback)) => {
            because(Kind::Dirty, dirty, Vec::new());
            because(Kind::Writeback, writeback, Vec::new());
            let rest = after.cached.saturating_sub(dirty + writeback);
            match mapped_by(rest) {
                none if none.is_empty() && dry_run => {}
                none if none.is_empty() => because(Kind::Held, rest, none),
                by => because(Kind::Mapped, rest, by),
            }
        }
        _ => match mapped_by(after.cached) {
            none if none.is_empty() && dry_run => {}
            none if none.is_empty() => because(Kind::Mixed, after.cached, none),
            by => because(Kind::Mapped, after.cached, by),
        },
    }
    why
}

impl Row {
    /// The row for a file. In a dry run it predicts what would stay.
    pub(super) fn new(
        path: PathBuf,
        done: &Outcome,
        dry_run: bool,
        processes: &mut MappingProcesses,
    ) -> Row {
        let size = done.stat.st_size as u64;
        let (before, after) = match (done.before, done.after) {
            (Answer::Known { value: before, .. }, Answer::Known { value: after, .. }) => {
                (before, after)
            }
            (Answer::Unknown(why), _) | (_, Answer::Unknown(why)) => {
                return Row {
                    path,
                    size,
                    counted: Err(why),
                    why: Vec::new(),
                };
            }
        };
        let why = reasons(&path, done, &after, dry_run, processes);
        let before = before.cached * rustix::param::page_size() as u64;
        let stayed = why.iter().map(|why| why.bytes).sum();
        Row {
            path,
            size,
            counted: Ok(Counted {
                before,
                evicted: before.saturating_sub(stayed),
                stayed,
            }),
            why,
        }
    }

    /// Returns true if pages stayed or the residency is unknown.
    pub fn is_incomplete(&self) -> bool {
        self.counted.map_or(true, |counted| counted.stayed > 0)
    }
}
