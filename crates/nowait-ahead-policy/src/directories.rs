//! The directories that the walks have found, and how far the program is in each tree.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

use nowait::FileType;
use nowait::scan::Batch;

use crate::comparison::Treatment;
use crate::directory::Id;
use crate::siblings::{Siblings, Subdirectories};

/// The depth to which a tree is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The entries of the root.
    One,
    /// Everything on the filesystem.
    All,
}

/// The state of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// No walk has found it.
    Unknown,
    /// It is a control directory: nothing is read ahead there.
    Control,
    /// A walk has found it, and will read it.
    Queued,
    /// It is the root of a walk that has read nothing yet.
    Starting,
    /// A walk has found it, and waits for the program.
    Waiting,
    /// A walk has read entries of it, and has not ended.
    Read,
    /// A walk has read it, and has ended.
    Complete,
}

/// The directories and trees.
#[derive(Debug, Default)]
pub struct Directories {
    /// The directories that were found by a walk.
    known: HashMap<Id, TreeDirectory>,
    /// The directories that the program has opened.
    opened: HashSet<Id>,
    /// The control directories: nothing is read ahead there.
    controls: HashSet<Id>,
    trees: Vec<Tree>,
    /// The trees whose walks have not ended.
    running: Vec<usize>,
    /// The tree that the program is in, and the number of its calls of stat(2) when it entered the
    /// tree.
    here: Option<(usize, u64)>,
    /// The thread that has entered a directory last.
    thread: Option<u32>,
}

#[derive(Debug)]
struct TreeDirectory {
    tree: usize,
    /// The number of its entries that were read.
    entries: u64,
    /// The program has left it.
    is_passed: bool,
    /// It is one of those that the program has opened.
    is_opened: bool,
}

#[derive(Debug)]
struct Tree {
    root: Id,
    depth: Depth,
    /// The tree to which the subdirectories found by this walk belong. `None`: they are not recorded.
    owner: Option<usize>,
    /// The number of the program's calls of stat(2) in the tree before it left. `None` if they are
    /// not counted.
    stats: Option<u64>,
    /// The number of inodes that were read.
    read: u64,
    /// The number of those in directories that the program has left.
    passed: u64,
    /// The number of directories of the walk that the program has opened, before or after the walk.
    opened: u64,
    /// The order in which the program opens directories that the walk has found.
    siblings: Siblings,
    /// The directory that the program has opened last, and the number of its calls of stat(2) at
    /// that time.
    current: Option<(Id, u64)>,
    is_running: bool,
    is_waiting: bool,
    is_given_up: bool,
}

/// The sums over all trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The directories.
    pub directories: u64,
    /// The inodes.
    pub inodes: u64,
    /// The inodes in directories that the program has opened.
    pub used: u64,
}

/// The maximum number of directories.
const MAX_DIRECTORIES: usize = 2_000_000;
/// The maximum number of trees.
const MAX_TREES: usize = 100_000;
/// A walk may be so many inodes ahead of the program from its start, and so many more for each step of the program to the next
/// directory.
const AHEAD_PER_STEP: u64 = 4096;
/// The number of directories that a walk may be ahead before the program goes to the next ones. Later these are four times the square
/// of the number of steps more.
const FIRST_DIRECTORIES: u64 = 32;

impl TreeDirectory {
    fn of(tree: usize) -> TreeDirectory {
        TreeDirectory {
            tree,
            entries: 0,
            is_passed: false,
            is_opened: false,
        }
    }
}

impl Directories {
    /// Adds a tree that is about to be walked, and returns its number. `stats` is the number of the
    /// program's calls of stat(2) so far, if they are counted.
    pub fn add_tree(&mut self, root: Id, depth: Depth, stats: Option<u64>) -> usize {
        let tree = self.trees.len();
        // The program is in a directory to which the walk of its tree has not come.
        let above = self.known.get(&root).map(|directory| directory.tree);
        let owner = match depth {
            Depth::All => Some(tree),
            Depth::One => {
                above.filter(|&tree| self.is_limited(tree) && self.trees[tree].is_running)
            }
        };
        self.running.push(tree);
        self.known.insert(root, TreeDirectory::of(tree));
        self.controls.remove(&root);
        let current = stats.filter(|_| self.opened.contains(&root));
        self.trees.push(Tree {
            root,
            depth,
            owner,
            stats: stats.map(|_| 0),
            read: 0,
            passed: 0,
            opened: 0,
            siblings: Siblings::default(),
            current: current.map(|stats| (root, stats)),
            is_running: true,
            is_waiting: false,
            is_given_up: false,
        });
        if let Some(stats) = stats {
            self.enter_tree(Some(tree), stats);
        }
        tree
    }

