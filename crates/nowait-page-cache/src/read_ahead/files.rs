//! The files of a read_ahead: what is missing, what was read, and what the program has used.
//!
//! ```text
//!  missing ─► unread ─► (in flight) ─► read ─► used by the program
//! ```

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::examined::Examined;
use crate::ranges::Ranges;

/// The maximum length of a read in bytes.
pub const MAX_READ: u64 = 1 << 20;

/// The examined files, in the order in which they were named.
#[derive(Debug, Default)]
pub struct Files {
    files: HashMap<usize, AheadFile>,
    /// The files that have unread bytes.
    unread: BTreeSet<usize>,
    /// The place at which the program was last seen to use a file.
    pub position: Option<Place>,
    /// The bytes that are missing in all files.
    pub missing_bytes: u64,
}

/// A byte of a file: the number of the file, and the position in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub file: usize,
    pub at: u64,
}

/// One file.
#[derive(Clone, Debug)]
pub struct AheadFile {
    pub examined: Arc<Examined>,
    /// The missing bytes for which no read was started.
    pub unread: Ranges,
    /// The bytes that were read. Cached bytes between missing ones may be among them.
    pub read: Ranges,
    /// The bytes that the program was seen to use.
    pub used: Ranges,
}

/// A range to read in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: usize,
    pub range: Range<u64>,
    /// The number of bytes of it that are missing.
    pub missing: u64,
}

impl Files {
    /// Adds a file with its number.
    pub fn add(&mut self, number: usize, examined: Examined) {
        let file = AheadFile {
            unread: examined.missing.clone(),
            read: Ranges::default(),
            used: Ranges::default(),
            examined: Arc::new(examined),
        };
        self.missing_bytes += file.unread.bytes();
        if !file.unread.is_empty() {
            self.unread.insert(number);
        }
        self.files.insert(number, file);
    }

    /// A file.
    pub fn get(&self, number: usize) -> Option<&AheadFile> {
        self.files.get(&number)
    }

    /// The files, in any order, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &AheadFile)> {
        self.files.iter().map(|(&number, file)| (number, file))
    }

    /// Returns true if there are unread bytes.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The first place at or after `from` that is unread.
    pub fn unread_from(&self, from: Place) -> Option<Place> {
        self.unread.range(from.file..).find_map(|&file| {
            let from = if file == from.file { from.at } else { 0 };
            let unread = self.files.get(&file)?.unread.first_from(from)?;
            Some(Place {
                file,
                at: unread.start,
            })
        })
    }

    /// The first unread place that the program has not used. Unread bytes that it has used are
    /// dropped: it has read them itself.
    pub fn unread_and_unused(&mut self) -> Option<Place> {
        loop {
            let place = self.unread_from(Place::default())?;
            let file = self.files.get_mut(&place.file)?;
            match file
                .used
                .first_from(place.at)
                .filter(|used| used.start == place.at)
            {
                None => return Some(place),
                Some(used) => file.unread.remove(used),
            }
            if file.unread.is_empty() {
                self.unread.remove(&place.file);
            }
        }
    }

    /// The number of bytes from one place to a later one.
    pub fn distance(&self, from: Place, to: Place) -> u64 {
        if from.file == to.file {
            return to.at - from.at;
        }
        let size = |number| self.get(number).map_or(0, |file| file.examined.size);
        let between: u64 = (from.file + 1..to.file).map(size).sum();
        size(from.file).saturating_sub(from.at) + between + to.at
    }

    /// Takes a piece from the unread bytes: the unread ranges from `place` to the next multiple of
    /// [`MAX_READ`], with the cached bytes between them.
    pub fn take(&mut self, place: Place) -> Option<Piece> {
        let file = self.files.get_mut(&place.file)?;
        let end = (place.at + 1).next_multiple_of(MAX_READ);
        let mut piece = Piece {
            file: place.file,
            range: place.at..place.at,
            missing: 0,
        };
        while let Some(next) = file.unread.first_from(piece.range.end)
            && next.start < end
        {
            let next = next.start..next.end.min(end);
            piece.missing += next.end - next.start;
            piece.range.end = next.end;
            file.unread.remove(next);
        }
        if file.unread.is_empty() {
            self.unread.remove(&place.file);
        }
        (piece.missing > 0).then_some(piece)
    }

    /// Adds bytes that were read.
    pub fn read(&mut self, number: usize, range: Range<u64>) {
        if let Some(file) = self.files.get_mut(&number) {
            file.read.insert(range);
        }
    }

    /// Drops the unread bytes of a file, for example after an error.
    pub fn abandon(&mut self, number: usize) {
        if let Some(file) = self.files.get_mut(&number) {
            file.unread = Ranges::default();
            self.unread.remove(&number);
        }
    }

    /// Adds bytes that the program was seen to use. Its position is the beginning of their last
    /// part.
    pub fn use_bytes(&mut self, number: usize, range: Range<u64>, position: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.used.insert(range);
            self.position = Some(Place {
                file: number,
                at: position,
            });
        }
    }

    /// The number of unread bytes that the program has not used.
    pub fn unread_bytes(&self) -> u64 {
        let unread = self.unread.iter().filter_map(|number| self.get(*number));
        unread
            .map(|file| file.unread.without(&file.used).bytes())
            .sum()
    }
}
