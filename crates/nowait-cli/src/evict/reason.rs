//! The reasons why pages stayed.

use std::path::PathBuf;

use nowait::residency::{Answer, Reason};

use super::eviction::Outcome;
use super::processes::{MappingProcess, MappingProcesses};

/// One shown file.
pub struct Row {
    pub path: PathBuf,
    pub size: u64,
    /// The counts, or the reason why they are unknown.
    pub counted: Result<Counted, Reason>,
    pub why: Vec<Why>,
}

/// A file's memory in the page cache, in bytes.
#[derive(Clone, Copy)]
pub struct Counted {
    pub before: u64,
    pub evicted: u64,
    pub stayed: u64,
}

/// One reason, and the number of bytes that stayed for it.
pub struct Why {
    pub kind: Kind,
    pub bytes: u64,
    /// The processes that map the file, if that is the reason.
    pub by: Vec<MappingProcess>,
}

/// A reason why pages stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Dirty,
    Writeback,
    Mapped,
    Memory,
    Held,
    Mixed,
}

impl Kind {
    /// The name of the reason in JSON and in the total. It does not change between versions.
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

    /// A description, with the option that helps.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Dirty => "dirty: --flush writes it first",
            Kind::Writeback => "being written: --flush waits for that",
            Kind::Mapped => "mapped by",
            Kind::Memory => "stored in memory only (tmpfs)",
            Kind::Held => {
                "held: used by the kernel, read again, or mapped by a process whose maps you may not read"
            }
            Kind::Mixed => {
                "dirty, being written or in use (cannot be told apart without cachestat): try --flush"
            }
        }
    }
}

impl Row {
    /// The row for a file. In a dry run it predicts what would stay.
    pub fn new(
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
        let mut why = Vec::new();
        let mut because = |kind, pages, by| {
            if pages > 0 {
                let bytes = pages * rustix::param::page_size() as u64;
                why.push(Why { kind, bytes, by });
            }
        };
        let mut mapped_by = |pages| match pages {
            0 => Vec::new(),
            _ => processes.of(&done.stat, &path),
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
