//! One file that is kept, and a look at its residency.

use std::fs::File;
use std::ops::Range;

use nowait::residency::{Answer, Probe, Reason, page_size};
use nowait_page_cache::{OpenError, data_ranges};
use rustix::fs::Stat;

use super::lock::Lock;

/// The result of looking at an open file.
#[derive(Debug)]
pub struct Look {
    /// Device and inode number.
    pub id: (u64, u64),
    /// True if the file has other names.
    pub linked: bool,
    /// The bytes without holes.
    pub size: u64,
    /// The bytes that are in the page cache, without holes; the reason if that is unknown.
    pub resident: Result<u64, Reason>,
}

impl Look {
    /// Looks at the first bytes of a file, up to `end`.
    ///
    /// # Errors
    /// Of the residency query.
    pub fn at(file: &File, stat: &Stat, end: u64) -> Result<Look, OpenError> {
        let ranges = data_ranges(file, stat);
        let len = |range: &Range<u64>| range.end - range.start;
        let mut look = Look {
            id: (stat.st_dev, stat.st_ino),
            linked: stat.st_nlink > 1,
            size: ranges.iter().map(len).sum(),
            resident: Ok(0),
        };
        if ranges.is_empty() {
            return Ok(look);
        }
        let probe = Probe::new(file)?;
        for range in ranges {
            let range = range.start..range.end.min(end);
            if range.is_empty() {
                break;
            }
            match (probe.residency(range.clone())?, &mut look.resident) {
                (Answer::Known { value, .. }, Ok(sum)) if value.cached < value.pages => {
                    *sum += (value.cached * page_size()).min(len(&range));
                }
                (Answer::Known { .. }, Ok(sum)) => *sum += len(&range),
                (Answer::Unknown(why), _) => look.resident = Err(why),
                (_, Err(_)) => {}
            }
        }
        Ok(look)
    }
}

/// A file of a path.
#[derive(Debug, Default)]
pub struct Entry {
    /// Device and inode number; zeros before the first look.
    pub id: (u64, u64),
    /// The bytes without holes.
    pub size: u64,
    /// The bytes from the beginning that are to be resident.
    pub planned: u64,
    /// The bytes that were resident at the last look.
    pub resident: u64,
    /// The bytes from the beginning that are to be locked.
    pub lock_to: u64,
    pub lock: Option<Box<Lock>>,
    /// The reason why the residency is unknown.
    pub unknown: Option<Reason>,
    pub linked: bool,
    /// All planned bytes were resident once. If some are missing, they were evicted.
    pub was_full: bool,
    /// Nothing more is tried until the next sweep or change.
    pub tried: bool,
    /// The file could not be opened or examined.
    pub failed: bool,
}

impl Entry {
    /// Takes over a look. Returns true if the size is another one, or the file is.
    pub fn apply(&mut self, look: Result<Look, OpenError>) -> bool {
        let look = match look {
            Ok(look) => look,
            Err(_) => {
                let had = self.size > 0;
                *self = Entry {
                    failed: true,
                    ..Entry::default()
                };
                return had;
            }
        };
        let is_new = self.id != look.id;
        if is_new {
            // A file that was replaced or removed is let go, so that its disk space is free.
            *self = Entry::default();
        }
        let resized = is_new || self.failed || self.size != look.size;
        self.failed = false;
        self.id = look.id;
        self.linked = look.linked;
        self.size = look.size;
        match look.resident {
            Ok(resident) => {
                self.unknown = None;
                self.resident = resident;
            }
            Err(why) => {
                self.unknown = Some(why);
                self.resident = 0;
            }
        }
        self.note_full();
        resized
    }

    /// Remembers that all planned bytes are resident.
    pub fn note_full(&mut self) {
        if self.planned > 0 && self.unknown.is_none() && self.resident >= self.planned {
            self.was_full = true;
        }
    }

    /// The number of planned bytes that are missing, or may be.
    pub fn missing(&self) -> u64 {
        match self.tried {
            true => 0,
            false => self.planned.saturating_sub(self.resident),
        }
    }

    /// The number of bytes that are locked.
    pub fn locked(&self) -> u64 {
        self.lock.as_ref().map_or(0, |lock| lock.len())
    }

    /// Returns true if something is to be read or locked.
    pub fn needs_work(&self) -> bool {
        let unlocked = self.lock_to > 0 && self.locked() != self.lock_to;
        self.missing() > 0 || (unlocked && !self.tried)
    }
}

/// A number of bytes in whole pages, as memory holds them.
pub fn in_pages(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(page_size())
        .unwrap_or(u64::MAX)
}
