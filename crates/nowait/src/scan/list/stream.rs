//! One stream of a listing: getdents64(2) on a descriptor, and entries at the end of a part.

use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{RawDir, SeekFrom};

use crate::error::Result;
use crate::scan::directory::Directory;
use crate::scan::entry::EntryTable;
use crate::sys::Errno;
use crate::sys::retry;

/// The buffer size that any dirent fits: a name is at most as long as a path.
const ANY_DIRENT_SIZE: usize = 8 << 10;

/// A descriptor that lists, and its position.
#[derive(Debug)]
pub(crate) struct DirStream {
    pub(super) fd: DirFd,
    pub(super) part: u64,
    /// A lower bound of the position of the next entry. It is exact unless lseek(2) moved the
    /// stream or an entry was removed.
    pub(super) at: u64,
    pub(super) buffer_size: usize,
    cycle: CycleDetector,
    /// The last row of the part, if it may belong to the next one.
    pub(super) uncertain: Option<Box<UncertainEntry>>,
}

/// The first row of a call, if it may belong to the part that was listed or to the next one.
#[derive(Debug)]
pub(super) struct UncertainEntry {
    pub(super) row: EntryTable,
    /// The lower and the upper bound of the row's position.
    pub(super) from: u64,
    pub(super) to: u64,
    /// The end of the part, which lies between the bounds.
    pub(super) end: u64,
}

/// The descriptor of a stream.
#[derive(Debug)]
pub(super) enum DirFd {
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
pub(crate) struct Listed {
    pub(super) stream: DirStream,
    pub(super) rows: EntryTable,
    /// The position of each row. That of the first row is a lower bound unless `first_is_exact` is
    /// set.
    pub(super) positions: Vec<u64>,
    pub(super) first_is_exact: bool,
    /// Set if the stream has ended or the call has failed.
    pub(super) over: Option<Result<(), Problem>>,
}

/// A stream that was opened at a guessed position to begin a part there, and its first entries.
#[derive(Debug)]
pub(crate) struct Split {
    pub(super) guess: u64,
    pub(super) listed: Result<Listed, Errno>,
}

/// The reason why a stream ended before its directory did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Os(Errno),
    /// The stream returned to an earlier position with the same entries. It would never end.
    Repeats,
}

impl DirStream {
    /// A stream of the first part, at a position of its descriptor.
    pub(super) fn new(fd: DirFd, at: u64, buffer_size: usize) -> DirStream {
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
    pub(crate) fn read(mut self) -> Listed {
        match self.uncertain.take() {
            None => self.getdents(),
            Some(uncertain) => self.find_owner(*uncertain),
        }
    }

    /// Looks for the row in the next part, and then in both.
    pub(super) fn find_owner(self, uncertain: UncertainEntry) -> Listed {
        let name = uncertain.row.name(0);
        let (stream, beyond) = self.find(name, uncertain.end..=uncertain.to);
        let (stream, anywhere) = stream.find(name, uncertain.from..=uncertain.to);
        uncertain.decided(stream, beyond, anywhere)
    }

    /// Returns true if a name is found at these positions.
    pub(super) fn find(
        self,
        name: &CStr,
        at: RangeInclusive<u64>,
    ) -> (DirStream, Result<bool, Problem>) {
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

    pub(super) fn seek_and_read(self, at: u64) -> Listed {
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
    pub(super) fn getdents(mut self) -> Listed {
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
    pub(super) fn decided(
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
    pub(crate) fn at(directory: &Directory, guess: u64, buffer_size: usize) -> Split {
        let listed = directory
            .reopen()
            .map(|fd| DirStream::new(DirFd::Own(fd), guess, buffer_size).seek_and_read(guess));
        Split { guess, listed }
    }
}

impl Listed {
    /// The first row whose position is known and greater than the one before it. The position of
    /// the first dirent after a seek is only a lower bound.
    pub(super) fn first_known(&self) -> Option<usize> {
        (2..self.positions.len()).find(|&i| self.positions[i] > self.positions[i - 1])
    }

    /// Returns true if the position of the first row may be before `end` or after it.
    pub(super) fn first_may_lie_beyond(&self, end: u64) -> bool {
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
    pub(super) fn repeats(&mut self, start: u64, rows: &EntryTable) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

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
