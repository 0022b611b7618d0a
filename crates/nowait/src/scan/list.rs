//! Listing: getdents64(2), in one stream or, if the filesystem permits it, in several parallel
//! ones.
//!
//! ```text
//!  positions  0 ────────────────────┬───────────────────┬─────────────────── end
//!             part, next ─► … end = p   part from p …    part from q …
//! ```
//!
//! A directory position (`d_off`, the argument of lseek(2)) is a hash on ext4, a byte offset
//! divided by eight on xfs, and a running index on btrfs. On these filesystems a further descriptor
//! can seek to any position and list from there, so parts of the range of positions can be listed
//! in parallel.
//!
//! **Each name exactly once.** The `d_off` of an entry is the position of the *next* entry. A call
//! thus gives the positions of all its entries but the first. The position of the first is at least
//! that of the stream: an lseek(2) may have moved the stream between two entries, or the entry at
//! its position was removed. A part does not begin at the position that was sought. It begins at
//! the first known position `p` that is greater than the one before it. The entries before `p` are
//! discarded, because the part that they belong to lists them. From then on, numbers decide: an
//! entry belongs to the part that contains its position. Entries keep their positions, so names
//! that are created or removed meanwhile do not move others between parts. (ext4 gives names of
//! equal hash equal positions. `p` is greater than the position before it, so that they are not
//! separated.)
//!
//! If the end of a part lies between the lower bound of a first entry and the position after it,
//! the entry may belong to either part. The directory is then read again from the end of the part
//! on. An entry whose name is found there belongs to the next part.
//!
//! A part that is being listed can be split further, in the range that has not been listed. Its
//! worker learns of the new end when it returns its entries, and those beyond the end are
//! discarded.
//!
//! On other filesystems the meaning of positions is unknown, and one stream lists the directory.

#[cfg(any(fuzzing, nowait_internals))]
pub(super) mod dirents;
#[cfg(any(test, fuzzing, nowait_internals))]
#[path = "../../tests/parts/simulated_directory.rs"]
pub(super) mod simulated;
mod stream;

use std::sync::Arc;

use stream::{DirFd, UncertainEntry};
pub(super) use stream::{DirStream, Listed, Problem, Split};

use super::directory::Directory;
use super::entry::EntryTable;
use crate::error::Result;
use crate::sys::cast::to_usize;
use nowait_residency::magic;

/// The minimum number of entries for which a further part is worth a descriptor.
const WORTH_A_PART: u64 = 1024;
/// The buffer size of a getdents64(2) call. The first call has a smaller one, because a single
/// thread waits for it if the directory is not cached.
const FIRST_BUFFER_SIZE: usize = 8 << 10;
const BUFFER_SIZE: usize = 16 << 10;
/// The size of the smallest dirent, for estimates of how many fit.
const SMALLEST: usize = 24;

/// The meaning of directory positions on a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positions {
    /// Unknown. Positions can only be used to continue a listing.
    Opaque,
    /// Hashes of 63 bits: ext4.
    Hash,
    /// Byte offsets divided by eight: xfs.
    Offset,
    /// A running index: btrfs.
    Index,
}

impl Positions {
    pub(super) fn of(number: u64) -> Positions {
        match number {
            magic::EXT4 => Positions::Hash,
            magic::XFS => Positions::Offset,
            magic::BTRFS => Positions::Index,
            _ => Positions::Opaque,
        }
    }
}

/// The state of the listing of one directory.
#[derive(Debug)]
pub(super) struct Listing {
    positions: Positions,
    parts: Vec<Part>,
    /// The maximum number of parts. It is 1 if splitting is impossible or has failed.
    max_parts: usize,
    may_split: bool,
    /// The buffer size of one call.
    buffer_size: usize,
    /// The directory's `st_size`.
    size: u64,
    /// The number of attempted splits in progress.
    splitting: usize,
    /// The index of the next evenly spaced split.
    even: u64,
    /// The end of the range of positions, as far as it is known.
    range_end: u64,
    /// Positions per entry.
    positions_per_entry: f64,
    /// The number of parts created by splitting.
    splits: u64,
}

