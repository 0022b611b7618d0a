//! Reads the first bytes of files into the page cache, ahead of a program that opens the files of a
//! directory in turn.
//!
//! The walks report the files of each directory. When the program opens some of them, threads read
//! the others. They begin with the directory that the program is in. The bytes of files that were
//! read and that the program has not opened are within a budget, so that nothing is evicted before
//! it is used.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nowait::FileType;
use nowait::residency::residency;
use nowait::scan::Batch;
use nowait::walk::open_beneath;
use rustix::fs::{Advice, OFlags, fadvise, fstat};

use crate::directory::Id;
use crate::kept_file::KeptFile;

/// The files. Clones share them.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    /// The maximum number of bytes that were read and not yet used.
    budget: u64,
    state: Mutex<State>,
    /// Signalled when the program opens files, when files are found, and when readahead ends.
    changed: Condvar,
    /// Readahead has ended: all files were cached already, or the program did not open those that
    /// were read.
    useless: AtomicBool,
    /// Takes the files before they are read, if they are to be evicted at the end.
    given_back: OnceLock<Sender<KeptFile>>,
}

#[derive(Default)]
struct State {
    directories: HashMap<Id, FilesOfDirectory>,
    /// The directories with files to be read, in the order of reading.
    queue: VecDeque<Id>,
    /// The files that were found and not yet opened by the program.
    files: HashMap<Id, File>,
    /// The bytes that were read and not yet used.
    outstanding: u64,
    /// The number of files that the program has opened.
    opened: u64,
    /// The number of files in a row that were cached.
    cached: u32,
    /// The last file that the program has opened: its directory, inode number and name.
    last: Option<(Id, u64, Arc<Path>)>,
    /// The number of files that came after the last one by inode number, minus the number of those
    /// that came before it.
    by_inode: i32,
    /// The same by name.
    by_name: i32,
    threads: usize,
    /// The number of threads that wait.
    idle: usize,
    summary: Summary,
}

/// The files of a directory that were found.
struct FilesOfDirectory {
    /// The root of the walk. `None` if no file is left to be read, so that the program can unmount
    /// the filesystem.
    root: Option<Arc<OwnedFd>>,
    path: Arc<Path>,
    unread: Vec<(Arc<Path>, Id)>,
    is_queued: bool,
    is_sorted: bool,
    /// The files that were read, in order. Those that were given up or that the program has opened
    /// are removed.
    read: Vec<Id>,
    /// The number of files that were read.
    taken: u64,
    /// The number of files that were opened, by the calls of [`Files::opened_in`].
    opened: u64,
    /// The value of [`State::opened`] when the program opened the last file of this directory.
    last_opened: u64,
}

struct File {
    directory: Id,
    name: Arc<Path>,
    size: u64,
    /// The bytes that were read.
    read: u64,
}

/// The files that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of files.
    pub files: u64,
    /// Their bytes that were read.
    pub bytes: u64,
    /// The bytes of files that the program has opened.
    pub used: u64,
}

/// The number of bytes that are read from the beginning of a file. The kernel reads the rest ahead
/// while the program reads.
const MAX_BYTES: u64 = 512 << 10;
/// The number of files that the program opens before others are read.
const MIN_OPENED: u64 = 2;
/// The number of bytes that may be read ahead for each file that the program has opened. Little is
/// wasted if the program goes elsewhere.
const AHEAD_PER_OPEN: u64 = 4 << 20;
/// The number of cached files in a row after which all are taken to be cached.
const MIN_CACHED: u32 = 1024;
/// The number of files of other directories that the program opens before the files of a directory
/// are given up.
const GIVE_UP_AFTER: u64 = 1024;
/// The maximum number of threads. A thread begins to read a file, and goes on to the next one
/// without waiting for the data.
const MAX_THREADS: usize = 8;
/// The number of files that a thread takes at a time.
const BATCH: usize = 16;
/// The maximum number of files, and of directories.
const MAX_FILES: usize = 1_000_000;

impl Files {
    /// Reads nothing yet. The budget is a tenth of the available memory.
    pub fn new(available: u64) -> Files {
        Files::within((available / 10).min(4 << 30))
    }

