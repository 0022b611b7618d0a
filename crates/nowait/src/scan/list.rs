//! Listing: getdents64(2), in one stream or, where positions can be cut, in several at once.
//!
//! ```text
//!  positions  0 ────────────────────┬───────────────────┬─────────────────── end
//!             part, next ─► … end = p   part from p …    part from q …
//! ```
//!
//! A directory position (`d_off`, what lseek(2) takes) is a hash on ext4, a byte offset divided by
//! eight on xfs and a running index on btrfs. On these a descriptor of its own can be put anywhere,
//! and lists from there on, so parts of the space of positions are listed at the same time.
//!
//! **Each name exactly once.** `d_off` of an entry is the position of the *next* one, so after a seek
//! the first entry's own position is not known, all others' are. A part therefore never begins at the
//! guess that was sought: it begins at the first known position `p` that is greater than the one
//! before it, and the entries before `p` are forgotten, for the part that they belong to lists them
//! itself. From then on everything is decided by comparing numbers: an entry belongs to the part that
//! its position lies in. Standing entries keep their position, so names that come and go meanwhile
//! can't move them into another part or out of one. (ext4 gives names of equal hash equal positions;
//! they are never cut apart, since `p` is greater than what is before it.)
//!
//! A part that is being listed can be cut again where it has not been yet: its worker learns of its
//! new end when it comes back with what it read, and gives up what lies beyond.
//!
//! On other filesystems positions mean anything or nothing: one stream lists there.

#[cfg(fuzzing)]
pub(super) mod fuzzing;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{RawDir, SeekFrom};

use super::directory::Directory;
use super::entry::Rows;
use crate::retry;
use crate::sys::Errno;

/// Entries that a part must be good for, to be worth a descriptor of its own.
const WORTH_A_PART: u64 = 1024;
/// Bytes for the dirents of one getdents64(2). The first one is smaller: of a directory that is not
/// cached it is read by one thread alone.
const FIRST_ROOM: usize = 8 << 10;
const ROOM: usize = 16 << 10;
/// Room for any dirent: names are at most a path long.
const ROOM_FOR_ANY: usize = 8 << 10;
/// The smallest dirent, to reckon how many fit.
const SMALLEST: usize = 24;

/// What the positions of a filesystem's directories are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positions {
    /// Not known to be good for anything but going on.
    Opaque,
    /// Hashes of 63 bits: ext4.
    Hash,
    /// Byte offsets divided by eight: xfs.
    Offset,
    /// A running index: btrfs.
    Index,
}

impl Positions {
    pub(super) fn of(magic: u64) -> Positions {
        match magic {
            0xef53 => Positions::Hash,
            0x5846_5342 => Positions::Offset,
            0x9123_683e => Positions::Index,
            _ => Positions::Opaque,
        }
    }
}

/// How far the listing of one directory is.
#[derive(Debug)]
pub(super) struct Listing {
    positions: Positions,
    parts: Vec<Part>,
    /// How many parts at most; 1 where cutting is impossible, or has failed.
    most: usize,
    may_cut: bool,
    /// Bytes for the dirents of one call.
    room: usize,
    /// The directory's `st_size`.
    size: u64,
    /// Guesses that are being tried.
    cutting: usize,
    /// Which of the first, even cuts is next.
    even: u64,
    /// Where the space of positions ends, as far as it is known.
    space: u64,
    /// Positions per entry.
    spread: f64,
    /// Parts that were made by cutting.
    cuts: u64,
}

/// A part of the space of positions.
#[derive(Debug)]
struct Part {
    /// Everything before it is listed.
    next: u64,
    /// The next part's first position.
    end: u64,
    /// What lists it; `None` while a worker has it.
    stream: Option<Stream>,
    /// Which part it is, to find it when the worker comes back.
    id: u64,
    /// Somebody is trying to cut it.
    cutting: bool,
}

/// A descriptor that lists, with its position.
#[derive(Debug)]
pub(super) struct Stream {
    fd: Lister,
    part: u64,
    /// The position of the next entry, as far as it is known.
    at: u64,
    room: usize,
    circle: Circle,
}

#[derive(Debug)]
enum Lister {
    /// The directory's own descriptor.
    First(Arc<Directory>),
    Own(OwnedFd),
}