/// A part of the range of positions.
#[derive(Debug)]
struct Part {
    /// All positions before it are listed, or their last entry is in doubt.
    next: u64,
    /// The next part's first position.
    end: u64,
    /// The stream that lists the part; `None` while a worker uses it.
    stream: Option<DirStream>,
    /// The number by which the part is found when the worker returns.
    id: u64,
    /// True while a worker tries to split the part.
    splitting: bool,
}

/// The next step of a listing.
#[derive(Debug)]
pub(super) enum Step {
    /// Continue a stream.
    List(DirStream),
    /// Open a further stream at this position.
    Split(u64),
}

impl Listing {
    /// A listing from the directory's beginning, in at most `most` parts. A call lists at most
    /// about `limit` entries.
    pub(super) fn new(directory: &Arc<Directory>, most: usize, limit: usize) -> Listing {
        let positions = Positions::of(directory.filesystem().magic());
        let buffer_size = limit.saturating_mul(2 * SMALLEST).clamp(512, BUFFER_SIZE);
        let stream = DirStream::new(
            DirFd::First(directory.clone()),
            0,
            buffer_size.min(FIRST_BUFFER_SIZE),
        );
        Listing {
            positions,
            parts: vec![Part {
                next: 0,
                end: u64::MAX,
                stream: Some(stream),
                id: 0,
                splitting: false,
            }],
            max_parts: if positions == Positions::Opaque {
                1
            } else {
                most.max(1)
            },
            may_split: true,
            buffer_size,
            size: directory.size(),
            splitting: 0,
            even: 1,
            range_end: 0,
            positions_per_entry: 0.0,
            splits: 0,
        }
    }

    /// The buffer size of one step.
    pub(super) fn buffer_size(&self) -> usize {
        self.buffer_size
    }

    /// The maximum number of entries of one step.
    pub(super) fn step(&self) -> usize {
        self.buffer_size / SMALLEST
    }

    /// The number of parts created by splitting.
    pub(super) fn splits(&self) -> u64 {
        self.splits
    }

    /// Sets whether descriptors are available for more parts.
    pub(super) fn allow_splits(&mut self, yes: bool) {
        self.may_split = yes;
    }

    /// The number of parts, including attempted ones.
    pub(super) fn parts(&self) -> usize {
        self.parts.len() + self.splitting
    }

    /// Stops listing.
    pub(super) fn stop(&mut self) {
        self.parts.clear();
        self.max_parts = 1;
        self.range_end = 0;
    }

    /// Returns true if everything is listed.
    pub(super) fn is_over(&self) -> bool {
        self.parts.is_empty() && self.splitting == 0
    }

    /// Returns true if a step can start.
    pub(super) fn has_step(&self) -> bool {
        self.where_to_split().is_some() || self.parts.iter().any(|part| part.stream.is_some())
    }

    /// Takes the next step. Splits come first, because they create further work.
    pub(super) fn pick(&mut self) -> Option<Step> {
        if let Some((at, guess)) = self.where_to_split() {
            self.splitting += 1;
            match self.next_even() {
                Some((even, _, _)) => self.even = even + 1,
                None => self.parts[at].splitting = true,
            }
            return Some(Step::Split(guess));
        }
        let stream = self.parts.iter_mut().find_map(|part| part.stream.take());
        stream.map(Step::List)
    }

