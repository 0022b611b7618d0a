//! Lists a made-up directory. The fuzzer decides how it is split, the order of the steps, and the number of
//! entries of each call.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use crate::metadata::FileType;

use super::{
    Circle, Cut, Directory, Listed, Lister, Listing, Positions, Problem, Rows, Step, Stream,
};
use crate::sys::Errno;

/// A directory of names by position, and the fuzzer's choices.
struct Made<'a> {
    /// The inode numbers at each position, and true if the name is never removed.
    names: BTreeMap<u64, Vec<(u64, bool)>>,
    directory: Arc<Directory>,
    choices: std::slice::Iter<'a, u8>,
}

impl Made<'_> {
    fn choice(&mut self) -> u8 {
        self.choices.next().copied().unwrap_or(200)
    }

    /// The result of a getdents64(2) call from the stream's position on.
    fn read(&mut self, mut stream: Stream) -> Listed {
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
            over,
        }
    }

    /// Creates or removes a name.
    fn change(&mut self) {
        let choice = u64::from(self.choice());
        let (at, ino) = (choice * 40 + 7, 1_000_000 + choice);
        match self.names.remove(&at) {
            None => _ = self.names.insert(at, vec![(ino, false)]),
            Some(names) if names[0].1 => _ = self.names.insert(at, names),
            Some(_) => {}
        }
    }
}

fn name_of(ino: u64) -> CString {
    CString::new(format!("name {ino}")).unwrap_or_default()
}

/// Lists a directory of names, each at a distance from the one before (0: at the same position). Asserts
/// that every name that is never removed is listed exactly once.
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
                let (rows, problem) = listing.take_in(listed);
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
                let stream = Stream {
                    fd: Lister::First(made.directory.clone()),
                    part: 0,
                    at: guess,
                    room: 0,
                    circle: Circle::default(),
                };
                let listed = Ok(made.read(stream));
                let (rows, problem) = listing.take_in_cut(Cut { guess, listed });
                take(rows, problem);
            }
        }
    }
    for (ino, times) in &expected {
        let stays = *ino < 1_000_000;
        assert!(*times == 1 || !stays, "name {ino} came {times} times");
    }
}
