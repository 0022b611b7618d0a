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

use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{RawDir, SeekFrom};

use super::directory::Directory;
use super::entry::EntryTable;
use crate::error::Result;
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::retry;
use nowait_residency::magic;

/// The minimum number of entries for which a further part is worth a descriptor.
const WORTH_A_PART: u64 = 1024;
/// The buffer size of a getdents64(2) call. The first call has a smaller one, because a single
/// thread waits for it if the directory is not cached.
const FIRST_BUFFER_SIZE: usize = 8 << 10;
const BUFFER_SIZE: usize = 16 << 10;
/// The buffer size that any dirent fits: a name is at most as long as a path.
const ANY_DIRENT_SIZE: usize = 8 << 10;
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

/// A descriptor that lists, and its position.
#[derive(Debug)]
pub(super) struct DirStream {
    fd: DirFd,
    part: u64,
    /// A lower bound of the position of the next entry. It is exact unless lseek(2) moved the
    /// stream or an entry was removed.
    at: u64,
    buffer_size: usize,
    cycle: CycleDetector,
    /// The last row of the part, if it may belong to the next one.
    uncertain: Option<Box<UncertainEntry>>,
}

/// The first row of a call, if it may belong to the part that was listed or to the next one.
#[derive(Debug)]
struct UncertainEntry {
    row: EntryTable,
    /// The lower and the upper bound of the row's position.
    from: u64,
    to: u64,
    /// The end of the part, which lies between the bounds.
    end: u64,
}

/// The descriptor of a stream.
#[derive(Debug)]
enum DirFd {
    /// The directory's own descriptor.
    First(Arc<Directory>),
    Own(OwnedFd),
}

impl AsFd for DirFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            DirFd::First(directory) => directory.as_fd(),
            DirFd::Own(fd) => fd.as_fd(),
        }
    }
}

/// The result of one getdents64(2) call.
#[derive(Debug)]
pub(super) struct Listed {
    stream: DirStream,
    rows: EntryTable,
    /// The position of each row. That of the first row is a lower bound unless `first_is_exact` is
    /// set.
    positions: Vec<u64>,
    first_is_exact: bool,
    /// Set if the stream has ended or the call has failed.
    over: Option<Result<(), Problem>>,
}

/// A stream that was opened at a guessed position to begin a part there, and its first entries.
#[derive(Debug)]
pub(super) struct Split {
    guess: u64,
    listed: Result<Listed, Errno>,
}

/// The reason why a stream ended before its directory did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Os(Errno),
    /// The stream returned to an earlier position with the same entries. It would never end.
    Repeats,
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

impl DirStream {
    /// A stream of the first part, at a position of its descriptor.
    fn new(fd: DirFd, at: u64, buffer_size: usize) -> DirStream {
        DirStream {
            fd,
            part: 0,
            at,
            buffer_size,
            cycle: CycleDetector::default(),
            uncertain: None,
        }
    }

    /// Lists the next entries, or decides whether the last row belongs to the part.
    pub(super) fn read(mut self) -> Listed {
        match self.uncertain.take() {
            None => self.getdents(),
            Some(uncertain) => self.find_owner(*uncertain),
        }
    }

    /// Looks for the row in the next part, and then in both.
    fn find_owner(self, uncertain: UncertainEntry) -> Listed {
        let name = uncertain.row.name(0);
        let (stream, beyond) = self.find(name, uncertain.end..=uncertain.to);
        let (stream, anywhere) = stream.find(name, uncertain.from..=uncertain.to);
        uncertain.decided(stream, beyond, anywhere)
    }

    /// Returns true if a name is found at these positions.
    fn find(self, name: &CStr, at: RangeInclusive<u64>) -> (DirStream, Result<bool, Problem>) {
        let mut listed = self.seek_and_read(*at.start());
        loop {
            if listed.rows.has(name) {
                return (listed.stream, Ok(true));
            }
            match listed.over {
                None if listed.stream.at <= *at.end() => listed = listed.stream.getdents(),
                over => return (listed.stream, over.unwrap_or(Ok(())).map(|()| false)),
            }
        }
    }

    fn seek_and_read(self, at: u64) -> Listed {
        let stream = DirStream {
            at,
            cycle: CycleDetector::default(),
            ..self
        };
        match rustix::fs::seek(&stream.fd, SeekFrom::Start(at)) {
            Ok(_) => stream.getdents(),
            Err(errno) => Listed {
                stream,
                rows: EntryTable::default(),
                positions: Vec::new(),
                first_is_exact: false,
                over: Some(Err(Problem::Os(errno))),
            },
        }
    }