impl AsFd for Lister {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Lister::First(directory) => directory.as_fd(),
            Lister::Own(fd) => fd.as_fd(),
        }
    }
}

/// What one getdents64(2) brought.
#[derive(Debug)]
pub(super) struct Listed {
    stream: Stream,
    rows: Rows,
    /// The position of each row; of the first after a seek, a lower bound.
    positions: Vec<u64>,
    /// It ends here, or the call failed.
    over: Option<Result<(), Problem>>,
}

/// A stream that was put somewhere, to begin a part there, and what it read.
#[derive(Debug)]
pub(super) struct Cut {
    guess: u64,
    listed: Result<Listed, Errno>,
}

/// Why a stream ends before its directory does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Os(Errno),
    /// It has been here before, with the same entries: it would never end.
    Repeats,
}

/// What is to be done next for a listing.
#[derive(Debug)]
pub(super) enum Step {
    /// Read on.
    List(Stream),
    /// Put another stream there.
    Cut(u64),
}

impl Listing {
    /// A listing from the directory's beginning, in at most so many parts, by calls that bring no
    /// more entries than the window can hold.
    pub(super) fn new(directory: &Arc<Directory>, most: usize, window: usize) -> Listing {
        let positions = Positions::of(directory.filesystem().magic());
        let room = window.saturating_mul(2 * SMALLEST).clamp(512, ROOM);
        let stream = Stream {
            fd: Lister::First(directory.clone()),
            part: 0,
            at: 0,
            room: room.min(FIRST_ROOM),
            circle: Circle::default(),
        };
        Listing {
            positions,
            parts: vec![Part {
                next: 0,
                end: u64::MAX,
                stream: Some(stream),
                id: 0,
                cutting: false,
            }],
            most: if positions == Positions::Opaque {
                1
            } else {
                most.max(1)
            },
            may_cut: true,
            room,
            size: directory.size(),
            cutting: 0,
            even: 1,
            space: 0,
            spread: 0.0,
            cuts: 0,
        }
    }

    /// Bytes of dirents that one step may bring.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// How many entries that are, at most.
    pub(super) fn step(&self) -> usize {
        self.room / SMALLEST
    }

    /// Cuts that led to a part of its own.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Whether there are descriptors for more parts.
    pub(super) fn may_cut(&mut self, yes: bool) {
        self.may_cut = yes;
    }

    /// How many parts are being listed, or tried for.
    pub(super) fn parts(&self) -> usize {
        self.parts.len() + self.cutting
    }

    /// Lists no more.
    pub(super) fn stop(&mut self) {
        self.parts.clear();
        self.most = 1;
        self.space = 0;
    }

    /// Whether everything is listed.
    pub(super) fn is_over(&self) -> bool {
        self.parts.is_empty() && self.cutting == 0
    }

    /// Whether there is something to be done that nobody is doing.
    pub(super) fn has_step(&self) -> bool {
        self.where_to_cut().is_some() || self.parts.iter().any(|part| part.stream.is_some())
    }

    /// Something to do. Cuts first: they are what makes the others many.
    pub(super) fn pick(&mut self) -> Option<Step> {
        if let Some((at, guess)) = self.where_to_cut() {
            self.cutting += 1;
            match self.next_even() {
                Some((even, _, _)) => self.even = even + 1,
                None => self.parts[at].cutting = true,
            }
            return Some(Step::Cut(guess));
        }
        let stream = self.parts.iter_mut().find_map(|part| part.stream.take());
        stream.map(Step::List)
    }