    /// The position at which to split, and the part it is in, if a further part is worth it. The
    /// first splits are spaced evenly. Later ones halve the part with the most positions left.
    fn where_to_split(&self) -> Option<(usize, u64)> {
        if !self.may_split || self.parts() >= self.max_parts || self.range_end == 0 {
            return None;
        }
        if let Some((_, at, guess)) = self.next_even() {
            return Some((at, guess));
        }
        let left = |part: &Part| part.end.min(self.range_end).saturating_sub(part.next);
        let unsplit = self
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| !part.splitting);
        let (at, part) = unsplit.max_by_key(|(_, part)| left(part))?;
        let worth = 2.0 * self.positions_per_entry * WORTH_A_PART as f64;
        (left(part) as f64 > worth).then(|| (at, part.next + left(part) / 2))
    }

    /// The next even split in a range that is not yet listed: its number, the index of the part,
    /// and the position.
    fn next_even(&self) -> Option<(u64, usize, u64)> {
        (self.even..self.max_parts as u64).find_map(|even| {
            let guess = u128::from(self.range_end) * u128::from(even) / self.max_parts as u128;
            let guess = u64::try_from(guess).ok()?;
            let at = self.part_with(guess)?;
            Some((even, at, guess))
        })
    }

    fn part_with(&self, position: u64) -> Option<usize> {
        let has = |part: &Part| part.next < position && position < part.end;
        self.parts.iter().position(has)
    }

    /// Stores the entries of a stream. Returns the rows that belong to its part, and the problem if
    /// there was one.
    pub(super) fn add(&mut self, listed: Listed) -> (EntryTable, Option<Problem>) {
        let Some(at) = self
            .parts
            .iter()
            .position(|part| part.id == listed.stream.part)
        else {
            return (EntryTable::default(), None);
        };
        let part = self.parts.swap_remove(at);
        let estimate = part.id == 0 && part.next == 0;
        let (rows, problem) = self.continue_part(part, listed);
        if estimate {
            self.estimate(&rows);
        }
        (rows, problem)
    }

    /// Keeps a part for further listing, unless it is complete.
    fn continue_part(&mut self, mut part: Part, listed: Listed) -> (EntryTable, Option<Problem>) {
        let is_uncertain = listed.first_may_lie_beyond(part.end);
        let Listed {
            mut stream,
            mut rows,
            positions,
            over,
            ..
        } = listed;
        if is_uncertain {
            rows.truncate(1);
            stream.uncertain = Some(Box::new(UncertainEntry {
                row: rows,
                from: positions[0],
                to: *positions.get(1).unwrap_or(&stream.at),
                end: part.end,
            }));
            part.next = part.end;
            part.stream = Some(stream);
            self.parts.push(part);
            return (EntryTable::default(), None);
        }
        let read = rows.len();
        // The last part has no end: all entries are its own.
        if part.end < u64::MAX {
            rows.truncate(
                positions
                    .iter()
                    .position(|p| *p >= part.end)
                    .unwrap_or(read),
            );
        }
        part.next = part.next.max(stream.at);
        if over.is_none() && rows.len() == read && part.next < part.end {
            stream.buffer_size = self.buffer_size;
            part.stream = Some(stream);
            self.parts.push(part);
        }
        (rows, over.and_then(Result::err))
    }

    /// Estimates, after the first call, the end of the positions and the number of parts that the
    /// directory is worth.
    fn estimate(&mut self, rows: &EntryTable) {
        let (Some(part), true) = (self.parts.first(), rows.len() > 0) else {
            return;
        };
        let entries = rows.len() as f64;
        self.positions_per_entry = part.next as f64 / entries;
        self.range_end = match self.positions {
            Positions::Opaque => 0,
            Positions::Hash => 1 << 63,
            Positions::Offset => self.size / 8,
            // On btrfs `st_size` is twice the length of all names.
            Positions::Index => {
                let name = rows.name_bytes() as f64 / entries;
                whole(self.size as f64 / 2.0 / name * self.positions_per_entry)
            }
        };
        let all = whole(self.range_end as f64 / self.positions_per_entry);
        self.max_parts = self.max_parts.min((all / WORTH_A_PART).max(1) as usize);
    }

    /// Stores the result of a split: a new part and its first rows, if it succeeded.
    pub(super) fn add_part(&mut self, split: Split) -> (EntryTable, Option<Problem>) {
        self.splitting -= 1;
        let nothing = (EntryTable::default(), None);
        let mut listed = match split.listed {
            Ok(listed) => listed,
            Err(_) => {
                // No descriptor is available, or permission was withdrawn. The open streams
                // continue.
                self.max_parts = self.parts.len().max(1);
                return nothing;
            }
        };
        let Some(first) = listed.first_known() else {
            // Fewer than two positions are known: the guess was near or beyond the end.
            if listed.over == Some(Ok(())) {
                self.range_end = self.range_end.min(split.guess);
            }
            return nothing;
        };
        let begin = listed.positions[first];
        let Some(at) = self.part_with(begin) else {
            return nothing;
        };
        listed.rows.skip(first);
        listed.positions.drain(..first);
        listed.first_is_exact = true;
        let old = &mut self.parts[at];
        let end = std::mem::replace(&mut old.end, begin);
        old.splitting = false;
        self.splits += 1;
        listed.stream.part = self.splits;
        let part = Part {
            next: begin,
            end,
            stream: None,
            id: self.splits,
            splitting: false,
        };
        self.continue_part(part, listed)
    }
}

