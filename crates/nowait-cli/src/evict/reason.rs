//! Why pages stayed.

use std::path::PathBuf;

use nowait::residency::{Answer, Reason};

use super::act::Done;
use super::holders::{Holder, Holders};

/// A file as it is shown.
pub struct Row {
    pub path: PathBuf,
    pub size: u64,
    /// What was counted, in bytes.
    pub counted: Result<Counted, Reason>,
    pub why: Vec<Why>,
}

/// Memory of a file.
#[derive(Clone, Copy)]
pub struct Counted {
    pub before: u64,
    pub evicted: u64,
    pub stayed: u64,
}

/// One reason, for so many bytes.
pub struct Why {
    pub kind: Kind,
    pub bytes: u64,
    /// Who maps the file, where that is the reason.
    pub by: Vec<Holder>,
}

/// The reasons that there are.
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
    /// A stable word.
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

    /// For people, with what one can do about it.
    pub fn text(self) -> &'static str {
        match self {
            Kind::Dirty => "dirty: --flush writes it first",
            Kind::Writeback => "being written: --flush waits for that",
            Kind::Mapped => "mapped by",
            Kind::Memory => "lies in memory: there is no other place for it",
            Kind::Held => {
                "held: in use by the kernel, read again, or mapped by a process that is not yours to see"
            }
            Kind::Mixed => {
                "dirty, being written or in use: here they can't be told apart; try --flush"
            }
        }
    }
}

impl Row {
    /// What there is to say of a file. In a dry run, of what would stay.
    pub fn new(path: PathBuf, done: &Done, dry_run: bool, holders: &mut Holders) -> Row {
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
        let mut whom = |pages| match pages {
            0 => Vec::new(),
            _ => holders.of(&done.stat, &path),
        };
        match (after.dirty, after.writeback) {
            _ if done.in_memory => because(Kind::Memory, after.cached, Vec::new()),
            (Some(dirty), Some(writeback)) => {
                because(Kind::Dirty, dirty, Vec::new());
                because(Kind::Writeback, writeback, Vec::new());
                let rest = after.cached.saturating_sub(dirty + writeback);
                match whom(rest) {
                    nobody if nobody.is_empty() && dry_run => {}
                    nobody if nobody.is_empty() => because(Kind::Held, rest, nobody),
                    by => because(Kind::Mapped, rest, by),
                }
            }
            _ => match whom(after.cached) {
                nobody if nobody.is_empty() && dry_run => {}
                nobody if nobody.is_empty() => because(Kind::Mixed, after.cached, nobody),
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

    /// Whether something stayed, or nobody can say.
    pub fn is_news(&self) -> bool {
        self.counted.map_or(true, |counted| counted.stayed > 0)
    }
}