    /// Where a cut would make another part worth having: first evenly over the whole space, then
    /// wherever most is left while others are done.
    fn where_to_cut(&self) -> Option<(usize, u64)> {
        if !self.may_cut || self.parts() >= self.most || self.space == 0 {
            return None;
        }
        if let Some((_, at, guess)) = self.next_even() {
            return Some((at, guess));
        }
        let left = |part: &Part| part.end.min(self.space).saturating_sub(part.next);
        let uncut = self
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| !part.cutting);
        let (at, part) = uncut.max_by_key(|(_, part)| left(part))?;
        let worth = 2.0 * self.spread * WORTH_A_PART as f64;
        (left(part) as f64 > worth).then(|| (at, part.next + left(part) / 2))
    }

    /// The next of the even cuts that is not listed already: which one, of which part, and where.
    fn next_even(&self) -> Option<(u64, usize, u64)> {
        (self.even..self.most as u64).find_map(|even| {
            let guess = u128::from(self.space) * u128::from(even) / self.most as u128;
            let guess = u64::try_from(guess).ok()?;
            let at = self.part_with(guess)?;
            Some((even, at, guess))
        })
    }

    fn part_with(&self, position: u64) -> Option<usize> {
        let has = |part: &Part| part.next <= position && position < part.end;
        self.parts.iter().position(has)
    }

    /// Takes in what a stream read; gives the rows that belong to its part, and what went wrong.
    pub(super) fn take_in(&mut self, listed: Listed) -> (Rows, Option<Problem>) {
        let Some(at) = self
            .parts
            .iter()
            .position(|part| part.id == listed.stream.part)
        else {
            return (Rows::default(), None);
        };
        let part = self.parts.swap_remove(at);
        let survey = part.id == 0 && part.next == 0;
        let (rows, problem) = self.go_on(part, listed);
        if survey {
            self.survey(&rows);
        }
        (rows, problem)
    }

    /// Keeps a part with what was read of it, unless that was the last of it.
    fn go_on(&mut self, mut part: Part, listed: Listed) -> (Rows, Option<Problem>) {
        let Listed {
            mut stream,
            mut rows,
            positions,
            over,
        } = listed;
        let read = rows.len();
        // The last part's end is no position: all that comes is its own.
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
            stream.room = self.room;
            part.stream = Some(stream);
            self.parts.push(part);
        }
        (rows, over.and_then(Result::err))
    }

    /// After the first call: where the positions end, and how many parts the directory is worth.
    fn survey(&mut self, rows: &Rows) {
        let (Some(part), true) = (self.parts.first(), rows.len() > 0) else {
            return;
        };
        let entries = rows.len() as f64;
        self.spread = part.next as f64 / entries;
        self.space = match self.positions {
            Positions::Opaque => 0,
            Positions::Hash => 1 << 63,
            Positions::Offset => self.size / 8,
            // `st_size` is twice the length of all names.
            Positions::Index => {
                let name = rows.name_bytes() as f64 / entries;
                whole(self.size as f64 / 2.0 / name * self.spread)
            }
        };
        let all = whole(self.space as f64 / self.spread);
        self.most = self.most.min((all / WORTH_A_PART).max(1) as usize);
    }

    /// Takes in what a cut came to: perhaps a new part, and its first rows.
    pub(super) fn take_in_cut(&mut self, cut: Cut) -> (Rows, Option<Problem>) {
        self.cutting -= 1;
        let nothing = (Rows::default(), None);
        let mut listed = match cut.listed {
            Ok(listed) => listed,
            Err(_) => {
                // No descriptor left, or no permission any more: what is open goes on.
                self.most = self.parts.len().max(1);
                return nothing;
            }
        };
        let Some(first) = listed.first_known() else {
            // There is nothing, or next to nothing: the guess was at or beyond the end.
            if listed.over == Some(Ok(())) {
                self.space = self.space.min(cut.guess);
            }
            return nothing;
        };
        let begin = listed.positions[first];
        let Some(at) = self.part_with(begin) else {
            return nothing;
        };
        listed.rows.skip(first);
        listed.positions.drain(..first);
        let old = &mut self.parts[at];
        let end = std::mem::replace(&mut old.end, begin);
        old.cutting = false;
        if old.next >= begin {
            self.parts.swap_remove(at);
        }
        self.cuts += 1;
        listed.stream.part = self.cuts;
        let part = Part {
            next: begin,
            end,
            stream: None,
            id: self.cuts,
            cutting: false,
        };
        self.go_on(part, listed)
    }
}

