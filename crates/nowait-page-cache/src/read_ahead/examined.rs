//! The parts of one file that were not cached when it was examined.

use std::fs::File;
use std::iter;
use std::num::NonZero;
use std::ops::Range;

use nowait::residency::{Probe, page_size};
use rustix::fs::{Advice, Stat, major, minor};

use crate::file_ref::{FileRef, OpenError};
use crate::holes::{data_from, hole_from};
use crate::ranges::Ranges;

/// The number of bytes that are queried at once. It bounds the memory of a query.
const WINDOW: u64 = 256 << 20;

/// A file that was examined.
#[derive(Debug)]
pub struct Examined {
    file: FileRef,
    device: u64,
    inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The bytes that were neither cached nor in holes. Bytes of unknown residency are missing.
    pub missing: Ranges,
    /// The bytes that were cached.
    pub cached_bytes: u64,
}

impl Examined {
    /// Examines a file, or these bytes of it. Bytes beyond its end are left out. Returns the open
    /// file, too.
    ///
    /// # Errors
    /// If the file cannot be opened or examined.
    pub fn of(file: FileRef, bytes: Option<&Ranges>) -> Result<(Examined, File), OpenError> {
        let (opened, stat) = file.open()?;
        let size = stat.st_size as u64;
        let is_sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
        let mut examined = Examined {
            file,
            device: stat.st_dev,
            inode: stat.st_ino,
            size,
            missing: Ranges::default(),
            cached_bytes: 0,
        };
        let whole = Ranges::from_iter(iter::once(0..size));
        let probe = Probe::new(&opened)?;
        for range in bytes.unwrap_or(&whole).iter() {
            let (mut at, end) = (range.start, range.end.min(size));
            while at < end {
                if is_sparse {
                    at = data_from(&opened, at);
                }
                let mut window = at..end.min(at.saturating_add(WINDOW));
                if window.is_empty() {
                    break;
                }
                if is_sparse {
                    window.end = window.end.min(hole_from(&opened, at));
                }
                at = window.end;
                examined.query(&probe, window)?;
            }
        }
        Ok((examined, opened))
    }

    /// Adds the missing bytes of a window.
    fn query(&mut self, probe: &Probe<'_>, window: Range<u64>) -> nowait::Result<()> {
        let Some(map) = probe.page_map(window.clone())?.known() else {
            self.missing.insert(window);
            return Ok(());
        };
        for run in map.runs() {
            let within = run.range.start.max(window.start)..run.range.end.min(window.end);
            match run.resident {
                true => self.cached_bytes += within.end.saturating_sub(within.start),
                false => self.missing.insert(within),
            }
        }
        Ok(())
    }

    /// Returns true if every byte of the file was missing.
    pub fn is_missing_wholly(&self) -> bool {
        self.missing.iter().eq(iter::once(0..self.size))
    }

    /// Returns true if a mapping or a descriptor has this file's device and inode number.
    pub fn is(&self, device: (u32, u32), inode: u64) -> bool {
        inode == self.inode && device == (major(self.device), minor(self.device))
    }

    /// The path of the file as it was given.
    pub fn path(&self) -> &std::path::Path {
        &self.file.path
    }

    /// The inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The number of bytes of a set that are cached now: 0 if the file was replaced or cannot be
    /// examined.
    pub fn cached_now(&self, bytes: &Ranges) -> u64 {
        let Some(file) = self.open_again().filter(|_| !bytes.is_empty()) else {
            return 0;
        };
        let Ok(probe) = Probe::new(&file) else {
            return 0;
        };
        let cached = bytes.iter().map(|range| {
            let len = range.end - range.start;
            let known = probe.residency(range).ok().and_then(|a| a.known());
            known.map_or(0, |known| (known.cached * page_size()).min(len))
        });
        cached.sum()
    }

    /// Evicts the bytes of a set that were missing. Bytes that were cached before stay.
    pub fn evict(&self, bytes: &Ranges) {
        let Some(file) = self.open_again() else {
            return;
        };
        for range in self.missing.both(bytes).iter() {
            let len = NonZero::new(range.end - range.start);
            // Pages that stay are no failure of the program.
            let _ = rustix::fs::fadvise(&file, range.start, len, Advice::DontNeed);
        }
    }

    /// Opens the file, if it is still the same.
    fn open_again(&self) -> Option<File> {
        let (file, stat): (File, Stat) = self.file.open().ok()?;
        ((stat.st_dev, stat.st_ino) == (self.device, self.inode)).then_some(file)
    }
}