    /// The program has entered a tree, or a directory that is in none.
    fn enter_tree(&mut self, tree: Option<usize>, stats: u64) {
        if let Some((before, since)) = self.here.take()
            && let Some(here) = &mut self.trees[before].stats
        {
            *here = here.saturating_add(stats.saturating_sub(since));
        }
        self.here = tree.map(|tree| (tree, stats));
    }

    /// The program's calls of stat(2) in a tree. `None` if they are not counted.
    pub fn stats_in(&self, tree: usize, stats: u64) -> Option<u64> {
        let more = self.here.filter(|here| here.0 == tree);
        let more = more.map_or(0, |(_, since)| stats.saturating_sub(since));
        let before = self.trees[tree].stats?;
        Some(before.saturating_add(more))
    }

    /// A walk has ended.
    pub fn end(&mut self, tree: usize) {
        self.running.retain(|running| *running != tree);
        let tree = &mut self.trees[tree];
        tree.is_running = false;
        tree.is_waiting = false;
        tree.siblings = Siblings::default();
    }

    /// A walk waits for the program, or goes on.
    pub fn set_waiting(&mut self, tree: usize, yes: bool) {
        self.trees[tree].is_waiting = yes;
    }

    /// The walk of a tree is to end.
    pub fn give_up(&mut self, tree: usize) {
        self.trees[tree].is_given_up = true;
    }

    /// Returns true if the walk of a tree is to end.
    pub fn is_given_up(&self, tree: usize) -> bool {
        self.trees[tree].is_given_up
    }

    /// The thread that the program was in when it entered a directory last. `None` if it is not known.
    pub fn thread(&self) -> Option<u32> {
        self.thread
    }

    /// The number of walks that have not ended.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns true if no tree can be added.
    pub fn is_full(&self) -> bool {
        self.trees.len() >= MAX_TREES
    }

    /// Makes it a control directory, unless entries of it were read: nothing is read ahead there.
    pub fn make_control(&mut self, id: Id) {
        if self.known.get(&id).is_none_or(|known| known.entries == 0) {
            self.controls.insert(id);
        }
    }

    /// The program has left the directory that it has opened last in a tree, unless that is `id`.
    fn leave(&mut self, tree: usize, id: Id) {
        if let Some((before, _)) = self.trees[tree].current
            && before != id
            && let Some(directory) = self.known.get_mut(&before)
            && !directory.is_passed
        {
            directory.is_passed = true;
            self.trees[directory.tree].passed += directory.entries;
        }
    }

    /// A thread of the program works in a directory, or has opened it.
    pub fn enter(&mut self, id: Id, stats: u64, thread: u32) -> DirectoryState {
        self.thread = (thread != 0).then_some(thread);
        let is_first = self.opened.len() < MAX_DIRECTORIES && self.opened.insert(id);
        let tree = self.known.get(&id).map(|directory| directory.tree);
        if let Some((before, _)) = self.here {
            self.leave(before, id);
        }
        self.enter_tree(tree, stats);
        if let Some(tree) = tree {
            self.leave(tree, id);
            self.trees[tree].current = Some((id, stats));
            if is_first {
                self.count_opened(id);
            }
        }
        for &tree in &self.running {
            self.trees[tree].siblings.opened(id, thread);
        }
        self.state_of(id)
    }

    /// A thread of the program waits in a directory. It need not have opened the directory.
    pub fn waits(&mut self, id: Id, thread: u32) {
        for &tree in &self.running {
            self.trees[tree].siblings.waits(id, thread);
        }
    }

    /// The program has opened a directory that a walk has found. It is counted once.
    fn count_opened(&mut self, id: Id) {
        if let Some(directory) = self.known.get_mut(&id)
            && !std::mem::replace(&mut directory.is_opened, true)
        {
            self.trees[directory.tree].opened += 1;
        }
    }

    /// Returns the state of a directory.
    pub fn state_of(&self, id: Id) -> DirectoryState {
        if self.controls.contains(&id) {
            return DirectoryState::Control;
        }
        let Some(directory) = self.known.get(&id) else {
            return DirectoryState::Unknown;
        };
        match &self.trees[directory.tree] {
            tree if directory.entries > 0 && tree.is_running => DirectoryState::Read,
            _ if directory.entries > 0 => DirectoryState::Complete,
            tree if tree.is_running && tree.root == id => DirectoryState::Starting,
            tree if tree.is_waiting => DirectoryState::Waiting,
            tree if tree.is_running => DirectoryState::Queued,
            _ => DirectoryState::Unknown,
        }
    }

