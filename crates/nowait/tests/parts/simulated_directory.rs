//! A simulated directory, for a property test and a fuzz target. Random choices decide how it is
//! split, the order of the steps, and the number of entries of each call.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::metadata::FileType;

use super::{
    DirFd, DirStream, Directory, EntryTable, Listed, Listing, Positions, Problem, Split, Step,
    WORTH_A_PART,
};
use crate::sys::Errno;

/// The inode numbers of names that may be removed begin here.
const FIRST_TEMPORARY: u64 = 1_000_000;

/// A directory of names by position, and the choices.
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
    fn read(&mut self, mut stream: DirStream) -> Listed {
        let Some(uncertain) = stream.uncertain.take() else {
            return self.getdents(stream);
        };
        let is_beyond = self.has(&uncertain.row, uncertain.end..=uncertain.to);
        if self.choice().is_multiple_of(4) {
            self.change();
        }
        let is_anywhere = self.has(&uncertain.row, uncertain.from..=uncertain.to);
        uncertain.decided(stream, Ok(is_beyond), Ok(is_anywhere))
    }

    fn has(&self, row: &EntryTable, at: RangeInclusive<u64>) -> bool {
        let ino = row.records[0].ino;
        self.names
            .range(at)
            .any(|(_, names)| names.iter().any(|(name, _)| *name == ino))
    }

    /// The result of a getdents64(2) call from the stream's position on.
    fn getdents(&mut self, mut stream: DirStream) -> Listed {
        let most = 1 + usize::from(self.choice() % 16);
        let (mut rows, mut positions) = (EntryTable::default(), Vec::new());
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
                // If several names have one position, the `d_off` of all but the last is that
                // position.
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

/// A listing of a simulated directory.
struct Run<'a> {
    made: Made<'a>,
    listing: Listing,
    /// The steps in progress.
    steps: Vec<Step>,
    /// How often each name was listed, by its inode number.
    listed: BTreeMap<u64, u32>,
    max_parts: usize,
    /// The end of the positions, if few names are to be enough for many parts.
    dense_end: Option<u64>,
}

impl Run<'_> {
    fn add(&mut self, (rows, problem): (EntryTable, Option<Problem>)) {
        assert_eq!(problem, None);
        for at in 0..rows.len() {
            let ino = rows.records[at].ino;
            assert_eq!(rows.name(at), name_of(ino).as_c_str());
            *self.listed.entry(ino).or_default() += 1;
        }
    }

    /// Begins or ends a step. The directory may change before.
    fn step(&mut self) {
        let choice = self.made.choice();
        match choice % 8 {
            0 => self.made.change(),
            1 => self.listing.allow_splits(choice & 64 != 0),
            _ => {}
        }
        if (choice & 8 == 0 || self.steps.is_empty())
            && let Some(step) = self.listing.pick()
        {
            self.steps.push(step);
            return;
        }
        assert!(!self.steps.is_empty(), "the listing offers no step");
        let which = usize::from(self.made.choice()) % self.steps.len();
        match self.steps.swap_remove(which) {
            Step::List(stream) => self.list(stream),
            Step::Split(guess) => self.split(guess),
        }
    }

    fn list(&mut self, stream: DirStream) {
        let listed = self.made.read(stream);
        let first = self.listing.range_end == 0;
        let added = self.listing.add(listed);
        if first
            && self.listing.range_end > 0
            && let Some(end) = self.dense_end
        {
            self.listing.max_parts = self.max_parts;
            self.listing.range_end = end;
            self.listing.positions_per_entry /= WORTH_A_PART as f64;
        }
        self.add(added);
    }

    fn split(&mut self, guess: u64) {
        let listed = if self.made.choice() % 16 == 1 {
            Err(Errno::MFILE)
        } else {
            let fd = DirFd::First(self.made.directory.clone());
            Ok(self.made.read(DirStream::new(fd, guess, 0)))
        };
        let added = self.listing.add_part(Split { guess, listed });
        self.add(added);
    }
}

/// Lists a directory of names, each at a distance from the one before (0: at the same position).
/// Asserts that a name that is never removed is listed exactly once, and no name twice.
pub fn exactly_once(kind: u8, parts: u8, size: u64, names: &[u8], choices: &[u8]) {
    let Ok(directory) = Directory::blocking_open(std::path::Path::new("/")) else {
        return;
    };
    let directory = Arc::new(directory);
    let positions = match kind % 4 {
        0 => Positions::Opaque,
        1 => Positions::Hash,
        2 => Positions::Offset,
        _ => Positions::Index,
    };
    let max_parts = usize::from(parts % 16).max(1);
    let mut listing = Listing::new(&directory, max_parts, usize::MAX);
    listing.size = size;
    listing.positions = positions;
    listing.max_parts = match positions {
        Positions::Opaque => 1,
        _ => max_parts,
    };
    let scale = if kind & 16 == 0 { 1 } else { 1 << 52 };
    let mut position = 0u64;
    let mut by_position: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
    for (ino, step) in names.iter().take(2000).enumerate() {
        position = position.saturating_add(u64::from(*step) * scale);
        position = position.min(i64::MAX as u64 - 1);
        let here = by_position.entry(position).or_default();
        here.push((ino as u64, true));
    }
    let mut run = Run {
        listed: (0..names.len().min(2000) as u64)
            .map(|ino| (ino, 0))
            .collect(),
        made: Made {
            names: by_position,
            directory,
            choices: choices.iter(),
            next_ino: FIRST_TEMPORARY,
        },
        listing,
        steps: Vec::new(),
        max_parts,
        dense_end: (kind & 32 != 0).then_some(position),
    };
    let mut steps = 0;
    while !run.listing.is_over() {
        steps += 1;
        assert!(steps < 100_000, "it never ends");
        run.step();
    }
    for (ino, times) in &run.listed {
        let stays = *ino < FIRST_TEMPORARY;
        assert!(
            *times == 1 || *times == 0 && !stays,
            "name {ino} came {times} times"
        );
    }
}
