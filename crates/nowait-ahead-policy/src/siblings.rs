//! The order in which a program opens the directories that a walk has found.
//!
//! A program that goes through a tree opens the subdirectories of a directory one after the other: by inode number, by name, or
//! as they are listed, forwards or backwards. A program that finds files by their names, such as an interpreter that imports
//! modules, opens a few of them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use nowait::FileType;
use nowait::scan::Batch;

use crate::directory::{Id, positions};
use crate::sequence::Order;

/// The directories of a walk that the program has not opened, and its steps so far.
#[derive(Debug, Default)]
pub struct Siblings {
    places: HashMap<Id, Place>,
    /// The last place of a thread among the subdirectories of a batch, by the numbers of both. Threads often share a directory.
    last: HashMap<(u32, u32), [u32; 3]>,
    batches: u32,
    /// The number of steps to the next directory minus the number of others, at least 0: forwards by [`Order`], and backwards.
    steps: [[u64; 3]; 2],
}

/// The place of a directory among those of the same batch.
#[derive(Clone, Copy, Debug)]
struct Place {
    batch: u32,
    numbers: [u32; 3],
}

/// The subdirectories in a batch of a walk, with their numbers by [`Order`], which begin with 1. 0 is unknown.
#[derive(Debug, Default)]
pub struct Subdirectories(Vec<(Id, [u32; 3])>);

/// The maximum number of directories.
const MAX_DIRECTORIES: usize = 500_000;
/// The maximum number of names of a directory whose order is looked at.
const MAX_NAMES: usize = 4096;
/// The next directory is at most so many further on. Several threads do not keep to the order exactly, and some directories are left
/// out, such as hidden ones.
const NEXT: u32 = 3;

impl Subdirectories {
    /// Those in a batch of a walk, which began at `root`. The directory is listed, as the walk has just done.
    pub fn of(root: &OwnedFd, found: &Batch) -> Subdirectories {
        let mut listed = Vec::new();
        for entry in found.iter() {
            if let Some(Ok(metadata)) = entry.metadata()
                && metadata.file_type() == FileType::Dir
            {
                let id = (metadata.dev(), metadata.ino());
                listed.push((entry.file_name().to_owned(), id));
            }
        }
        let mut numbers = vec![[0; 3]; listed.len()];
        let mut set = |order: Order, sorted: &[usize]| {
            for (number, &at) in (1..).zip(sorted) {
                numbers[at][order as usize] = number;
            }
        };
        let mut sorted: Vec<usize> = (0..listed.len()).collect();
        sorted.sort_unstable_by_key(|&at| &listed[at].0);
        set(Order::Name, &sorted);
        sorted.sort_unstable_by_key(|&at| listed[at].1);
        set(Order::Inode, &sorted);
        if listed.len() > 1 {
            let positions = positions(root, &found.dir().path(), MAX_NAMES);
            let position = |at: usize| positions.get(&listed[at].1.1);
            sorted.retain(|&at| position(at).is_some());
            sorted.sort_unstable_by_key(|&at| position(at));
            set(Order::Listing, &sorted);
        }
        let ids = listed.into_iter().map(|(_, id)| id);
        Subdirectories(ids.zip(numbers).collect())
    }
}

impl Siblings {
    /// Adds what the walk has found.
    pub fn add(&mut self, found: Subdirectories) {
        if self.places.len() + found.0.len() > MAX_DIRECTORIES {
            return;
        }
        let batch = self.batches;
        self.batches = batch.wrapping_add(1);
        for (id, numbers) in found.0 {
            self.places.insert(id, Place { batch, numbers });
        }
    }

    /// A thread of the program has opened a directory.
    pub fn opened(&mut self, id: Id, thread: u32) {
        self.step(id, thread, NEXT);
    }

    /// A thread of the program waits for a file in a directory. It need not wait in those between this one and the last one.
    pub fn waits(&mut self, id: Id, thread: u32) {
        self.step(id, thread, u32::MAX / 2);
    }