    /// Returns true if the program has opened this directory, or works in it.
    pub fn has_entered(&self, id: Id) -> bool {
        self.opened.contains(&id)
    }

    /// Adds entries of a directory that a walk has read.
    pub fn add(&mut self, tree: usize, found: &Batch) {
        let (id, entries) = (found.dir().id(), found.len() as u64);
        let owner = self.known.get(&id).map_or(tree, |known| known.tree);
        // Two walks may read the same directory. Its entries are counted once.
        if owner == tree || !self.trees[owner].is_running {
            let directory = self.known.entry(id).or_insert(TreeDirectory::of(tree));
            if directory.tree != tree {
                (directory.tree, directory.entries, directory.is_opened) = (tree, 0, false);
            }
            directory.entries += entries;
            let tree = &mut self.trees[tree];
            tree.read += entries;
            // The program may have left the directory before the walk read it.
            if directory.is_passed {
                tree.passed += entries;
            }
        }
        if self.opened.contains(&id) {
            self.count_opened(id);
        }
        let Some(tree) = self.trees[tree].owner else {
            return;
        };
        for entry in found.iter() {
            let Some(Ok(metadata)) = entry.metadata() else {
                continue;
            };
            if metadata.file_type() != FileType::Dir || self.known.len() >= MAX_DIRECTORIES {
                continue;
            }
            let id = (metadata.dev(), metadata.ino());
            let directory = self.known.entry(id).or_insert(TreeDirectory::of(tree));
            // An earlier walk has found it, and has not read it.
            if directory.entries == 0 && !self.trees[directory.tree].is_running {
                directory.tree = tree;
            }
        }
    }

    /// The tree whose limit depends on the order in which the program opens the subdirectories that walk `tree` finds.
    pub fn order_counts_in(&self, tree: usize) -> Option<usize> {
        let owner = self.trees[tree].owner?;
        (self.is_limited(owner) && self.trees[owner].is_running).then_some(owner)
    }

    /// Records the order of subdirectories of a tree.
    pub fn add_order(&mut self, tree: usize, subdirectories: Subdirectories) {
        if self.trees[tree].is_running {
            self.trees[tree].siblings.add(subdirectories);
        }
    }

    /// Returns true if the program decides how far a walk goes.
    fn is_limited(&self, tree: usize) -> bool {
        let tree = &self.trees[tree];
        tree.depth == Depth::All && tree.stats.is_some()
    }

    /// The number of directories that a walk may open, with the root. A program that finds files by their names, such as an
    /// interpreter that imports modules, opens few of the directories in a tree.
    pub fn max_directories(&self, number: usize) -> u64 {
        if !self.is_limited(number) {
            return u64::MAX;
        }
        let tree = &self.trees[number];
        let steps = tree.siblings.steps();
        let ahead = FIRST_DIRECTORIES.saturating_add((4 * steps).saturating_mul(steps));
        (1 + tree.opened).saturating_add(ahead)
    }

    /// The number of inodes that a walk may have read, if it is ahead of the program by at most
    /// `max`, or by fewer if the program has made few steps in the tree.
    pub fn limit(&self, number: usize, max: u64, stats: u64) -> u64 {
        let tree = &self.trees[number];
        let current = tree.current.map_or(0, |(id, before)| {
            let here = self.known.get(&id).filter(|directory| !directory.is_passed);
            here.map_or(0, |here| here.entries.min(stats.saturating_sub(before)))
        });
        let max = match tree.depth {
            Depth::All if tree.stats.is_some() => {
                let steps = 1 + tree.siblings.steps();
                max.min(steps.saturating_mul(AHEAD_PER_STEP))
            }
            // Before the first stat(2) the walk reads as many entries as its window holds.
            Depth::One if self.stats_in(number, stats) == Some(0) => 0,
            _ => max,
        };
        tree.passed.saturating_add(current).saturating_add(max)
    }

    /// Returns true if a walk has read more inodes than `limit`.
    pub fn is_beyond(&self, number: usize, limit: u64) -> bool {
        self.trees[number].read > limit
    }

    /// The sums over all directories.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for (id, directory) in self
            .known
            .iter()
            .filter(|(_, directory)| directory.entries > 0)
        {
            summary.directories += 1;
            summary.inodes += directory.entries;
            if self.opened.contains(id) {
                summary.used += directory.entries;
            }
        }
        summary
    }
}