/// Lists entries from the directory's current position on, which is `start`, in the calling thread.
/// Returns at most `most` entries, and the position after them.
pub(super) fn first(
    directory: &Arc<Directory>,
    start: u64,
    most: u64,
) -> Result<(Vec<EntryTable>, u64)> {
    let mut stream = DirStream::new(DirFd::First(directory.clone()), start, BUFFER_SIZE);
    let (mut all, mut left, mut next) = (Vec::new(), most, start);
    while left > 0 {
        let mut listed = stream.read();
        let take = to_usize(left);
        next = match listed.positions.get(take) {
            Some(position) => *position,
            None => listed.stream.at,
        };
        listed.rows.truncate(take);
        left -= listed.rows.len() as u64;
        all.push(listed.rows);
        match listed.over {
            None => {}
            Some(Err(Problem::Os(errno))) if left == most => {
                return Err(directory.failed("getdents64", errno));
            }
            Some(_) => break,
        }
        stream = listed.stream;
    }
    Ok((all, next))
}

/// Converts a float to an integer, without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from a float this is the nearest number that there is"
)]
fn whole(n: f64) -> u64 {
    n as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no directories")]
    fn a_part_begins_where_positions_are_known_and_grow() {
        let first_known = |positions: &[u64]| {
            let dir = Directory::blocking_open(std::path::Path::new(".")).unwrap();
            let listed = Listed {
                stream: DirStream::new(DirFd::First(Arc::new(dir)), 0, 0),
                rows: EntryTable::default(),
                positions: positions.to_vec(),
                first_is_exact: false,
                over: None,
            };
            listed.first_known()
        };
        // The first position is only a lower bound. The second entry may have the same one.
        assert_eq!(first_known(&[10, 12]), None);
        assert_eq!(first_known(&[10, 12, 13]), Some(2));
        // Equal hashes are not separated.
        assert_eq!(first_known(&[10, 12, 12, 12, 15]), Some(4));
        assert_eq!(first_known(&[10, 10, 10]), None);
        assert_eq!(first_known(&[]), None);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: 20_000,
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        #[cfg_attr(miri, ignore = "Miri opens no directories")]
        fn no_name_comes_twice_while_names_come_and_go(
            kind in 33u8..36,
            parts in 2u8..16,
            size in 1u64 << 16..1 << 40,
            names in proptest::collection::vec(0u8..80, 10..200),
            choices in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2_000),
        ) {
            simulated::exactly_once(kind, parts, size, &names, &choices);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no directories")]
    fn a_row_in_doubt_belongs_to_the_part_that_it_is_found_in() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        for n in 0..500 {
            std::fs::write(path(&format!("name{n}")), "").unwrap();
        }
        let directory = Arc::new(Directory::blocking_open(temporary.path()).unwrap());
        // A small buffer: the row may be found in a later call.
        let stream = || DirStream::new(DirFd::First(directory.clone()), 0, 512);
        let listed = DirStream::new(DirFd::First(directory.clone()), 0, 1 << 20).seek_and_read(0);
        let at = listed.positions.len() / 2;
        let (from, here, to) = (
            listed.positions[at - 100],
            listed.positions[at],
            listed.positions[at + 1],
        );
        let name = listed.rows.name(at).to_str().unwrap();
        let decided = |end: u64| {
            let mut row = EntryTable::default();
            row.copy(&listed.rows, at);
            stream().find_owner(UncertainEntry { row, from, to, end })
        };
        let returned = |end: u64| {
            let listed = decided(end);
            assert_eq!(listed.over, Some(Ok(())));
            listed.rows.len()
        };
        assert_eq!(returned(to), 1);
        assert_eq!(returned(here), 0);
        assert_eq!(returned(from), 0);
        // rename(2) to a name gives it another inode.
        std::fs::write(path("other"), "").unwrap();
        std::fs::rename(path("other"), path(name)).unwrap();
        assert!(returned(to) + returned(from) <= 1);
        std::fs::remove_file(path(name)).unwrap();
        assert_eq!(returned(to), 0);
        assert_eq!(returned(here), 0);
    }
}
