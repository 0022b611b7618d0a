//! The walks that read inodes ahead of the program.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nowait::scan::{self, Canceller};
use nowait::{StatxMask, walk};
use nowait_ahead_channel::LARGE;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, open, statat};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::cached::Cached;
use crate::directories::{Depth, Directories, DirectoryState, Summary};
use crate::directory::Id;
use crate::disk::Disks;
use crate::files::Files;
use crate::mounts;
use crate::siblings::Subdirectories;
use crate::watches::Watches;

/// The walks. Clones share them.
#[derive(Clone)]
pub struct Trees(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Signalled when the program goes on, or the walks end.
    changed: Condvar,
    stopped: AtomicBool,
    /// The number of the program's calls of stat(2).
    stats: AtomicU64,
    /// A walk has ended because everything was cached.
    cached: AtomicBool,
    /// The number of directories that could have been control directories.
    considered: AtomicU64,
    /// Reads the data of files.
    files: Option<Files>,
    /// Returns the available memory in bytes.
    available: fn() -> u64,
}

#[derive(Default)]
struct State {
    directories: Directories,
    walkers: Vec<Walker>,
    /// The number of scans that have not ended.
    lists: usize,
    /// The walks of trees pause.
    is_paused: bool,
}

/// A walk or a scan, and its thread.
struct Walker {
    /// The tree. `None` for a scan.
    tree: Option<usize>,
    /// The mount, as in /proc/PID/mountinfo. `None` if it is not known.
    mount: Option<u64>,
    canceller: Canceller,
    thread: JoinHandle<()>,
}

/// The outcome of waiting for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// The walk need not wait.
    No,
    /// The program has come closer.
    Yes,
    /// The program does nothing in the tree.
    InVain,
}

/// The limit at which a walk waits for the program.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// It is at most this number of inodes ahead.
    Ahead(u64),
    /// It has opened this number of directories, and may open no more.
    Opened(u64),
}

/// A tree that is about to be walked.
struct Start {
    directory: OwnedFd,
    id: Id,
    depth: Depth,
    watches: Option<Watches>,
    /// The number of workers, if the walk does not choose it.
    workers: Option<usize>,
}

/// The maximum number of walks at the same time, and of directories that are listed at the same
/// time.
const MAX_WALKS: usize = 8;
/// The interval at which the program's calls of stat(2) are looked at.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// One directory in this many is a control directory, in which nothing is read ahead, until there were
/// [`FIRST_CONTROLS`].
const CONTROL_PERIOD: u64 = 16;
const FIRST_CONTROLS: u64 = 6;
/// One directory in this many is a control directory after that. The program is slow in these.
const LATER_CONTROL_PERIOD: u64 = 512;

/// If the program does nothing in a tree for this time, it may want to unmount the filesystem.
pub const UNUSED_AFTER: Duration = Duration::from_secs(5);

/// The memory of an entry in the window of a walk, in bytes.
const ENTRY_SIZE: usize = 512;
/// The memory of an inode and its name in the kernel, in bytes.
const INODE_SIZE: u64 = 1536;