impl DirectoryState {
    /// The treatment of a directory that the program enters.
    pub fn treatment(self) -> Treatment {
        match self {
            DirectoryState::Read | DirectoryState::Complete => Treatment::ReadAhead,
            DirectoryState::Control => Treatment::Control,
            DirectoryState::Unknown
            | DirectoryState::Queued
            | DirectoryState::Starting
            | DirectoryState::Waiting => Treatment::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use nowait::{StatxMask, walk};

    fn id(path: &Path) -> Id {
        let metadata = fs::metadata(path).unwrap();
        (metadata.dev(), metadata.ino())
    }

    fn is_far_ahead(directories: &Directories, tree: usize, max: u64, stats: u64) -> bool {
        directories.is_beyond(tree, directories.limit(tree, max, stats))
    }

    /// The directories `d0`, `d1` and `d2` with ten files each.
    fn three_directories() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for n in 0..3 {
            let path = root.path().join(format!("d{n}"));
            fs::create_dir(&path).unwrap();
            (0..10).for_each(|f| fs::write(path.join(f.to_string()), "").unwrap());
        }
        root
    }

    fn walk_into(directories: &mut Directories, tree: usize, options: &walk::Options, path: &Path) {
        let open = OwnedFd::from(fs::File::open(path).unwrap());
        let mut walk = options.blocking_open(path).unwrap();
        while let Some(Ok(found)) = walk.blocking_batch() {
            directories.add(tree, &found);
            if let Some(tree) = directories.order_counts_in(tree) {
                directories.add_order(tree, Subdirectories::of(&open, &found));
            }
        }
    }

    #[test]
    fn the_program_is_followed_through_a_tree() {
        let root = three_directories();
        let path = |n: u32| root.path().join(format!("d{n}"));
        let mut directories = Directories::default();
        assert_eq!(
            directories.state_of(id(root.path())),
            DirectoryState::Unknown
        );
        let tree = directories.add_tree(id(root.path()), Depth::All, Some(0));
        assert_eq!(
            directories.state_of(id(root.path())),
            DirectoryState::Starting
        );
        directories.make_control(id(&path(2)));
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        let options = options.filter_dirs(|path, _| !path.ends_with("d2"));
        walk_into(&mut directories, tree, &options, root.path());
        assert_eq!(directories.state_of(id(&path(0))), DirectoryState::Read);
        assert_eq!(directories.state_of(id(&path(2))), DirectoryState::Control);
        assert_eq!(directories.trees[tree].read, 23);
        assert_eq!(directories.enter(id(&path(0)), 3, 1), DirectoryState::Read);
        assert!(is_far_ahead(&directories, tree, 21, 4));
        assert!(!is_far_ahead(&directories, tree, 22, 4));
        directories.enter(id(&path(1)), 13, 1);
        assert_eq!(directories.trees[tree].passed, 10);
        directories.end(tree);
        assert_eq!(directories.state_of(id(&path(1))), DirectoryState::Complete);
        let expected = Summary {
            directories: 3,
            inodes: 23,
            used: 20,
        };
        assert_eq!(directories.summary(), expected);
    }

    #[test]
    fn a_walk_is_little_ahead_of_a_program_that_makes_no_steps() {
        let mut directories = Directories::default();
        let mut add = |inode, stats| {
            let tree = directories.add_tree((1, inode), Depth::All, stats);
            directories.trees[tree].read = 10_000;
            tree
        };
        let (watched, tree) = (add(1, None), add(2, Some(0)));
        assert!(!is_far_ahead(&directories, watched, 200_000, 0));
        assert!(is_far_ahead(&directories, watched, 9999, 0));
        // A program asks for the same names again and again.
        assert!(is_far_ahead(&directories, tree, 200_000, 9000));
    }

    #[test]
    fn inodes_are_counted_once_and_passed_whoever_comes_first() {
        let root = three_directories();
        let path = |n: u32| root.path().join(format!("d{n}"));
        let mut directories = Directories::default();
        let all = directories.add_tree(id(root.path()), Depth::All, Some(0));
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        let options = options.max_depth(1);
        walk_into(&mut directories, all, &options, root.path());
        // A second walk reads the directory of the program, and the first one comes there, too.
        directories.enter(id(&path(0)), 3, 1);
        let one = directories.add_tree(id(&path(0)), Depth::One, Some(3));
        assert_eq!(directories.state_of(id(&path(0))), DirectoryState::Starting);
        walk_into(&mut directories, one, &options, &path(0));
        walk_into(&mut directories, all, &options, &path(0));
        let counts = |directories: &Directories, tree: usize| {
            (directories.trees[tree].read, directories.trees[tree].passed)
        };
        assert_eq!(counts(&directories, one), (10, 0));
        assert_eq!(counts(&directories, all), (3, 0));
        // The program leaves it, and leaves the next one before the walk comes.
        directories.enter(id(&path(1)), 13, 1);
        assert_eq!(counts(&directories, one), (10, 10));
        directories.enter(id(&path(2)), 23, 1);
        walk_into(&mut directories, all, &options, &path(1));
        assert_eq!(counts(&directories, all), (13, 10));
        assert_eq!(directories.running(), 2);
        assert_eq!(directories.summary().inodes, 23);
    }

    #[test]
    fn a_walk_opens_more_directories_if_the_program_opens_them_in_an_order() {
        let root = tempfile::tempdir().unwrap();
        let path = |n: usize| root.path().join(format!("{n:03}"));
        (0..200).for_each(|n| fs::create_dir(path(n)).unwrap());
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        let options = options.max_depth(1);
        let most = |in_order: bool, count: usize| {
            let mut directories = Directories::default();
            let tree = directories.add_tree(id(root.path()), Depth::All, Some(0));
            walk_into(&mut directories, tree, &options, root.path());
            directories.trees[tree].read = 50_000;
            for n in 0..count {
                let n = if in_order { n } else { n * 77 % 200 };
                directories.enter(id(&path(n)), 0, 1);
                // Again.
                directories.enter(id(&path(n)), 0, 1);
            }
            let is_far = is_far_ahead(&directories, tree, 200_000, 0);
            assert_eq!(is_far, !in_order || count == 0);
            directories.max_directories(tree)
        };
        assert_eq!(most(true, 0), 1 + FIRST_DIRECTORIES);
        // The first step in each of a few batches does not count.
        assert!(most(true, 41) > 1 + 41 + FIRST_DIRECTORIES + 4 * 30 * 30);
        // By chance, some are next to one another.
        assert!(most(false, 41) < 1 + 41 + FIRST_DIRECTORIES + 4 * 5 * 5);
    }

    /// The walk of the tree is in another directory.
    #[test]
    fn steps_in_a_directory_that_is_read_at_once_count_in_its_tree() {
        let root = three_directories();
        let path = |n: u32| root.path().join(format!("d0/{n}"));
        (10..30).for_each(|n| fs::create_dir(path(n)).unwrap());
        let mut directories = Directories::default();
        let tree = directories.add_tree(id(root.path()), Depth::All, Some(0));
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        let options = options.max_depth(1);
        walk_into(&mut directories, tree, &options, root.path());
        let here = root.path().join("d0");
        directories.enter(id(&here), 0, 1);
        let one = directories.add_tree(id(&here), Depth::One, Some(0));
        assert_eq!(directories.order_counts_in(one), Some(tree));
        walk_into(&mut directories, one, &options, &here);
        for n in 10..21 {
            directories.enter(id(&path(n)), 0, 1);
        }
        let most = directories.max_directories(tree);
        assert!(most > 1 + 12 + FIRST_DIRECTORIES + 30, "{most}");
        directories.end(tree);
        assert_eq!(directories.order_counts_in(one), None);
    }

    /// A second walk comes through directories that the program has left.
    #[test]
    fn directories_that_the_program_has_opened_do_not_count() {
        let root = three_directories();
        let path = |n: u32| root.path().join(format!("d{n}"));
        let mut directories = Directories::default();
        for n in [0, 1] {
            directories.enter(id(&path(n)), 0, 1);
        }
        let tree = directories.add_tree(id(root.path()), Depth::All, Some(0));
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        walk_into(&mut directories, tree, &options, root.path());
        assert_eq!(directories.max_directories(tree), 1 + 2 + FIRST_DIRECTORIES);
        for _ in 0..2 {
            directories.enter(id(&path(2)), 0, 1);
        }
        assert_eq!(directories.max_directories(tree), 1 + 3 + FIRST_DIRECTORIES);
    }

    #[test]
    fn the_walk_of_a_directory_is_little_ahead_before_the_first_stat() {
        let mut directories = Directories::default();
        let tree = directories.add_tree((1, 1), Depth::One, Some(1000));
        assert!(!is_far_ahead(&directories, tree, 200_000, 1000));
        directories.trees[tree].read = 1;
        assert!(is_far_ahead(&directories, tree, 200_000, 1000));
        directories.trees[tree].read = 20_000;
        assert!(is_far_ahead(&directories, tree, 200_000, 1000));
        assert!(!is_far_ahead(&directories, tree, 200_000, 1001));
        assert!(is_far_ahead(&directories, tree, 19_999, 9000));
    }
}
