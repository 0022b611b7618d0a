//! One file that is kept: its size, its residency, and what of it is planned and locked.

use std::fs::File;
use std::ops::Range;

use nowait::residency::{Answer, Probe, Reason, page_size};
use nowait_page_cache::{FileRef, OpenError, data_ranges};
use nowait_residency::windows::evict;
use rustix::fs::Stat;
use rustix::io::Errno;

use super::lock::Lock;

/// The result of looking at an open file.
#[derive(Debug)]
pub struct Look {
    /// Device and inode number.
    pub id: (u64, u64),
    /// True if the file has other names.
    pub linked: bool,
    /// True if the file has holes.
    pub sparse: bool,
    /// The bytes without holes.
    pub size: u64,
    /// The number of the first bytes that are in the page cache, without holes; the reason if that is
    /// unknown.
    pub resident: Result<u64, Reason>,
}

impl Look {
    /// Looks at a file. Residency is that of the first `most` bytes without holes.
    ///
    /// # Errors
    /// Of the residency query.
    pub fn at(file: &File, stat: &Stat, most: u64) -> Result<Look, OpenError> {
        let ranges = data_ranges(file, stat);
        let size = ranges.iter().map(len).sum();
        let mut look = Look {
            id: (stat.st_dev, stat.st_ino),
            linked: stat.st_nlink > 1,
            sparse: size < stat.st_size as u64,
            size,
            resident: Ok(0),
        };
        if ranges.is_empty() {
            return Ok(look);
        }
        let probe = Probe::new(file)?;
        let mut sum = 0;
        for range in beginning(ranges, most) {
            match probe.residency(range.clone())? {
                Answer::Known { value, .. } if value.cached < value.pages => {
                    sum += (value.cached * page_size()).min(len(&range));
                }
                Answer::Known { .. } => sum += len(&range),
                Answer::Unknown(why) => {
                    look.resident = Err(why);
                    return Ok(look);
                }
            }
        }
        look.resident = Ok(sum);
        Ok(look)
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The first bytes of ranges, `most` of them.
pub fn beginning(ranges: Vec<Range<u64>>, most: u64) -> Vec<Range<u64>> {
    let mut left = most;
    let ranges = ranges.into_iter().map_while(|range| {
        let taken = len(&range).min(left);
        left -= taken;
        (taken > 0).then(|| range.start..range.start + taken)
    });
    ranges.collect()
}

/// A file of a path.
#[derive(Debug, Default)]
pub struct Entry {
    /// Device and inode number; zeros before the first look.
    pub id: (u64, u64),
    /// The bytes without holes.
    pub size: u64,
    /// The number of the first bytes without holes that are to be resident.
    pub planned: u64,
    /// The number of bytes that were resident at the last look.
    pub resident: u64,
    /// The number of the first bytes that are to be locked; 0 for files with holes.
    pub lock_to: u64,
    pub lock: Option<Box<Lock>>,
    /// The reason why the residency is unknown.
    pub unknown: Option<Reason>,
    /// The file has other names.
    pub linked: bool,
    /// Another name of the file comes before this one. Only that one is kept and counted.
    pub again: bool,
    /// The file has holes.
    pub sparse: bool,
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
            // The file is still there.
            Err(why) if why.is_shortage() => return false,
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
        self.sparse = look.sparse;
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
    fn note_full(&mut self) {
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
        self.missing() > 0 || (self.locked() != self.lock_to && !self.tried)
    }

    /// Locks the first bytes of a file up to `end`, as far as they are to be locked. Bytes that are
    /// locked already are locked again, because some may have been dropped since.
    ///
    /// # Errors
    /// Of mmap(2) and mlock(2). Nothing stays locked then.
    pub fn lock(&mut self, file: &FileRef, end: u64) -> Result<(), Errno> {
        if self.lock_to == 0 {
            self.lock = None;
            return Ok(());
        }
        let mut lock = match self.lock.take() {
            Some(lock) if lock.room() == self.lock_to => lock,
            _ => match file.open() {
                Ok((file, stat)) if (stat.st_dev, stat.st_ino) == self.id => {
                    Box::new(Lock::new(&file, self.lock_to)?)
                }
                // An event or the next sweep reports the change.
                _ => return Ok(()),
            },
        };
        lock.extend(end.min(self.lock_to))?;
        self.lock = Some(lock);
        Ok(())
    }
}

/// Drops the pages of a file from the page cache, except for the first `kept` bytes without holes.
pub fn evict_after(file: &FileRef, kept: u64, id: (u64, u64)) {
    if let Ok((file, stat)) = file.open()
        && (stat.st_dev, stat.st_ino) == id
    {
        let kept = beginning(data_ranges(&file, &stat), kept);
        let end = kept.last().map_or(0, |last| last.end);
        let _ = evict(&file, &(end..u64::MAX));
    }
}

/// A number of bytes in whole pages, as memory holds them.
pub fn in_pages(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(page_size())
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_ranges_ends_within_one() {
        let ranges = || vec![10..20, 30..40];
        assert_eq!(beginning(ranges(), 0), []);
        assert_eq!(beginning(ranges(), 10), vec![10..20]);
        assert_eq!(beginning(ranges(), 11), [10..20, 30..31]);
        assert_eq!(beginning(ranges(), u64::MAX), ranges());
    }
}