impl Trees {
    /// No walks yet. They report files to `files`. `available` returns the bytes of memory that are
    /// available.
    pub fn new(files: Option<Files>, available: fn() -> u64) -> Trees {
        Trees(Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            stats: AtomicU64::new(0),
            cached: AtomicBool::new(false),
            considered: AtomicU64::new(0),
            files,
            available,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> u64 {
        self.0.stats.load(Ordering::Relaxed)
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    /// Returns true if the walk of a tree is to end.
    fn is_over(&self, tree: usize) -> bool {
        self.is_stopped() || self.state().directories.is_given_up(tree)
    }

    /// Sets the number of the program's calls of stat(2) so far.
    pub fn set_stats(&self, stats: u64) {
        self.0.stats.store(stats, Ordering::Relaxed);
    }

    /// Returns true if a walk has ended since the last call because the kernel had everything
    /// cached.
    pub fn found_cached(&self) -> bool {
        self.0.cached.swap(false, Ordering::Relaxed)
    }

    /// Records that a thread of the program has entered a directory. 0 is a thread that is not known.
    pub fn entered(&self, id: Id, thread: u32) -> DirectoryState {
        let stats = self.stats();
        let state = self.state().directories.enter(id, stats, thread);
        self.0.changed.notify_all();
        state
    }

    /// Records that a thread of the program waits in a directory.
    pub fn waits(&self, id: Id, thread: u32) {
        self.state().directories.waits(id, thread);
        self.0.changed.notify_all();
    }

    /// Returns the state of a directory.
    pub fn state_of(&self, id: Id) -> DirectoryState {
        self.state().directories.state_of(id)
    }

    /// Returns true if the program has entered this directory.
    pub fn has_entered(&self, id: Id) -> bool {
        self.state().directories.has_entered(id)
    }

    /// Begins to read a directory, or the tree below it, unless there are enough walks.
    pub fn begin(&self, directory: OwnedFd, id: Id, depth: Depth) {
        let has_room = {
            let directories = &self.state().directories;
            directories.running() < MAX_WALKS && !directories.is_full()
        };
        if has_room && !self.is_stopped() {
            // Nothing is read ahead if the walk cannot begin.
            let _ = self.start(Start {
                directory,
                id,
                depth,
                watches: None,
                workers: None,
            });
        }
    }

    /// Lists a directory that the program is about to list. Its inodes are not read: the program
    /// may not ask for them.
    pub fn list_names(&self, directory: OwnedFd) {
        if self.is_stopped() || self.state().lists >= MAX_WALKS {
            return;
        }
        let mount = mounts::of(&directory);
        let Ok(mut names) = scan::Options::new().from_fd(directory) else {
            return;
        };
        let canceller = names.canceller();
        let trees = self.clone();
        let thread = std::thread::Builder::new().name("list".to_owned());
        let mut state = self.state();
        let spawned = thread.spawn(move || {
            while !trees.is_stopped() && matches!(names.blocking_batch(), Some(Ok(_))) {}
            trees.state().lists -= 1;
        });
        if let Ok(thread) = spawned {
            state.lists += 1;
            state.add(Walker {
                tree: None,
                mount,
                canceller,
                thread,
            });
        }
    }

    /// Walks a tree ahead of a program that inotify(7) watches.
    pub fn walk_watched(&self, root: &Path) -> io::Result<()> {
        // A FIFO or a device is not opened.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(root, flags, Mode::empty())?;
        let stat = fstat(&directory)?;
        let watches = Watches::new(root.canonicalize()?, self.0.files.is_some())?;
        // Requests of several workers are out of order, and each costs a seek.
        let seeks = Disks::default().seeks_below(&directory, stat.st_dev) == Some(true);
        let start = Start {
            directory,
            id: (stat.st_dev, stat.st_ino),
            depth: Depth::All,
            watches: Some(watches),
            workers: seeks.then_some(1),
        };
        // The program may open the root before the walk has read and watched it.
        self.entered(start.id, 0);
        if let Some(files) = &self.0.files {
            files.entered(start.id);
        }
        self.start(start)
    }

    /// Starts the thread of a walk. The state is locked after all calls that may wait.
    fn start(&self, start: Start) -> io::Result<()> {
        let is_watched = start.watches.is_some();
        let mut options = walk::Options::new()
            .metadata(StatxMask::BASIC_STATS)
            .dont_sync(true)
            .one_filesystem(true);
        let window = match start.depth {
            // find(1) and du(1) list ten thousand names before their first stat(2).
            Depth::One => 32_768,
            Depth::All if is_watched => 16_384,
            Depth::All => 8192,
        };
        options = options.max_buffered(window, window * ENTRY_SIZE);
        if start.depth == Depth::One {
            options = options.max_depth(1);
        }
        if let Some(workers) = start.workers {
            options = options.workers(workers);
        }
        let mount = mounts::of(&start.directory);
        let root = Arc::new(start.directory.try_clone()?);
        if let Some(files) = self.0.files.as_ref().filter(|_| is_watched) {
            files.keep(&root);
        }
        if start.depth == Depth::All && !is_watched {
            options = options.filter_dirs(self.controls(&root));
        }
        let walk = options.from_fd(start.directory)?;
        let stats = (!is_watched).then(|| self.stats());
        let mut state = self.state();
        if self.is_stopped() {
            return Ok(());
        }
        let tree = state.directories.add_tree(start.id, start.depth, stats);
        let canceller = walk.canceller();
        let trees = self.clone();
        // In a single directory the program may have come before, in the same order.
        let ends_if_cached = start.depth == Depth::All && !is_watched && self.0.files.is_none();
        let thread = std::thread::Builder::new().name("ahead".to_owned());
        let spawned = thread.spawn(move || {
            trees.walk(tree, &root, walk, start.watches, ends_if_cached);
            trees.state().directories.end(tree);
        });
        let thread = spawned.inspect_err(|_| state.directories.end(tree))?;
        state.add(Walker {
            tree: Some(tree),
            mount,
            canceller,
            thread,
        });
        Ok(())
    }

    /// Returns a filter that returns false for control directories.
    fn controls(
        &self,
        root: &Arc<OwnedFd>,
    ) -> impl Fn(&Path, usize) -> bool + Send + Sync + 'static {
        let (trees, root) = (self.clone(), root.clone());
        // A random offset: the directories may have an order with the same period. The first half
        // of the period is no control directory, since there may be no more directories.
        let offset = CONTROL_PERIOD / 2 + RandomState::new().hash_one(0) % (CONTROL_PERIOD / 2);
        move |path, _| {
            trees.wait_for_pause();
            let number = trees.0.considered.fetch_add(1, Ordering::Relaxed);
            let period = match number < CONTROL_PERIOD * FIRST_CONTROLS {
                true => CONTROL_PERIOD,
                false => LATER_CONTROL_PERIOD,
            };
            if number % period != offset {
                return true;
            }
            match statat(root.as_fd(), path, AtFlags::SYMLINK_NOFOLLOW) {
                // The program would be slow in a large directory for a long time.
                Ok(stat) if stat.st_size >= LARGE => true,
                Ok(stat) => {
                    let id = (stat.st_dev, stat.st_ino);
                    trees.state().directories.make_control(id);
                    false
                }
                Err(_) => true,
            }
        }
    }

    /// Walks a tree, and waits while it is far enough ahead of the program. It ends if the program
    /// does nothing in the tree, and, with `ends_if_cached`, if the tree is cached.
    fn walk(
        &self,
        tree: usize,
        root: &Arc<OwnedFd>,
        mut walk: nowait::Walk,
        mut watches: Option<Watches>,
        ends_if_cached: bool,
    ) {
        let max = self.max_ahead();
        let mut cached = Cached::new();
        while !self.is_over(tree) {
            walk.set_max_directories(self.state().directories.max_directories(tree));
            let Some(found) = walk.blocking_batch() else {
                let stats = walk.stats();
                let opened = (stats.waiting > 0).then_some(stats.directories);
                match opened.map(|opened| self.wait_for_program(tree, Limit::Opened(opened), None))
                {
                    None | Some(Waited::InVain) => break,
                    Some(Waited::No | Waited::Yes) => continue,
                }
            };
            // The program itself reports directories that cannot be read.
            let Ok(found) = found else { continue };
            if let Some(watches) = &mut watches {
                watches.add(&found);
                self.handle_watched(watches);
            }
            let order = {
                let directories = &mut self.state().directories;
                directories.add(tree, &found);
                directories.order_counts_in(tree)
            };
            if let Some(tree) = order {
                let subdirectories = Subdirectories::of(root, &found);
                self.state().directories.add_order(tree, subdirectories);
            }
            if let Some(files) = &self.0.files {
                files.add(root, &found);
            }
            let inodes = found.len();
            if ends_if_cached && cached.add(inodes) {
                self.0.cached.store(true, Ordering::Relaxed);
                break;
            }
            match self.wait_for_program(tree, Limit::Ahead(max), watches.as_mut()) {
                Waited::No => {}
                Waited::Yes => cached = Cached::new(),
                Waited::InVain => break,
            }
        }
        // The readahead of data needs the program's progress, also after the walk.
        while let Some(watches) = &mut watches
            && self.0.files.is_some()
            && !self.is_over(tree)
        {
            self.handle_watched(watches);
            drop(self.wait_for_change(self.state()));
        }
    }

    /// The maximum number of inodes that a walk is ahead of the program: 3 % of the available
    /// memory.
    fn max_ahead(&self) -> u64 {
        ((self.0.available)() * 3 / 100 / INODE_SIZE).clamp(10_000, 200_000)
    }

    /// The walks of trees pause before their next directory, or go on.
    pub fn pause(&self, yes: bool) {
        self.state().is_paused = yes;
        self.0.changed.notify_all();
    }

    /// Waits while the walks pause.
    fn wait_for_pause(&self) {
        let mut state = self.state();
        while state.is_paused && !self.is_stopped() {
            state = self.wait_for_change(state);
        }
    }

    fn wait_for_change<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.0.changed.wait_timeout(state, POLL_INTERVAL);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Handles the directories and files that the program has opened.
    fn handle_watched(&self, watches: &mut Watches) {
        let opened = watches.opened();
        for id in opened.directories {
            self.entered(id, 0);
            if let Some(files) = &self.0.files {
                files.entered(id);
            }
        }
        if let Some(files) = &self.0.files {
            for (directory, count) in opened.files {
                files.opened_in(directory, count);
            }
        }
    }

    /// Waits while a walk is far ahead of the program. A walk that the user asked for waits as long
    /// as the program runs.
    fn wait_for_program(
        &self,
        tree: usize,
        limit: Limit,
        mut watches: Option<&mut Watches>,
    ) -> Waited {
        let mut waited = Waited::No;
        let mut state = self.state();
        let mut last = (None, Instant::now());
        while !self.is_stopped() && !state.directories.is_given_up(tree) {
            let (directories, stats) = (&state.directories, self.stats());
            let (reached, is_far) = match limit {
                Limit::Ahead(max) => {
                    let limit = directories.limit(tree, max, stats);
                    (limit, directories.is_beyond(tree, limit))
                }
                Limit::Opened(opened) => {
                    let limit = directories.max_directories(tree);
                    (limit, opened >= limit)
                }
            };
            if !is_far {
                break;
            }
            let progress = Some((reached, self.stats_by_program(directories, tree)));
            if progress != last.0 {
                last = (progress, Instant::now());
            } else if watches.is_none() && last.1.elapsed() >= UNUSED_AFTER {
                waited = Waited::InVain;
                break;
            }
            waited = Waited::Yes;
            state.directories.set_waiting(tree, true);
            state = self.wait_for_change(state);
            if let Some(watches) = &mut watches {
                drop(state);
                self.handle_watched(watches);
                state = self.state();
            }
        }
        if waited != Waited::No {
            state.directories.set_waiting(tree, false);
        }
        waited
    }

    /// Ends all walks. No walk begins after this.
    pub fn cancel(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
        self.let_go_all();
    }

    /// Ends all walks that have begun.
    pub fn let_go_all(&self) {
        self.end_walks(|_| true);
    }

    /// Ends the walks that have begun on these mounts, so that the program can unmount them. Another walk may have entered them:
    /// a directory may be mounted elsewhere on the same filesystem.
    pub fn let_go(&self, mounts: &HashSet<u64>) {
        self.end_walks(|walker| walker.mount.is_none_or(|mount| mounts.contains(&mount)));
    }

    fn end_walks(&self, which: impl Fn(&Walker) -> bool) {
        let mut guard = self.state();
        let state = &mut *guard;
        // A walk that pauses does not see that it is to end.
        state.is_paused = false;
        for walker in state.walkers.iter().filter(|walker| which(walker)) {
            if let Some(tree) = walker.tree {
                state.directories.give_up(tree);
            }
            walker.canceller.cancel();
        }
        drop(guard);
        self.0.changed.notify_all();
    }

    /// The program's calls of stat(2) in a tree. `None` if they are not counted, or if the thread has ended that was in the
    /// tree: its directory is not left then, and other processes call stat(2), too.
    fn stats_by_program(&self, directories: &Directories, tree: usize) -> Option<u64> {
        let is_there = |thread: u32| {
            let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
            thread.is_some_and(|it| test_kill_process(it) != Err(Errno::SRCH))
        };
        let stats = directories.stats_in(tree, self.stats())?;
        directories.thread().is_none_or(is_there).then_some(stats)
    }

    /// Returns true if a walk has not ended.
    #[cfg(test)]
    pub fn is_walking(&self) -> bool {
        self.state().directories.running() > 0
    }

    /// The sums over all trees.
    pub fn summary(&self) -> Summary {
        self.state().directories.summary()
    }
}

impl State {
    /// Adds a walker, and removes those that have ended.
    fn add(&mut self, walker: Walker) {
        self.walkers.retain(|walker| !walker.thread.is_finished());
        self.walkers.push(walker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn one_directory_in_sixteen_is_left_alone_but_not_the_first_ones() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        let trees = Trees::new(None, || 1 << 30);
        let fd = Arc::new(OwnedFd::from(File::open(root.path()).unwrap()));
        let enters = trees.controls(&fd);
        let left_alone = |enters: &dyn Fn(&Path, usize) -> bool| -> Vec<usize> {
            let numbers = 0..CONTROL_PERIOD as usize;
            numbers.filter(|_| !enters(Path::new("d"), 1)).collect()
        };
        let number = left_alone(&enters);
        assert!(matches!(number[..], [number] if number >= 8), "{number:?}");
        assert_eq!(left_alone(&enters), number);
    }

    #[test]
    fn a_large_directory_is_not_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let large = root.path().join("d");
        fs::create_dir(&large).unwrap();
        for n in 0..1000 {
            fs::write(large.join(format!("{n:0200}")), "").unwrap();
        }
        if fs::metadata(&large).unwrap().len() < LARGE as u64 {
            return; // The size of a directory has another meaning here.
        }
        let fd = Arc::new(OwnedFd::from(File::open(root.path()).unwrap()));
        let enters = Trees::new(None, || 1 << 30).controls(&fd);
        assert!((0..CONTROL_PERIOD).all(|_| enters(Path::new("d"), 1)));
    }

    #[test]
    fn a_walk_ends_if_the_program_does_nothing_in_its_tree() {
        let root = tempfile::tempdir().unwrap();
        (0..10).for_each(|n| fs::write(root.path().join(n.to_string()), "").unwrap());
        let trees = Trees::new(None, || 1 << 30);
        let directory = OwnedFd::from(File::open(root.path()).unwrap());
        let (device, inode) = id(root.path());
        let (begin, running) = (Instant::now(), || trees.state().directories.running());
        trees.begin(directory, (device, inode), Depth::One);
        trees.entered((device, inode + 1), 1);
        while running() > 0 && begin.elapsed() < 12 * UNUSED_AFTER {
            // The program works elsewhere.
            trees.set_stats(trees.stats() + 1);
            std::thread::sleep(POLL_INTERVAL);
        }
        assert_eq!(running(), 0);
        assert!(begin.elapsed() >= UNUSED_AFTER);
    }

    /// The directories `000` to `199`, with a file each.
    fn many() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for n in 0..200 {
            let path = root.path().join(format!("{n:03}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "").unwrap();
        }
        root
    }

    fn id(path: &Path) -> Id {
        let stat = rustix::fs::stat(path).unwrap();
        (stat.st_dev, stat.st_ino)
    }

    fn begin(trees: &Trees, root: &Path) {
        let directory = OwnedFd::from(File::open(root).unwrap());
        trees.begin(directory, id(root), Depth::All);
    }

    /// Until it ends, its directories are in use: the program cannot unmount the filesystem.
    #[test]
    fn a_walk_ends_if_the_program_opens_no_directories() {
        let root = many();
        let trees = Trees::new(None, || 1 << 30);
        let thread = std::thread::spawn(rustix::thread::gettid);
        let ended = thread.join().unwrap().as_raw_nonzero().get();
        trees.entered(id(root.path()), ended.cast_unsigned());
        begin(&trees, root.path());
        let (begin, running) = (Instant::now(), || trees.state().directories.running());
        while running() > 0 && begin.elapsed() < 120 * UNUSED_AFTER {
            // Other processes of the program make calls of stat(2).
            trees.set_stats(trees.stats() + 1);
            std::thread::sleep(POLL_INTERVAL);
        }
        assert_eq!(running(), 0);
        assert!(trees.summary().directories <= 34, "{:?}", trees.summary());
    }

    /// The walk that the user has asked for waits as long as the program runs.
    #[test]
    fn a_walk_ends_if_the_program_wants_to_unmount() {
        let root = many();
        let trees = Trees::new(Some(Files::new(|| 1 << 30)), || 1 << 30);
        let mount = mounts::of(File::open(root.path()).unwrap()).unwrap();
        let begin = Instant::now();
        for tree in 0..2 {
            trees.walk_watched(root.path()).unwrap();
            trees.let_go(&HashSet::from([mount + 1]));
            assert!(!trees.state().directories.is_given_up(tree));
            trees.let_go(&HashSet::from([mount]));
            while trees.state().directories.running() > 0 {
                assert!(begin.elapsed() < 120 * UNUSED_AFTER);
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    #[test]
    fn a_walk_goes_on_if_the_program_opens_directories_in_an_order() {
        let root = many();
        let trees = Trees::new(None, || 1 << 30);
        begin(&trees, root.path());
        let path = |n: usize| root.path().join(format!("{n:03}"));
        let begin = Instant::now();
        while trees.state_of(id(&path(150))) == DirectoryState::Unknown {
            assert!(begin.elapsed() < 120 * UNUSED_AFTER);
            std::thread::sleep(POLL_INTERVAL);
        }
        for n in (150..200).rev() {
            trees.entered(id(&path(n)), 1);
        }
        while trees.summary().directories < 180 {
            assert!(
                begin.elapsed() < 120 * UNUSED_AFTER,
                "{:?}",
                trees.summary()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn few_directories_are_listed_at_the_same_time() {
        slowdisk::require!(slowdisk::available());
        let root = tempfile::tempdir().unwrap();
        let served = slowdisk::ServedTree::new(root.path(), Duration::from_millis(100)).unwrap();
        let open = |_| OwnedFd::from(File::open(served.path()).unwrap());
        let directories: Vec<OwnedFd> = (0..2 * MAX_WALKS).map(open).collect();
        let trees = Trees::new(None, || 1 << 30);
        directories.into_iter().for_each(|it| trees.list_names(it));
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.filter_map(|it| fs::read_to_string(it.path().join("comm")).ok());
        let listing = names.filter(|name| name == "list\n").count();
        assert!(listing <= MAX_WALKS, "{listing}");
        while trees.state().lists > 0 {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
