//! The trees that are read ahead, and how far the program is in each.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nowait::scan::{self, Canceller};
use nowait::walk::{self, Found};
use nowait::{FileType, StatxMask};

use super::id::Id;
use super::watches::Watches;
use crate::prefetch::{Allowed, Budget};
use crate::problem::Problem;

/// How far below its root a tree is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The entries of the root.
    One,
    /// Everything on the filesystem.
    All,
}

/// The trees. Clones share them.
#[derive(Clone, Default)]
pub struct Trees(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The program went on, or all ends.
    changed: Condvar,
    stopped: AtomicBool,
    /// The calls of stat(2) that the program has made.
    stats: AtomicU64,
    /// A walk has ended because everything was cached.
    cached: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The directories that were found by a walk.
    known: HashMap<Id, Directory>,
    /// The directories that the program has opened.
    opened: HashSet<Id>,
    trees: Vec<Tree>,
    cancellers: Vec<Canceller>,
    threads: Vec<JoinHandle<()>>,
}

/// A directory of a tree.
#[derive(Debug)]
struct Directory {
    tree: usize,
    /// The number of its entries that were read.
    entries: u64,
    /// The program has left it.
    is_passed: bool,
}

impl Directory {
    fn of(tree: usize) -> Directory {
        Directory {
            tree,
            entries: 0,
            is_passed: false,
        }
    }
}

struct Tree {
    depth: Depth,
    /// The inodes that were read.
    read: u64,
    /// The inodes in directories that the program has left.
    passed: u64,
    /// The directory that the program has opened last, and the number of its calls of stat(2) before.
    current: Option<(Id, u64)>,
    running: bool,
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

/// The maximum number of trees that are walked at the same time.
const AT_ONCE: usize = 8;
/// The maximum number of directories that are kept track of.
const KNOWN: usize = 2_000_000;
/// The time of an inode below which the kernel had it cached.
const CACHED: Duration = Duration::from_micros(3);
/// The number of inodes in a row after which that is decided.
const ENOUGH: u64 = 16_384;
/// The time of a name below which the kernel had the directory cached, and the number of names after which that is decided.
const LISTED: Duration = Duration::from_nanos(400);
const LISTED_ENOUGH: u32 = 8192;
/// The interval at which a walk that waits for the program looks at its calls of stat(2).
const LOOK: Duration = Duration::from_millis(10);

/// The memory of an inode and its name in the kernel, in bytes.
const INODE: u64 = 1536;

/// The number of inodes that a walk is ahead at most: 3 % of the available memory.
fn most_ahead() -> u64 {
    let budget = Budget::new(Allowed::Percent(3));
    (budget.max() / INODE).clamp(10_000, 200_000)
}

impl Trees {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of the program's calls of stat(2) so far.
    pub fn set_stats(&self, stats: u64) {
        self.0.stats.store(stats, Ordering::Relaxed);
    }

    /// Returns true if a walk has ended since the last call because the kernel had everything cached.
    pub fn found_cached(&self) -> bool {
        self.0.cached.swap(false, Ordering::Relaxed)
    }

    /// Notes that the program has opened a directory. Returns true if a walk has read it, or will.
    pub fn opened(&self, id: Id) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.opened.len() < KNOWN {
            state.opened.insert(id);
        }
        let Some(tree) = state.known.get(&id).map(|directory| directory.tree) else {
            return false;
        };
        let stats = self.0.stats.load(Ordering::Relaxed);
        let before = state.trees[tree].current.replace((id, stats));
        if let Some((before, _)) = before
            && before != id
            && let Some(directory) = state.known.get_mut(&before)
            && !directory.is_passed
        {
            directory.is_passed = true;
            state.trees[tree].passed += directory.entries;
        }
        self.0.changed.notify_all();
        state.covers(id)
    }

    /// Returns true if a walk has read a directory, or will.
    pub fn covers(&self, id: Id) -> bool {
        self.state().covers(id)
    }

    /// Returns true if the program has opened this directory.
    pub fn has_opened(&self, id: Id) -> bool {
        self.state().opened.contains(&id)
    }

    /// Begins to read a directory, or the tree below it.
    pub fn begin(&self, directory: OwnedFd, id: Id, depth: Depth) {
        let mut state = self.state();
        if state.trees.iter().filter(|tree| tree.running).count() < AT_ONCE {
            self.start(&mut state, directory, id, depth, None);
        }
    }