impl Stream {
    /// One getdents64(2).
    pub(super) fn read(mut self) -> Listed {
        let mut buffer: Vec<u8> = Vec::with_capacity(self.room);
        let mut rows = Rows::with_capacity(self.room / 48, self.room / 3);
        let mut positions = Vec::with_capacity(self.room / 48);
        let start = self.at;
        let mut over = None;
        let mut called = false;
        let mut left = retry::MOST;
        'call: loop {
            let mut dirents = RawDir::new(&self.fd, buffer.spare_capacity_mut());
            while !called || !dirents.is_buffer_empty() {
                match dirents.next() {
                    None => {
                        over = Some(Ok(()));
                        break 'call;
                    }
                    Some(Err(Errno::INTR)) if left > 0 => left -= 1,
                    Some(Err(Errno::INVAL)) if self.room < ROOM_FOR_ANY => {
                        self.room = ROOM_FOR_ANY;
                        buffer = Vec::with_capacity(self.room);
                        continue 'call;
                    }
                    // A directory that was removed has no entries any more, as readdir(3) has it.
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
                        rows.push(name, dirent.ino(), dirent.file_type());
                        positions.push(here);
                    }
                }
            }
            break;
        }
        if self.circle.closes(start, &rows) {
            over = Some(Err(Problem::Repeats));
        }
        Listed {
            stream: self,
            rows,
            positions,
            over,
        }
    }
}

impl Cut {
    /// Puts a new descriptor of the directory there and reads what comes.
    pub(super) fn at(directory: &Directory, guess: u64, room: usize) -> Cut {
        let listed = directory.again().and_then(|fd| {
            rustix::fs::seek(&fd, SeekFrom::Start(guess))?;
            let stream = Stream {
                fd: Lister::Own(fd),
                part: 0,
                at: guess,
                room,
                circle: Circle::default(),
            };
            Ok(stream.read())
        });
        Cut { guess, listed }
    }
}

impl Listed {
    /// The first row whose position is known and greater than the one before it. Of the first dirent
    /// after a seek only a lower bound is known.
    fn first_known(&self) -> Option<usize> {
        (2..self.positions.len()).find(|&i| self.positions[i] > self.positions[i - 1])
    }
}

/// Notices a stream that goes round in a circle (Brent's algorithm): a broken or hostile filesystem
/// that leads from one position back to an earlier one would be listed for ever.
#[derive(Debug, Default)]
struct Circle {
    /// A position it has been at, and what came first there.
    been: Option<(u64, u64, usize)>,
    /// Calls since then, and after how many another one is remembered.
    calls: u64,
    patience: u64,
}

impl Circle {
    /// Whether the call that began at this position and brought these rows has been made before.
    fn closes(&mut self, start: u64, rows: &Rows) -> bool {
        let Some(first) = rows.records.first() else {
            return false;
        };
        let here = (start, first.ino, rows.name_bytes());
        if self.been == Some(here) {
            return true;
        }
        self.calls += 1;
        if self.calls > self.patience {
            self.been = Some(here);
            self.patience = (2 * self.patience).max(1);
            self.calls = 0;
        }
        false
    }
}

/// A number without its fraction.
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
                stream: Stream {
                    fd: Lister::First(Arc::new(dir)),
                    part: 0,
                    at: 0,
                    room: 0,
                    circle: Circle::default(),
                },
                rows: Rows::default(),
                positions: positions.to_vec(),
                over: None,
            };
            listed.first_known()
        };
        // Of the first only a lower bound is known: the second may have the same.
        assert_eq!(first_known(&[10, 12]), None);
        assert_eq!(first_known(&[10, 12, 13]), Some(2));
        // Equal hashes are not torn apart.
        assert_eq!(first_known(&[10, 12, 12, 12, 15]), Some(4));
        assert_eq!(first_known(&[10, 10, 10]), None);
        assert_eq!(first_known(&[]), None);
    }

    #[test]
    fn a_circle_is_noticed_wherever_it_begins() {
        let most = if cfg!(miri) { 500 } else { 10_000 };
        let rows = |n: u64| {
            let mut rows = Rows::default();
            rows.push(c"name", n, rustix::fs::FileType::Unknown);
            rows
        };
        for (tail, length) in [(0, 1), (0, 5), (3, 1), (100, 7)] {
            let mut circle = Circle::default();
            let place = |call: u64| {
                if call < tail {
                    call
                } else {
                    tail + (call - tail) % length
                }
            };
            let calls = (0..most).find(|&call| circle.closes(place(call), &rows(place(call))));
            assert!(
                calls.is_some_and(|calls| calls <= 4 * (tail + length)),
                "{calls:?}"
            );
        }
        let mut circle = Circle::default();
        assert!(!(0..most).any(|call| circle.closes(call, &rows(call))));
        // The same position with other entries: a filesystem that keeps its own count.
        let mut circle = Circle::default();
        assert!(!(0..most).any(|call| circle.closes(0, &rows(call))));
    }
}