    /// Calls getdents64(2) once.
    fn getdents(mut self) -> Listed {
        let mut buffer: Vec<u8> = Vec::with_capacity(self.buffer_size);
        let mut rows = EntryTable::with_capacity(self.buffer_size / 48, self.buffer_size / 3);
        let mut positions = Vec::with_capacity(self.buffer_size / 48);
        let start = self.at;
        let mut over = None;
        let mut called = false;
        let mut left = retry::MAX_ATTEMPTS;
        'call: loop {
            let mut dirents = RawDir::new(&self.fd, buffer.spare_capacity_mut());
            while !called || !dirents.is_buffer_empty() {
                match dirents.next() {
                    None => {
                        over = Some(Ok(()));
                        break 'call;
                    }
                    Some(Err(Errno::INTR)) if left > 0 => left -= 1,
                    Some(Err(Errno::INVAL)) if self.buffer_size < ANY_DIRENT_SIZE => {
                        self.buffer_size = ANY_DIRENT_SIZE;
                        buffer = Vec::with_capacity(self.buffer_size);
                        continue 'call;
                    }
                    // A directory that was removed has no entries, as in readdir(3).
                    Some(Err(Errno::NOENT)) => {
                        over = Some(Ok(()));
                        break 'call;
                    }
                    Some(Err(errno)) => {
                        over = Some(Err(Problem::Os(errno)));
                        break 'call;
                    }
                    Some(Ok(dirent)) => {
                        called = true;
                        let name = dirent.file_name();
                        let here = std::mem::replace(&mut self.at, dirent.next_entry_cookie());
                        if name == c"." || name == c".." {
                            continue;
                        }
                        rows.push(name, dirent.ino(), dirent.file_type().into());
                        positions.push(here);
                    }
                }
            }
            break;
        }
        if self.cycle.repeats(start, &rows) {
            over = Some(Err(Problem::Repeats));
        }
        Listed {
            stream: self,
            rows,
            positions,
            first_is_exact: false,
            over,
        }
    }
}

impl UncertainEntry {
    /// The row if it belongs to the part, or no row. `beyond` is true if it was found in the next
    /// part, `anywhere` if it was found in either after that. A row that has been removed meanwhile
    /// is not returned, since the next part may have returned it.
    fn decided(
        mut self,
        stream: DirStream,
        beyond: Result<bool, Problem>,
        anywhere: Result<bool, Problem>,
    ) -> Listed {
        let is_own = beyond.and_then(|beyond| Ok(!beyond && anywhere?));
        if is_own != Ok(true) {
            self.row.truncate(0);
        }
        Listed {
            stream,
            positions: vec![self.from; self.row.len()],
            rows: self.row,
            first_is_exact: true,
            over: Some(is_own.map(|_| ())),
        }
    }
}

impl Split {
    /// Opens the directory again, seeks to a guessed position, and reads there.
    pub(super) fn at(directory: &Directory, guess: u64, buffer_size: usize) -> Split {
        let listed = directory
            .reopen()
            .map(|fd| DirStream::new(DirFd::Own(fd), guess, buffer_size).seek_and_read(guess));
        Split { guess, listed }
    }
}

impl Listed {
    /// The first row whose position is known and greater than the one before it. The position of
    /// the first dirent after a seek is only a lower bound.
    fn first_known(&self) -> Option<usize> {
        (2..self.positions.len()).find(|&i| self.positions[i] > self.positions[i - 1])
    }

    /// Returns true if the position of the first row may be before `end` or after it.
    fn first_may_lie_beyond(&self, end: u64) -> bool {
        let bound = self.positions.get(1).unwrap_or(&self.stream.at);
        let before = self.positions.first().is_some_and(|first| *first < end);
        before && end <= *bound && !self.first_is_exact && self.over.is_none()
    }
}

/// Detects a stream that repeats itself (Brent's algorithm). A broken or hostile filesystem that
/// leads from a position to an earlier one would otherwise be listed endlessly.
#[derive(Debug, Default)]
struct CycleDetector {
    /// A remembered position, with the first inode number and the length of the names there.
    remembered: Option<(u64, u64, usize)>,
    /// The calls since then, and the number of calls after which another position is remembered.
    calls: u64,
    limit: u64,
}

impl CycleDetector {
    /// Returns true if a call with this position and these rows was made before.
    fn repeats(&mut self, start: u64, rows: &EntryTable) -> bool {
        let Some(first) = rows.records.first() else {
            return false;
        };
        let here = (start, first.ino, rows.name_bytes());
        if self.remembered == Some(here) {
            return true;
        }
        self.calls += 1;
        if self.calls > self.limit {
            self.remembered = Some(here);
            self.limit = (2 * self.limit).max(1);
            self.calls = 0;
        }
        false
    }
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

    #[test]
    fn a_circle_is_noticed_wherever_it_begins() {
        let most = if cfg!(miri) { 500 } else { 10_000 };
        let rows = |n: u64| {
            let mut rows = EntryTable::default();
            rows.push(c"name", n, crate::metadata::FileType::Unknown);
            rows
        };
        for (tail, length) in [(0, 1), (0, 5), (3, 1), (100, 7)] {
            let mut cycle = CycleDetector::default();
            let position = |call: u64| {
                if call < tail {
                    call
                } else {
                    tail + (call - tail) % length
                }
            };
            let calls =
                (0..most).find(|&call| cycle.repeats(position(call), &rows(position(call))));
            assert!(
                calls.is_some_and(|calls| calls <= 4 * (tail + length)),
                "{calls:?}"
            );
        }
        let mut cycle = CycleDetector::default();
        assert!(!(0..most).any(|call| cycle.repeats(call, &rows(call))));
        // The same position with other entries is no repetition: some filesystems keep their own
        // count.
        let mut cycle = CycleDetector::default();
        assert!(!(0..most).any(|call| cycle.repeats(0, &rows(call))));
    }
}