    fn within(budget: u64) -> Files {
        Files(Arc::new(Shared {
            budget,
            state: Mutex::default(),
            changed: Condvar::new(),
            useless: AtomicBool::new(false),
            given_back: OnceLock::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if readahead has ended: the files are cached, or the program opens others.
    pub fn gives_no_gain(&self) -> bool {
        self.0.useless.load(Ordering::Relaxed)
    }

    /// Adds the files that a walk has found in a directory. `root` is the root of the walk.
    pub fn add(&self, root: &Arc<OwnedFd>, found: &Batch) {
        if self.gives_no_gain() {
            return;
        }
        let mut guard = self.state();
        let state = &mut *guard;
        let dir = found.dir();
        if state.directories.len() >= MAX_FILES && !state.directories.contains_key(&dir.id()) {
            return;
        }
        let directory = state
            .directories
            .entry(dir.id())
            .or_insert_with(|| FilesOfDirectory::new(dir.path().clone()));
        // Two walks of a directory have different roots.
        directory.root = Some(root.clone());
        directory.path = dir.path().clone();
        if !directory.is_queued {
            directory.is_queued = true;
            state.queue.push_back(dir.id());
        }
        for entry in found.iter() {
            let Some(Ok(metadata)) = entry.metadata() else {
                continue;
            };
            let is_read = metadata.file_type() == FileType::File && metadata.len() > 0;
            let id = (metadata.dev(), metadata.ino());
            if !is_read || state.files.len() >= MAX_FILES || state.files.contains_key(&id) {
                continue;
            }
            let name: Arc<Path> = Path::new(entry.file_name()).into();
            directory.unread.push((name.clone(), id));
            directory.is_sorted = false;
            let file = File {
                directory: dir.id(),
                name,
                size: metadata.len(),
                read: 0,
            };
            state.files.insert(id, file);
        }
        self.wake(state);
    }

    /// Records that the program has opened a file. Returns false if no walk has found the file.
    pub fn opened(&self, id: Id) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(file) = state.files.remove(&id) else {
            return false;
        };
        state.opened += 1;
        state.outstanding -= file.read;
        state.summary.used += file.read;
        if let Some((directory, inode, name)) = &state.last
            && *directory == file.directory
        {
            state.by_inode += if id.1 > *inode { 1 } else { -1 };
            state.by_name += if file.name > *name { 1 } else { -1 };
        }
        state.last = Some((file.directory, id.1, file.name));
        let opened = state.opened;
        if let Some(directory) = state.directories.get_mut(&file.directory) {
            directory.last_opened = opened;
        }
        state.move_to_front(file.directory);
        self.wake(state);
        true
    }

    /// Records that the program has opened a directory, and will open its files. This is for
    /// programs without events of files.
    pub fn entered(&self, directory: Id) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.opened += MIN_OPENED;
        state.move_to_front(directory);
        self.wake(state);
    }

    /// Records that `count` files were opened in a directory, by the program or by this process.
    pub fn opened_in(&self, directory: Id, count: u64) {
        let used = {
            let mut guard = self.state();
            let Some(directory) = guard.directories.get_mut(&directory) else {
                return;
            };
            directory.opened += count;
            let by_program = directory.opened.saturating_sub(directory.taken);
            let used = by_program.saturating_sub(directory.taken - directory.read.len() as u64);
            let used = directory.read.len().min(used as usize);
            directory.read.drain(..used).collect::<Vec<_>>()
        };
        for id in used {
            self.opened(id);
        }
    }

    /// Starts or wakes a thread if there is something to read. That thread wakes the next one.
    fn wake(&self, state: &mut State) {
        if !state.has_room(self.0.budget) || self.gives_no_gain() {
            return;
        }
        if state.idle > 0 {
            self.0.changed.notify_one();
        } else if state.threads < MAX_THREADS {
            let files = self.clone();
            let thread = std::thread::Builder::new().name("data".to_owned());
            // Nothing is read if the thread cannot be started.
            state.threads += usize::from(thread.spawn(move || files.read()).is_ok());
        }
    }

    /// The loop of a thread: reads files until readahead ends.
    fn read(&self) {
        let mut state = self.state();
        while !self.gives_no_gain() {
            let Some((directory, taken)) = state.take(self.0.budget) else {
                if state.is_stuck(self.0.budget) {
                    self.0.useless.store(true, Ordering::Relaxed);
                    break;
                }
                state.idle += 1;
                let woken = self.0.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            self.wake(&mut state);
            let (root, path) = (directory.0, directory.1);
            drop(state);
            let cached = taken
                .iter()
                .map(|(name, len)| self.read_ahead(&root, &path.join(name), *len))
                .fold(0, |row, cached| if cached { row + 1 } else { 0 });
            state = self.state();
            state.cached = if cached == taken.len() as u32 {
                state.cached + cached
            } else {
                cached
            };
            if state.cached >= MIN_CACHED {
                self.0.useless.store(true, Ordering::Relaxed);
            }
        }
        state.directories.clear();
        state.queue.clear();
        state.threads -= 1;
        drop(state);
        self.0.changed.notify_all();
    }

    /// Ends readahead. Waits for calls in progress until they have ended, or this time is over.
    pub fn end(&self, timeout: Duration) {
        self.0.useless.store(true, Ordering::Relaxed);
        let state = self.state();
        self.0.changed.notify_all();
        let changed = &self.0.changed;
        drop(changed.wait_timeout_while(state, timeout, |state| state.threads > 0));
    }

    /// Begins to read the first bytes of a file. Returns true if they were cached.
    fn read_ahead(&self, root: &OwnedFd, path: &Path, len: u64) -> bool {
        let Some(file) = open_regular(root, path) else {
            return false;
        };
        let cached = residency(&file, 0..len)
            .ok()
            .and_then(|answer| answer.known());
        if cached.is_some_and(|residency| residency.cached >= residency.pages) {
            return true;
        }
        if let Some(to) = self.0.given_back.get()
            && let Some(file) = KeptFile::before_readahead(&file)
        {
            let _ = to.send(file);
        }
        let _ = fadvise(&file, 0, std::num::NonZeroU64::new(len), Advice::WillNeed);
        false
    }

    /// Sends the files to `to` before they are read.
    pub fn give_back(&self, to: Sender<KeptFile>) {
        let _ = self.0.given_back.set(to);
    }

    /// The sums over all files.
    pub fn summary(&self) -> Summary {
        self.state().summary
    }
}

impl FilesOfDirectory {
    fn new(path: Arc<Path>) -> FilesOfDirectory {
        FilesOfDirectory {
            root: None,
            path,
            unread: Vec::new(),
            is_queued: false,
            is_sorted: false,
            read: Vec::new(),
            taken: 0,
            opened: 0,
            last_opened: 0,
        }
    }
}

/// The files that a thread has taken: the root and the path of their directory, and for each its
/// name and the bytes to be read.
type Taken = ((Arc<OwnedFd>, Arc<Path>), Vec<(Arc<Path>, u64)>);

impl State {
    /// Moves a directory with unread files to the front of the queue.
    fn move_to_front(&mut self, directory: Id) {
        let queued = self
            .directories
            .get(&directory)
            .is_some_and(|found| found.is_queued);
        if queued
            && self.queue.front() != Some(&directory)
            && let Some(at) = self.queue.iter().position(|id| *id == directory)
        {
            self.queue.remove(at);
            self.queue.push_front(directory);
        }
    }

    /// The maximum number of bytes that were read and not yet used.
    fn limit(&self, budget: u64) -> u64 {
        budget.min(self.opened.saturating_mul(AHEAD_PER_OPEN))
    }

    /// Returns true if there are files to be read, and at least an eighth of the limit may be read.
    /// No thread is woken for less.
    fn has_room(&self, budget: u64) -> bool {
        let limit = self.limit(budget);
        self.opened >= MIN_OPENED && !self.queue.is_empty() && self.outstanding <= limit - limit / 8
    }

    /// Takes the next files to be read. `None` if there are none, or if the limit is reached.
    fn take(&mut self, budget: u64) -> Option<Taken> {
        let limit = self.limit(budget);
        if self.outstanding >= limit {
            self.give_up();
        }
        if self.opened < MIN_OPENED || self.outstanding >= limit {
            return None;
        }
        loop {
            let id = *self.queue.front()?;
            let directory = self.directories.get_mut(&id)?;
            if !directory.is_sorted {
                // Files are taken from the end of the vector.
                if self.by_name > self.by_inode {
                    directory.unread.sort_unstable_by(|a, b| b.0.cmp(&a.0));
                } else {
                    directory
                        .unread
                        .sort_unstable_by_key(|(_, id)| std::cmp::Reverse(id.1));
                }
                directory.is_sorted = true;
            }
            let mut taken = Vec::new();
            while taken.len() < BATCH
                && self.outstanding < limit
                && let Some((name, id)) = directory.unread.pop()
            {
                // The program may have opened the file already.
                let Some(file) = self.files.get_mut(&id) else {
                    continue;
                };
                file.read = file.size.min(MAX_BYTES);
                self.outstanding += file.read;
                self.summary.files += 1;
                self.summary.bytes += file.read;
                directory.read.push(id);
                directory.taken += 1;
                taken.push((name, file.read));
            }
            let root = directory.root.clone()?;
            if directory.unread.is_empty() {
                directory.is_queued = false;
                directory.root = None;
                self.queue.pop_front();
            }
            if !taken.is_empty() {
                return Some(((root, directory.path.clone()), taken));
            }
        }
    }

    /// Gives up the files of directories that the program has left.
    fn give_up(&mut self) {
        let opened = self.opened;
        for directory in self.directories.values_mut() {
            if directory.last_opened > 0 && opened - directory.last_opened > GIVE_UP_AFTER {
                for id in directory.read.drain(..) {
                    let file = self.files.remove(&id);
                    self.outstanding -= file.map_or(0, |file| file.read);
                }
            }
        }
    }

    /// Returns true if the budget is full of files that the program does not open, while it opens
    /// others.
    fn is_stuck(&self, budget: u64) -> bool {
        self.outstanding >= budget
            && self.summary.used < self.summary.bytes / 4
            && self.opened > 4 * GIVE_UP_AFTER
    }
}

/// Opens a file if it is still regular.
fn open_regular(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    let held = open_beneath(root, path, OFlags::PATH).ok()?;
    let stat = fstat(&held).ok()?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return None;
    }
    nowait::reopen(&held, OFlags::RDONLY | OFlags::NONBLOCK).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;
    use std::path::PathBuf;
    use std::time::Instant;

    use nowait::{StatxMask, walk};
    use rustix::fs::{CWD, Mode, inotify, mknodat};

    /// A directory of files `f0`, `f1`, … of 4096 bytes that are not cached, and their ids.
    fn directory(count: usize) -> (tempfile::TempDir, Vec<Id>) {
        let directory = tempfile::tempdir().unwrap();
        let ids = cold_files(directory.path(), count);
        (directory, ids)
    }

    fn cold_files(directory: &Path, count: usize) -> Vec<Id> {
        let ids = (0..count).map(|n| {
            let path = directory.join(format!("f{n}"));
            std::fs::write(&path, [7; 4096]).unwrap();
            let file = std::fs::File::open(path).unwrap();
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            let stat = rustix::fs::fstat(&file).unwrap();
            (stat.st_dev, stat.st_ino)
        });
        ids.collect()
    }

    /// Also true if the filesystem does not report residency.
    fn is_cached(directory: &Path, n: usize) -> bool {
        let file = std::fs::File::open(directory.join(format!("f{n}"))).unwrap();
        let known = residency(&file, 0..4096).unwrap().known();
        known.is_none_or(|residency| residency.cached == 1)
    }

    fn find(files: &Files, directory: &tempfile::TempDir) {
        find_below(files, directory.path());
    }

    fn find_below(files: &Files, root: &Path) {
        let root: OwnedFd = std::fs::File::open(root).unwrap().into();
        let options = walk::Options::new().metadata(StatxMask::BASIC_STATS);
        let mut walk = options.from_fd(root.try_clone().unwrap()).unwrap();
        let root = Arc::new(root);
        while let Some(found) = walk.blocking_batch() {
            files.add(&root, &found.unwrap());
        }
    }

    fn wait_for(what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A file may be replaced after it was listed.
    #[test]
    fn a_fifo_in_the_place_of_a_file_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
        let root = std::fs::File::open(directory.path()).unwrap().into();
        assert!(!Files::new(1 << 30).read_ahead(&root, Path::new("fifo"), 4096));
        let mut events = [MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&watch, &mut events);
        assert!(events.next().is_err(), "the FIFO was opened");
    }

    #[test]
    fn the_files_of_a_directory_are_read_when_two_were_opened() {
        let (directory, ids) = directory(50);
        let files = Files::within(1 << 30);
        find(&files, &directory);
        assert!(!files.opened((0, 0)));
        assert!(files.opened(ids[0]));
        assert_eq!(files.state().summary, Summary::default());
        assert!(files.opened(ids[1]));
        wait_for("48 files", || files.state().summary.files == 48);
        let is_cached = |n| is_cached(directory.path(), n);
        wait_for("cached pages", || (2..50).all(is_cached));
        ids[2..10].iter().for_each(|id| assert!(files.opened(*id)));
        let expected = Summary {
            files: 48,
            bytes: 48 * 4096,
            used: 8 * 4096,
        };
        assert_eq!(files.summary(), expected);
    }

    #[test]
    fn a_directory_is_read_after_two_walks_with_different_roots() {
        let above = tempfile::tempdir().unwrap();
        let below = above.path().join("d");
        std::fs::create_dir(&below).unwrap();
        let ids = cold_files(&below, 5);
        let files = Files::within(1 << 30);
        find_below(&files, above.path());
        find_below(&files, &below);
        assert!(files.opened(ids[0]) && files.opened(ids[1]));
        wait_for("cached pages", || (2..5).all(|n| is_cached(&below, n)));
    }

    #[test]
    fn no_more_than_the_budget_is_ahead() {
        let (directory, mut ids) = directory(60);
        let files = Files::within(10 * 4096);
        find(&files, &directory);
        ids.sort_unstable();
        for opened in 2..=50 {
            for id in &ids[..opened] {
                files.opened(*id);
            }
            wait_for("the next files", || {
                let state = files.state();
                let read = state.files.values().filter(|file| file.read > 0).count();
                assert!(read <= 10, "{read} after {opened}");
                assert_eq!(state.outstanding, read as u64 * 4096);
                // A thread is woken when an eighth is free, which is two files.
                read >= 9.min(60 - opened)
            });
        }
    }

    #[test]
    fn files_are_read_in_the_order_in_which_the_program_opens_them() {
        let (directory, ids) = directory(30);
        for (by_name, by_inode) in [(3, 1), (1, 3)] {
            let files = Files::within(1 << 30);
            find(&files, &directory);
            let mut state = files.state();
            (state.opened, state.by_name, state.by_inode) = (MIN_OPENED, by_name, by_inode);
            let mut taken = Vec::new();
            while let Some((_, names)) = state.take(1 << 30) {
                taken.extend(names.into_iter().map(|(name, _)| name));
            }
            let mut expected: Vec<(Id, PathBuf)> =
                (0..30).map(|n| (ids[n], format!("f{n}").into())).collect();
            match by_name > by_inode {
                true => expected.sort_by(|a, b| a.1.cmp(&b.1)),
                false => expected.sort(),
            }
            assert!(
                taken
                    .iter()
                    .map(|name| &**name)
                    .eq(expected.iter().map(|e| &*e.1))
            );
        }
    }

    #[test]
    fn the_order_of_the_program_is_seen() {
        let (directory, ids) = directory(40);
        let mut by_name: Vec<usize> = (0..40).collect();
        by_name.sort_by_key(|n| format!("f{n}"));
        let mut by_inode: Vec<usize> = (0..40).collect();
        by_inode.sort_by_key(|n| ids[*n]);
        for (order, is_by_name) in [(by_name, true), (by_inode, false)] {
            let files = Files::within(0);
            find(&files, &directory);
            order.iter().for_each(|n| assert!(files.opened(ids[*n])));
            let state = files.state();
            assert_eq!(state.by_name > state.by_inode, is_by_name);
        }
    }

    #[test]
    fn files_that_inotify_counted_are_used_in_the_order_in_which_they_were_read() {
        let (directory, _) = directory(20);
        let files = Files::within(1 << 30);
        find(&files, &directory);
        let id = *files.state().directories.keys().next().unwrap();
        files.entered(id);
        wait_for("20 files", || files.state().summary.files == 20);
        // This process has opened them.
        files.opened_in(id, 20);
        assert_eq!(files.state().summary.used, 0);
        files.opened_in(id, 5);
        assert_eq!(files.state().summary.used, 5 * 4096);
        files.opened_in(id, 15);
        assert_eq!(files.state().summary.used, 20 * 4096);
    }
}