    fn step(&mut self, id: Id, thread: u32, next: u32) {
        let Some(Place { batch, numbers }) = self.places.remove(&id) else {
            return;
        };
        if self.last.len() >= MAX_DIRECTORIES {
            self.last.clear();
        }
        let Some(last) = self.last.insert((batch, thread), numbers) else {
            return;
        };
        for order in 0..3 {
            let (number, last) = (numbers[order], last[order]);
            if number == 0 || last == 0 {
                continue;
            }
            for (direction, gap) in [number.wrapping_sub(last), last.wrapping_sub(number)]
                .into_iter()
                .enumerate()
            {
                let steps = &mut self.steps[direction][order];
                *steps = match (1..=next).contains(&gap) {
                    true => *steps + 1,
                    false => steps.saturating_sub(1),
                };
            }
        }
    }

    /// The number of steps in the order that fits best.
    pub fn steps(&self) -> u64 {
        self.steps.as_flattened().iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    use nowait::{StatxMask, walk};

    fn id(path: &Path) -> Id {
        let metadata = fs::metadata(path).unwrap();
        (metadata.dev(), metadata.ino())
    }

    fn found(root: &Path) -> Siblings {
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        let open = OwnedFd::from(fs::File::open(root).unwrap());
        let walk = options.max_depth(1).from_fd(open.try_clone().unwrap());
        let mut walk = walk.unwrap();
        let mut siblings = Siblings::default();
        while let Some(batch) = walk.blocking_batch() {
            siblings.add(Subdirectories::of(&open, &batch.unwrap()));
        }
        siblings
    }

    /// A directory with a hundred subdirectories, which are made in another order than that of their names.
    fn hundred() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for number in 0..100 {
            let name = format!("{:02}", number * 77 % 100);
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::write(root.path().join("file"), "").unwrap();
        root
    }

    /// The steps of a program that opens these directories.
    fn steps(root: &Path, ids: impl IntoIterator<Item = Id>) -> u64 {
        let mut siblings = found(root);
        for id in ids {
            siblings.opened(id, 1);
            // Again.
            siblings.opened(id, 1);
        }
        siblings.steps()
    }

    #[test]
    fn each_order_is_known_in_both_directions() {
        let root = hundred();
        let entries = fs::read_dir(root.path()).unwrap();
        let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        let paths: Vec<_> = paths.iter().filter(|path| path.is_dir()).collect();
        let listed: Vec<Id> = paths.iter().map(|path| id(path)).collect();
        let mut by_inode = listed.clone();
        by_inode.sort_unstable();
        let mut sorted = paths;
        sorted.sort();
        let by_name = sorted.iter().map(|path| id(path)).collect();
        for ids in [listed, by_name, by_inode] {
            // The first step in each of a few batches does not count.
            assert!(steps(root.path(), ids.iter().copied()) > 80);
            assert!(steps(root.path(), ids.iter().rev().copied()) > 80);
            // Some are left out.
            assert!(steps(root.path(), ids.iter().copied().step_by(2)) > 20);
        }
    }

    #[test]
    fn each_thread_has_a_place_of_its_own() {
        let root = hundred();
        let path = |number: u32| id(&root.path().join(format!("{number:02}")));
        let mut siblings = found(root.path());
        for number in 0..50 {
            siblings.opened(path(number), 1);
            siblings.opened(path(50 + number), 2);
        }
        assert!(siblings.steps() > 80);
    }

    #[test]
    fn a_program_that_opens_directories_at_random_makes_few_steps() {
        let root = hundred();
        let path = |number: u32| id(&root.path().join(format!("{:02}", number * number % 97)));
        assert!(steps(root.path(), (1..49).map(path)) < 8);
        assert_eq!(steps(root.path(), [id(&root.path().join("file"))]), 0);
    }
}
