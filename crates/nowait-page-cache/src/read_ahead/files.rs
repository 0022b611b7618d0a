//! The files of a read_ahead: what is missing, what was read, and what the program has used.
//!
//! ```text
//!  missing ─► unread ─► (in flight) ─► read ─► used by the program
//! ```

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::examined::Examined;
use nowait_residency::ranges::Ranges;

/// The maximum length of a read in bytes.
pub const MAX_READ: u64 = 1 << 20;

/// The examined files, in the order in which they were named.
#[derive(Debug, Default)]
pub struct Files {
    files: HashMap<usize, AheadFile>,
    /// The numbers of the files, by inode number and device.
    numbers: BTreeMap<(u64, u64), usize>,
    /// The files that have unread bytes, and were not left.
    unread: BTreeSet<usize>,
    /// The place at which the program was last seen to use a file.
    pub position: Option<Place>,
    /// The bytes to be read in all files.
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
    /// The bytes to be read for which no read was started.
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
    /// The number of bytes of it that are to be read.
    pub missing: u64,
    /// True if the program was seen to use all of it. It may have read it itself.
    pub is_used: bool,
}

impl Files {
    /// Adds a file with its number. Returns the number of its first name, if it has several names.
    pub fn add(&mut self, number: usize, examined: Examined) -> usize {
        let (number, unread) = match self.numbers.entry(examined.id()) {
            Entry::Vacant(place) => {
                place.insert(number);
                let unread = examined.unread();
                let file = AheadFile {
                    unread: unread.clone(),
                    read: Ranges::default(),
                    used: Ranges::default(),
                    examined: Arc::new(examined),
                };
                self.files.insert(number, file);
                (number, unread)
            }
            Entry::Occupied(place) => {
                let number = *place.get();
                let Some(file) = self.files.get_mut(&number) else {
                    return number;
                };
                let unread = Arc::make_mut(&mut file.examined).add(&examined);
                unread.iter().for_each(|range| file.unread.add(range));
                (number, unread)
            }
        };
        if !unread.is_empty() {
            self.missing_bytes += unread.bytes();
            self.unread.insert(number);
        }
        number
    }

    /// The files with an inode number, which may be on several filesystems.
    pub fn with_inode(&self, inode: u64) -> impl Iterator<Item = (usize, &AheadFile)> {
        let numbers = self.numbers.range((inode, 0)..=(inode, u64::MAX));
        numbers.filter_map(|(_, &number)| Some((number, self.get(number)?)))
    }

    /// A file.
    pub fn get(&self, number: usize) -> Option<&AheadFile> {
        self.files.get(&number)
    }

    /// The files, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &AheadFile> {
        self.files.values()
    }

    /// Returns true if there are unread bytes.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns true if a file has unread bytes.
    pub fn is_unread(&self, number: usize) -> bool {
        self.unread.contains(&number)
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
    /// [`MAX_READ`] that only cached bytes separate, with these bytes.
    pub fn take(&mut self, place: Place) -> Option<Piece> {
        let file = self.files.get_mut(&place.file)?;
        let end = (place.at + 1).next_multiple_of(MAX_READ);
        let mut piece = Piece {
            file: place.file,
            range: place.at..place.at,
            missing: 0,
            is_used: false,
        };
        while let Some(next) = file.unread.first_from(piece.range.end)
            && next.start < end
            && (piece.missing == 0 || file.examined.cached.has(piece.range.end..next.start))
        {
            let next = next.start..next.end.min(end);
            piece.missing += next.end - next.start;
            piece.range.end = next.end;
            file.unread.remove(next);
        }
        if file.unread.is_empty() {
            self.unread.remove(&place.file);
        }
        piece.is_used = file.used.has(piece.range.clone());
        (piece.missing > 0).then_some(piece)
    }

    /// Adds bytes that were read.
    pub fn read(&mut self, number: usize, range: Range<u64>) {
        if let Some(file) = self.files.get_mut(&number) {
            file.read.add(range);
        }
    }

    /// Drops the unread bytes of a file, for example after an error.
    pub fn abandon(&mut self, number: usize) {
        if let Some(file) = self.files.get_mut(&number) {
            file.unread = Ranges::default();
            self.unread.remove(&number);
        }
    }

    /// Leaves the rest of a file to the program.
    pub fn leave(&mut self, number: usize) {
        self.unread.remove(&number);
    }

    /// Adds bytes that the program was seen to use. Its position is the beginning of their last
    /// part.
    pub fn use_bytes(&mut self, number: usize, range: Range<u64>, position: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.used.add(range);
            self.position = Some(Place {
                file: number,
                at: position,
            });
        }
    }

    /// The number of unread bytes that the program has not used.
    pub fn unread_bytes(&self) -> u64 {
        let unread = self.files.values();
        unread
            .map(|file| file.unread.without(&file.used).bytes())
            .sum()
    }
}
