//! The parts of one file that were not cached when it was examined.

use std::borrow::Cow;
use std::fs::File;
use std::iter;
use std::ops::Range;
use std::path::Path;

use nowait::Handle;
use nowait::residency::{Answer, Probe, Reason, page_size};
use rustix::fs::{SeekFrom, Stat, major, minor};

use crate::file_ref::{FileRef, OpenError, waiting};
use crate::holes::take_window;
use crate::stop::Stop;
use nowait_residency::ranges::Ranges;
use nowait_residency::windows::evict;

/// The number of bytes that are queried at once. It bounds the memory of a query.
const WINDOW: u64 = 256 << 20;

/// A file that was examined. Bytes in holes are in none of its sets.
#[derive(Clone, Debug)]
pub struct Examined {
    file: FileRef,
    device: u64,
    inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The bytes that were not cached.
    pub missing: Ranges,
    /// The bytes that were cached.
    pub cached: Ranges,
    /// The bytes of unknown residency, and the reason.
    pub unknown: Ranges,
    pub reason: Option<Reason>,
}

impl Examined {
    /// Examines a file, or these bytes of it, until a stop is requested. Bytes beyond its end are left
    /// out. Returns a handle of the file, too, whose reads wait.
    ///
    /// # Errors
    /// If the file cannot be opened or examined.
    pub fn of(
        file: FileRef,
        bytes: Option<&Ranges>,
        stop: &Stop,
    ) -> Result<(Examined, Handle), OpenError> {
        let (opened, stat) = file.open()?;
        let size = stat.st_size as u64;
        let is_sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
        let mut examined = Examined {
            file,
            device: stat.st_dev,
            inode: stat.st_ino,
            size,
            missing: Ranges::default(),
            cached: Ranges::default(),
            unknown: Ranges::default(),
            reason: None,
        };
        let whole = Ranges::from_iter(iter::once(0..size));
        let probe = Probe::new(&opened)?;
        for range in bytes.unwrap_or(&whole).iter() {
            let mut rest = range.start..range.end.min(size);
            while !stop.asked()
                && let Some(window) = take_window(&opened, &mut rest, is_sparse, WINDOW)
            {
                examined.query(&probe, window)?;
            }
        }
        if is_sparse {
            // The search for holes has moved the position. A position that moves is one of the program.
            rustix::fs::seek(&opened, SeekFrom::Start(0))?;
        }
        drop(probe);
        Ok((examined, waiting(opened)?))
    }

    /// Adds a window to the sets.
    fn query(&mut self, probe: &Probe<'_>, window: Range<u64>) -> nowait::Result<()> {
        let map = match probe.page_map(window.clone())? {
            Answer::Known { value, .. } => value,
            Answer::Unknown(reason) => {
                self.unknown.add(window);
                self.reason = Some(reason);
                return Ok(());
            }
        };
        for run in map.runs() {
            let within = run.range.start.max(window.start)..run.range.end.min(window.end);
            match run.resident {
                true => self.cached.add(within),
                false => self.missing.add(within),
            }
        }
        Ok(())
    }

    /// The bytes to be read: those that are missing, or of unknown residency.
    pub fn unread(&self) -> Ranges {
        self.missing.iter().chain(self.unknown.iter()).collect()
    }

    /// Adds another examination of the same file. What was examined before stays, because it may have
    /// been read since. Returns the bytes to be read that were not examined before.
    pub fn add(&mut self, other: &Examined) -> Ranges {
        let known: Vec<_> = [&self.missing, &self.cached, &self.unknown]
            .into_iter()
            .flat_map(Ranges::iter)
            .collect();
        let known = known.into_iter().collect();
        let new = other.unread().without(&known);
        for (own, others) in [
            (&mut self.missing, &other.missing),
            (&mut self.cached, &other.cached),
            (&mut self.unknown, &other.unknown),
        ] {
            others
                .without(&known)
                .iter()
                .for_each(|range| own.add(range));
        }
        self.reason = self.reason.or(other.reason);
        self.size = self.size.max(other.size);
        new
    }

    /// Returns true if every byte of the file is to be read.
    pub fn is_unread_wholly(&self) -> bool {
        self.unread().iter().eq(iter::once(0..self.size))
    }

    /// Returns true if a mapping or a descriptor has this file's device and inode number.
    pub fn is(&self, device: (u32, u32), inode: u64) -> bool {
        inode == self.inode && device == (major(self.device), minor(self.device))
    }

    /// The path of the file as it was given.
    pub fn path(&self) -> Cow<'_, Path> {
        self.file.path()
    }

    /// The inode number, and the device.
    pub fn id(&self) -> (u64, u64) {
        (self.inode, self.device)
    }

    /// The number of bytes of a set that are cached now; `None` if it is unknown, or the file was
    /// removed or replaced.
    pub fn cached_now(&self, bytes: &Ranges) -> Option<u64> {
        if bytes.is_empty() {
            return Some(0);
        }
        let file = self.open_again()?;
        let probe = Probe::new(&file).ok()?;
        let cached = bytes.iter().map(|range| {
            let len = range.end - range.start;
            let known = probe.residency(range).ok()?.known()?;
            Some((known.cached * page_size()).min(len))
        });
        cached.sum()
    }

    /// Evicts the bytes of a set that were missing. Bytes that were cached before, or may have been,
    /// stay.
    pub fn evict(&self, bytes: &Ranges) {
        let missing = self.missing.both(bytes);
        if missing.is_empty() {
            return;
        }
        let Some(file) = self.open_again() else {
            return;
        };
        let page = page_size();
        for range in missing.iter() {
            // The whole of a page was missing. Parts of pages are not evicted.
            let start = range.start - range.start % page;
            // Pages that stay are no failure of the program.
            let _ = evict(&file, &(start..range.end.next_multiple_of(page)));
        }
    }

    /// Opens the file, if it is still the same.
    fn open_again(&self) -> Option<File> {
        let (file, stat): (File, Stat) = self.file.open().ok()?;
        ((stat.st_dev, stat.st_ino) == (self.device, self.inode)).then_some(file)
    }
}
