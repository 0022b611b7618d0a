//! Lists a made-up directory. The fuzzer decides how it is split, the order of the steps, and the number of
//! entries of each call.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::metadata::FileType;

use super::{
    Cut, Directory, Listed, Lister, Listing, Positions, Problem, Rows, Step, Stream, WORTH_A_PART,
};
use crate::sys::Errno;

/// The inode numbers of names that may be removed begin here.
const FIRST_TEMPORARY: u64 = 1_000_000;

/// A directory of names by position, and the fuzzer's choices.
struct Made<'a> {
    /// The inode numbers at each position, and true if the name is never removed.
    names: BTreeMap<u64, Vec<(u64, bool)>>,
    directory: Arc<Directory>,
    choices: std::slice::Iter<'a, u8>,
    /// The inode number of the next name that is created.
    next_ino: u64,
}

impl Made<'_> {
    fn choice(&mut self) -> u8 {
        self.choices.next().copied().unwrap_or(200)
    }

    /// Lists the next entries, or decides about the last row. Names may change meanwhile.
    fn read(&mut self, mut stream: Stream) -> Listed {
        let Some(doubt) = stream.doubt.take() else {
            return self.getdents(stream);
        };
        let is_beyond = self.has(&doubt.row, doubt.end..=doubt.to);
        if self.choice().is_multiple_of(4) {
            self.change();
        }
        let is_anywhere = self.has(&doubt.row, doubt.from..=doubt.to);
        doubt.settled(stream, Ok(is_beyond), Ok(is_anywhere))
    }

    fn has(&self, row: &Rows, at: RangeInclusive<u64>) -> bool {
        let ino = row.records[0].ino;
        self.names
            .range(at)
            .any(|(_, names)| names.iter().any(|(name, _)| *name == ino))
    }

    /// The result of a getdents64(2) call from the stream's position on.
    fn getdents(&mut self, mut stream: Stream) -> Listed {
        let most = 1 + usize::from(self.choice() % 16);
        let (mut rows, mut positions) = (Rows::default(), Vec::new());
        let found: Vec<_> = self
            .names
            .range(stream.at..)
            .map(|(at, n)| (*at, n.clone()))
            .collect();
        let mut coming = found.iter().peekable();
        while rows.len() < most
            && let Some((_, names)) = coming.next()
        {
            let end = self.names.keys().next_back().map_or(0, |last| last + 1);
            let next = coming.peek().map_or(end, |(next, _)| *next);
            for (index, (ino, _)) in names.iter().enumerate() {
                // If several names have one position, the `d_off` of all but the last is that position.
                let here = stream.at;
                stream.at = match index + 1 == names.len() {
                    true => next,
                    false => found[found.len() - coming.len() - 1].0,
                };
                rows.push(&name_of(*ino), *ino, FileType::File);
                positions.push(here);
            }
        }
        let over = (rows.len() == 0).then_some(Ok(()));
        Listed {
            stream,
            rows,
            positions,
            first_is_exact: false,
            over,
        }
    }

    /// Removes a temporary name, or creates one at the position after a name that stays.
    fn change(&mut self) {
        let choice = usize::from(self.choice()) * self.names.len() / 256;
        let Some((&at, names)) = self.names.iter().nth(choice) else {
            return;
        };
        if names.iter().all(|(_, stays)| !stays) {
            self.names.remove(&at);
        } else if !self.names.contains_key(&(at + 1)) {
            self.names.insert(at + 1, vec![(self.next_ino, false)]);
            self.next_ino += 1;
        }
    }
}

fn name_of(ino: u64) -> CString {
    CString::new(format!("name {ino}")).unwrap_or_default()
}

/// Lists a directory of names, each at a distance from the one before (0: at the same position). Asserts
/// that a name that is never removed is listed exactly once, and no name twice.
pub fn exactly_once(kind: u8, parts: u8, size: u64, names: &[u8], choices: &[u8]) {
    let Ok(directory) = Directory::blocking_open(std::path::Path::new("/")) else {
        return;
    };
    let directory = Arc::new(directory);
    let mut listing = Listing::new(&directory, usize::from(parts % 16), usize::MAX);
    listing.most = usize::from(parts % 16).max(1);
    listing.size = size;
    listing.positions = match kind % 4 {
        0 => Positions::Opaque,
        1 => Positions::Hash,
        2 => Positions::Offset,
        _ => Positions::Index,
    };
    if listing.positions == Positions::Opaque {
        listing.most = 1;
    }
    let mut made = Made {
        names: BTreeMap::new(),
        directory,
        choices: choices.iter(),
        next_ino: FIRST_TEMPORARY,
    };
    let scale = if kind & 16 == 0 { 1 } else { 1 << 52 };
    let mut position = 0u64;
    let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
    for (ino, step) in names.iter().take(2000).enumerate() {
        position = position
            .saturating_add(u64::from(*step) * scale)
            .min(i64::MAX as u64 - 1);
        made.names
            .entry(position)
            .or_default()
            .push((ino as u64, true));
        expected.insert(ino as u64, 0);
    }
    let mut under_way: Vec<Step> = Vec::new();
    let mut take = |rows: Rows, problem: Option<Problem>| {
        assert_eq!(problem, None);
        for at in 0..rows.len() {
            let ino = rows.records[at].ino;
            assert_eq!(rows.name(at), name_of(ino).as_c_str());
            *expected.entry(ino).or_default() += 1;
        }
    };
    let mut steps = 0;
    while !listing.is_over() {
        steps += 1;
        assert!(steps < 100_000, "it never ends");
        let choice = made.choice();
        match choice % 8 {
            0 => made.change(),
            1 => listing.may_cut(choice & 64 != 0),
            _ => {}
        }
        if (choice & 8 == 0 || under_way.is_empty())
            && let Some(step) = listing.pick()
        {
            under_way.push(step);
            continue;
        }
        assert!(
            !under_way.is_empty(),
            "there is something to do, and it is not offered"
        );
        let which = usize::from(made.choice()) % under_way.len();
        match under_way.swap_remove(which) {
            Step::List(stream) => {
                let listed = made.read(stream);
                let first = listing.space == 0;
                let (rows, problem) = listing.take_in(listed);
                if first && listing.space > 0 && kind & 32 != 0 {
                    // Few names are enough for many parts, and no guess lies beyond the end.
                    listing.most = usize::from(parts % 16).max(1);
                    listing.space = position;
                    listing.spread /= WORTH_A_PART as f64;
                }
                take(rows, problem);
            }
            Step::Cut(guess) if made.choice() % 16 == 1 => {
                let cut = Cut {
                    guess,
                    listed: Err(Errno::MFILE),
                };
                let (rows, problem) = listing.take_in_cut(cut);
                take(rows, problem);
            }
            Step::Cut(guess) => {
                let fd = Lister::First(made.directory.clone());
                let stream = Stream::new(fd, guess, 0);
                let listed = Ok(made.read(stream));
                let (rows, problem) = listing.take_in_cut(Cut { guess, listed });
                take(rows, problem);
            }
        }
    }
    for (ino, times) in &expected {
        let stays = *ino < FIRST_TEMPORARY;
        assert!(
            *times == 1 || *times == 0 && !stays,
            "name {ino} came {times} times"
        );
    }
}