    /// Lists a directory that the program is about to list. Its inodes are not read: the program may not ask for them.
    pub fn list(&self, directory: OwnedFd) {
        let Ok(mut names) = scan::Options::new().on(directory) else {
            return;
        };
        let mut state = self.state();
        state.cancellers.push(names.canceller());
        let trees = self.clone();
        let thread = std::thread::Builder::new().name("list".to_owned());
        let spawned = thread.spawn(move || {
            let began = Instant::now();
            let mut listed = 0;
            while let Some(Ok(batch)) = names.blocking_batch() {
                listed += batch.len() as u32;
                let is_cached = listed >= LISTED_ENOUGH && began.elapsed() < LISTED * listed;
                if is_cached || trees.0.stopped.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        state.threads.extend(spawned);
    }

    /// Walks a tree ahead of a program that inotify(7) watches.
    pub fn walk_watched(&self, root: &Path) -> Result<(), Problem> {
        let failed = |e: &dyn std::fmt::Display| Problem::of(root.display(), e);
        let directory = File::open(root).map_err(|e| failed(&e))?;
        let stat = rustix::fs::fstat(&directory).map_err(|e| failed(&e))?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(Problem::Usage(format!(
                "{}: --walk takes directories",
                root.display()
            )));
        }
        let root = root.canonicalize().map_err(|e| failed(&e))?;
        let watches = Watches::new(root).map_err(|e| Problem::of("inotify", e))?;
        let id = (stat.st_dev, stat.st_ino);
        self.start(
            &mut self.state(),
            directory.into(),
            id,
            Depth::All,
            Some(watches),
        );
        Ok(())
    }

    fn start(
        &self,
        state: &mut State,
        directory: OwnedFd,
        id: Id,
        depth: Depth,
        watches: Option<Watches>,
    ) {
        let mut options = walk::Options::new()
            .metadata(StatxMask::BASIC_STATS)
            .dont_sync(true)
            .one_filesystem(true)
            .window(16_384, 8 << 20);
        if depth == Depth::One {
            options = options.max_depth(1);
        }
        let Ok(walk) = options.on(directory) else {
            return;
        };
        let tree = state.trees.len();
        state.known.insert(id, Directory::of(tree));
        let current = state
            .opened
            .contains(&id)
            .then(|| (id, self.0.stats.load(Ordering::Relaxed)));
        state.trees.push(Tree {
            depth,
            read: 0,
            passed: 0,
            current,
            running: true,
        });
        state.cancellers.push(walk.canceller());
        let trees = self.clone();
        let thread = std::thread::Builder::new().name("ahead".to_owned());
        let spawned = thread.spawn(move || trees.walk(tree, walk, watches));
        match spawned {
            Ok(thread) => state.threads.push(thread),
            // The program runs as it would without readahead.
            Err(_) => state.trees[tree].running = false,
        }
    }

    /// Walks a tree, and waits for the program when it is far enough ahead.
    fn walk(&self, tree: usize, mut walk: nowait::Walk, mut watches: Option<Watches>) {
        let most = most_ahead();
        // In a single directory the program may have come before, in the same order.
        let may_end = watches.is_none() && self.state().trees[tree].depth == Depth::All;
        // The inodes in a row that were cached, and the time that they took.
        let (mut cached, mut began) = (0, Instant::now());
        while let Some(found) = walk.blocking_batch() {
            if self.0.stopped.load(Ordering::Relaxed) {
                break;
            }
            // The program reports a directory that cannot be read.
            let Ok(found) = found else { continue };
            if let Some(watches) = &mut watches {
                watches.add(&found);
                for id in watches.opened() {
                    self.opened(id);
                }
            }
            self.take_in(tree, &found);
            cached += found.batch().len() as u64;
            if began.elapsed() > CACHED * cached as u32 {
                (cached, began) = (0, Instant::now());
            } else if may_end && cached >= ENOUGH {
                self.0.cached.store(true, Ordering::Relaxed);
                break;
            }
            if self.wait_for_program(tree, most, watches.as_mut()) {
                (cached, began) = (0, Instant::now());
            }
        }
        self.state().trees[tree].running = false;
    }

    /// Takes in what was read of a directory.
    fn take_in(&self, tree: usize, found: &Found) {
        let entries = found.batch().len() as u64;
        let mut guard = self.state();
        let state = &mut *guard;
        let directory = state
            .known
            .entry(found.place().id())
            .or_insert(Directory::of(tree));
        if directory.tree != tree {
            *directory = Directory::of(tree);
        }
        directory.entries += entries;
        state.trees[tree].read += entries;
        if state.trees[tree].depth == Depth::One {
            return;
        }
        for entry in found.batch().iter() {
            let Some(Ok(metadata)) = entry.metadata() else {
                continue;
            };
            if metadata.file_type() != FileType::Dir || state.known.len() >= KNOWN {
                continue;
            }
            let id = (metadata.dev(), metadata.ino());
            state.known.entry(id).or_insert(Directory::of(tree));
        }
    }

    /// Waits until a walk is no more than `most` inodes ahead. Returns true if it had to wait.
    fn wait_for_program(&self, tree: usize, most: u64, mut watches: Option<&mut Watches>) -> bool {
        let mut state = self.state();
        let mut waited = false;
        while state.ahead(tree, self.0.stats.load(Ordering::Relaxed)) > most
            && !self.0.stopped.load(Ordering::Relaxed)
        {
            waited = true;
            let woken = self.0.changed.wait_timeout(state, LOOK);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(watches) = &mut watches {
                drop(state);
                for id in watches.opened() {
                    self.opened(id);
                }
                state = self.state();
            }
        }
        waited
    }

    /// Ends all walks, and returns the sums.
    pub fn stop(&self) -> Summary {
        self.0.stopped.store(true, Ordering::Relaxed);
        let mut state = self.state();
        for canceller in std::mem::take(&mut state.cancellers) {
            canceller.cancel();
        }
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.0.changed.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
        self.state().summary()
    }
}

impl State {
    fn covers(&self, id: Id) -> bool {
        let directory = self.known.get(&id);
        directory.is_some_and(|found| found.entries > 0 || self.trees[found.tree].running)
    }

    /// The number of inodes that a walk is ahead of the program.
    fn ahead(&self, tree: usize, stats: u64) -> u64 {
        let tree = &self.trees[tree];
        let current = tree.current.map_or(0, |(id, before)| {
            let here = self.known.get(&id).filter(|directory| !directory.is_passed);
            here.map_or(0, |here| here.entries.min(stats.saturating_sub(before)))
        });
        tree.read.saturating_sub(tree.passed + current)
    }

    fn summary(&self) -> Summary {
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
