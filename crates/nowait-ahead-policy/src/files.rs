//! Reads the first bytes of files into the page cache, ahead of a program that opens the files of a
//! directory in turn.
//!
//! The walks report the files of each directory. When the program opens some of them, threads read
//! the others. They begin with the directory that the program is in. The bytes of files that were
//! read and that the program has not opened are within a budget, so that nothing is evicted before
//! it is used.
//!
//! A program that picks few files of a directory must not wait for reads of the others. So files are
//! read only if the program opens those of a directory in an order: of their inode numbers, of
//! their names, or of the listing. A [`Sequence`] counts the steps forwards and backwards. The
//! square of the difference is the number of files that may be ahead, in each directory that the
//! program is in and in all others together; a program that picks files at random has a difference
//! near 0. When the program has left a directory, the files that were read and not used there are counted as wasted.
//! Readahead ends if more were wasted than used.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
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
use rustix::fs::{Advice, OFlags, RawDir, fadvise, fstat};

use crate::directory::{FLAGS, Id, reopen};
use crate::kept_file::KeptFile;

/// The files. Clones share them.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    /// Returns the bytes of memory that are available.
    available: fn() -> u64,
    /// The maximum number of bytes that were read and not yet used.
    budget: OnceLock<u64>,
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
    /// The number of files that were read and not yet used, in directories of which the program has
    /// opened no file.
    beyond: u64,
    /// The number of files that the program has opened.
    opened: u64,
    /// The number of names in [`FilesOfDirectory::opened_before`] of all directories.
    opened_before: usize,
    /// The number of these that had been read.
    used: u64,
    /// The number of files that were read, and not used when the program left their directories.
    wasted: u64,
    /// The directories of the files that the program has opened, with [`State::opened`] at that
    /// time. Those that it has left are removed.
    recent: VecDeque<(Id, u64)>,
    /// The user has named the tree, and inotify(7) follows the program there.
    is_named: bool,
    /// The number of files in a row that were cached.
    cached: u32,
    /// The last file that the program has opened: its directory, inode number and name.
    last: Option<(Id, u64, Arc<Path>)>,
    sequence: Sequence,
    threads: usize,
    /// The number of threads that wait.
    idle: usize,
    summary: Summary,
}

/// The steps of a program from one file of a directory to the next.
#[derive(Debug, Default)]
struct Sequence {
    /// The number of steps forwards minus the number of steps backwards, by [`Order`].
    steps: [i64; 3],
}

/// An order of the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Inode,
    Name,
    Listing,
}

/// The files of a directory that were found.
struct FilesOfDirectory {
    /// The root of the walk. `None` if no file is left to be read, so that the program can unmount
    /// the filesystem.
    root: Option<Arc<OwnedFd>>,
    path: Arc<Path>,
    unread: Vec<(Arc<Path>, Id)>,
    /// The files that the program has not opened, by name.
    names: HashMap<Arc<Path>, Id>,
    /// The names that the program has opened before the walk has found them.
    opened_before: HashSet<Arc<Path>>,
    is_queued: bool,
    sorted_by: Option<Order>,
    /// The positions in the listing, by inode number. `None` until the program has opened two files
    /// in a row.
    positions: Option<HashMap<u64, u32>>,
    /// The files that were read, in order. Those that were given up or that the program has opened
    /// are removed.
    read: Vec<Id>,
    /// The number of files that were read.
    taken: u64,
    /// The number of these that were not used.
    ahead: u64,
    /// The part of [`State::wasted`] in this directory, if the program has left it.
    wasted: u64,
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
/// The number of files of other directories that the program opens before it has left a directory.
const LEFT_AFTER: u64 = 64;
/// The number of files that may be wasted before readahead ends.
const MIN_WASTED: u64 = 32;
/// The maximum number of threads. A thread begins to read a file, and goes on to the next one
/// without waiting for the data.
const MAX_THREADS: usize = 8;
/// The number of files that a thread takes at a time.
const BATCH: u64 = 16;
/// The maximum number of files, of directories, and of names that were opened before a walk found them.
const MAX_FILES: usize = 1_000_000;

impl Files {
    /// Reads nothing yet. The budget is a tenth of the available memory.
    pub fn new(available: fn() -> u64) -> Files {
        Files(Arc::new(Shared {
            available,
            budget: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            useless: AtomicBool::new(false),
            given_back: OnceLock::new(),
        }))
    }

    /// The maximum number of bytes that were read and not yet used. The available memory is asked
    /// for when there is a file to be read: the program need not wait for that.
    fn budget(&self) -> u64 {
        let ask = || ((self.0.available)() / 10).min(4 << 30);
        *self.0.budget.get_or_init(ask)
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
            .or_insert_with(|| FilesOfDirectory::new(dir.path()));
        // Two walks of a directory have different roots.
        directory.root = Some(root.clone());
        directory.path = dir.path();
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
            let name = Path::new(entry.file_name());
            if directory.opened_before.contains(name) {
                continue;
            }
            let name: Arc<Path> = name.into();
            directory.unread.push((name.clone(), id));
            directory.names.insert(name.clone(), id);
            directory.sorted_by = None;
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

    /// Records that the program has opened a file, or something else, by its name in a directory. Returns false if no walk has
    /// found it yet.
    pub fn opened_name(&self, directory: Id, name: &Path) -> bool {
        let known = {
            let mut guard = self.state();
            let state = &mut *guard;
            let is_new = state.directories.len() < MAX_FILES;
            let directory = match state.directories.entry(directory) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(room) if is_new => {
                    room.insert(FilesOfDirectory::new(Path::new("").into()))
                }
                Entry::Vacant(_) => return false,
            };
            let known = directory.names.get(name).copied();
            if known.is_none()
                && state.opened_before < MAX_FILES
                && directory.opened_before.insert(name.into())
            {
                state.opened_before += 1;
            }
            known
        };
        known.inspect(|id| self.opened(*id)).is_some()
    }

    /// The directory of a file that a walk has found and the program has not opened.
    pub fn directory_of(&self, id: Id) -> Option<Id> {
        self.state().files.get(&id).map(|file| file.directory)
    }

    /// Records that the program has opened a file.
    pub fn opened(&self, id: Id) {
        self.learn_listing(id);
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(file) = state.forget(id) else {
            return;
        };
        state.opened += 1;
        state.used += u64::from(file.read > 0);
        state.summary.used += file.read;
        state.step(id.1, &file);
        state.come(file.directory);
        state.leave(file.directory);
        if state.wastes() {
            self.end_readahead();
        }
        state.move_to_front(file.directory);
        self.wake(state);
    }

    /// Lists the directory of a file if the program has opened another file of it just before.
    fn learn_listing(&self, id: Id) {
        let listed = {
            let state = self.state();
            let found = state.files.get(&id).map(|file| file.directory);
            let last = state.last.as_ref().map(|last| last.0);
            let directory = found.filter(|_| found == last && !state.is_named);
            directory.and_then(|id| {
                let directory = &state.directories.get(&id)?;
                let root = directory.root.clone()?;
                let is_unknown = directory.positions.is_none();
                is_unknown.then(|| (id, root, directory.path.clone()))
            })
        };
        let Some((id, root, path)) = listed else {
            return;
        };
        let positions = positions(&root, &path);
        if let Some(directory) = self.state().directories.get_mut(&id) {
            directory.positions = Some(positions);
        }
    }

    /// Records that the program has opened a directory, and will open its files. This is for
    /// programs without events of files.
    pub fn entered(&self, directory: Id) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.is_named = true;
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

    /// Reads no more in the directories that were found until now, so that the program can unmount
    /// their filesystems.
    pub fn let_go(&self) {
        let mut state = self.state();
        state.queue.clear();
        for directory in state.directories.values_mut() {
            directory.root = None;
            directory.unread = Vec::new();
            directory.is_queued = false;
        }
    }

    /// Starts or wakes a thread if there is something to read. That thread wakes the next one.
    fn wake(&self, state: &mut State) {
        if !state.has_room(self.budget()) || self.gives_no_gain() {
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
            let Some((directory, taken)) = state.take(self.budget()) else {
                if state.is_stuck(self.budget()) {
                    self.end_readahead();
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
            let mut cached = Vec::new();
            let mut row = 0;
            for (id, name, len) in &taken {
                if self.read_ahead(&root, &path.join(name), *len) {
                    cached.push(*id);
                    row += 1;
                } else {
                    row = 0;
                }
            }
            state = self.state();
            cached.iter().for_each(|id| state.was_cached(*id));
            state.cached = if row == taken.len() as u32 {
                state.cached + row
            } else {
                row
            };
            if state.cached >= MIN_CACHED {
                self.end_readahead();
            }
        }
        state.directories.clear();
        state.queue.clear();
        state.threads -= 1;
        drop(state);
        self.0.changed.notify_all();
    }

    /// No file is read any more. Threads that wait are woken, and end.
    fn end_readahead(&self) {
        self.0.useless.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }

    /// Ends readahead. Waits for calls in progress until they have ended, or this time is over.
    pub fn end(&self, timeout: Duration) {
        let state = self.state();
        self.end_readahead();
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
            names: HashMap::new(),
            opened_before: HashSet::new(),
            is_queued: false,
            sorted_by: None,
            positions: None,
            read: Vec::new(),
            taken: 0,
            ahead: 0,
            wasted: 0,
            opened: 0,
            last_opened: 0,
        }
    }
}

impl FilesOfDirectory {
    /// The position of a file in the listing of the directory.
    fn position(&self, inode: u64) -> Option<u32> {
        self.positions.as_ref()?.get(&inode).copied()
    }

    /// Returns true if a file comes before another one. Each has a name and an inode number.
    fn is_before(&self, order: Order, file: (&Path, u64), other: (&Path, u64)) -> bool {
        match order {
            Order::Inode => file.1 < other.1,
            Order::Name => file.0 < other.0,
            Order::Listing => self.position(file.1) < self.position(other.1),
        }
    }

    /// Sorts the unread files, the next ones at the end.
    fn sort(&mut self, order: Order) {
        if self.sorted_by.replace(order) == Some(order) {
            return;
        }
        let position = |id: &Id| self.positions.as_ref().and_then(|it| it.get(&id.1));
        match order {
            Order::Inode => self.unread.sort_unstable_by_key(|(_, id)| Reverse(id.1)),
            Order::Name => self.unread.sort_unstable_by(|a, b| b.0.cmp(&a.0)),
            Order::Listing => self
                .unread
                .sort_by_cached_key(|(_, id)| Reverse(position(id))),
        }
    }
}

impl Sequence {
    /// The order that fits best, and the number of its steps.
    fn best(&self) -> (Order, u64) {
        let orders = [Order::Name, Order::Listing, Order::Inode];
        let best = orders.into_iter().max_by_key(|it| self.steps[*it as usize]);
        let best = best.unwrap_or(Order::Inode);
        (best, self.steps[best as usize].max(0).unsigned_abs())
    }
}

/// The files that a thread has taken: the root and the path of their directory, and for each its
/// identity, its name and the bytes to be read.
type Taken = ((Arc<OwnedFd>, Arc<Path>), Vec<(Id, Arc<Path>, u64)>);

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

    /// Removes a file, which the program has opened or will not open. `None` if it is not known.
    fn forget(&mut self, id: Id) -> Option<File> {
        let file = self.files.remove(&id)?;
        self.outstanding -= file.read;
        if let Some(directory) = self.directories.get_mut(&file.directory) {
            directory.names.remove(&file.name);
            if file.read > 0 {
                directory.ahead -= 1;
                self.beyond -= u64::from(directory.last_opened == 0);
            }
        }
        Some(file)
    }

    /// A file that was taken was cached already, perhaps because the program has opened it before
    /// the walk has found it.
    fn was_cached(&mut self, id: Id) {
        let Some(file) = self.forget(id) else {
            return;
        };
        if let Some(directory) = self.directories.get_mut(&file.directory)
            && directory.wasted > 0
        {
            directory.wasted -= 1;
            self.wasted -= 1;
        }
        if let Some(directory) = self.directories.get_mut(&file.directory) {
            directory.names.insert(file.name.clone(), id);
        }
        self.files.insert(id, File { read: 0, ..file });
    }

    /// Records the step of the program to a file from the last one in the same directory.
    fn step(&mut self, inode: u64, file: &File) {
        if let Some((directory, last, name)) = &self.last
            && *directory == file.directory
        {
            let directory = self.directories.get(directory);
            let is_listed = directory.is_some_and(|it| it.position(inode).is_some());
            for order in [Order::Inode, Order::Name, Order::Listing] {
                if let Some(directory) = directory
                    && (is_listed || order != Order::Listing)
                {
                    let is_forwards =
                        directory.is_before(order, (name, *last), (&file.name, inode));
                    self.sequence.steps[order as usize] += if is_forwards { 1 } else { -1 };
                }
            }
        }
        self.last = Some((file.directory, inode, file.name.clone()));
    }

    /// The program has opened a file of a directory.
    fn come(&mut self, id: Id) {
        let Some(directory) = self.directories.get_mut(&id) else {
            return;
        };
        if directory.last_opened == 0 {
            self.beyond -= directory.ahead;
        }
        self.wasted -= std::mem::take(&mut directory.wasted);
        directory.last_opened = self.opened;
        self.recent.push_back((id, self.opened));
        // The root is closed when the program has opened all files.
        while let Some((_, id)) = directory.unread.last()
            && !self.files.contains_key(id)
        {
            directory.unread.pop();
        }
        if directory.unread.is_empty() {
            directory.root = None;
        }
    }

    /// Looks for directories that the program has left. It is in a directory that is above `here`,
    /// too: tar(1) and grep(1) go on there.
    fn leave(&mut self, here: Id) {
        let here = self.directories.get(&here).map(|it| it.path.clone());
        while let Some(&(id, opened)) = self.recent.front()
            && opened + LEFT_AFTER <= self.opened
        {
            self.recent.pop_front();
            let Some(directory) = self.directories.get_mut(&id) else {
                continue;
            };
            if directory.last_opened != opened {
                continue;
            }
            if here
                .as_ref()
                .is_some_and(|it| it.starts_with(&directory.path))
            {
                directory.last_opened = self.opened;
                self.recent.push_back((id, self.opened));
            } else {
                directory.wasted = directory.ahead;
                self.wasted += directory.wasted;
            }
        }
    }

    /// Returns true if the program opens few of the files that are read.
    fn wastes(&self) -> bool {
        !self.is_named && self.wasted > MIN_WASTED + self.used
    }

    /// Returns the number of files of a directory that may be read now, or 0 if that is less than
    /// an eighth of the number that may be ahead. No thread is woken for less.
    fn room(&self, directory: &FilesOfDirectory) -> u64 {
        let steps = self.sequence.best().1;
        let most = steps.saturating_mul(steps);
        let ahead = match directory.last_opened {
            _ if self.is_named => return u64::MAX,
            0 => self.beyond,
            _ if directory.wasted > 0 => return 0,
            _ => directory.ahead,
        };
        Some(most.saturating_sub(ahead))
            .filter(|room| *room >= most / 8)
            .unwrap_or(0)
    }

    /// The next directory to be read: its position in the queue, and the number of its files that
    /// may be read. The directories to which the program has come are in front.
    fn next_directory(&self) -> Option<(usize, u64)> {
        for (at, id) in self.queue.iter().enumerate() {
            let directory = self.directories.get(id)?;
            match self.room(directory) {
                0 if directory.last_opened == 0 => return None,
                0 => {}
                room => return Some((at, room)),
            }
        }
        None
    }

    /// Returns true if there are files to be read, and at least an eighth of the limit may be read.
    /// No thread is woken for less.
    fn has_room(&self, budget: u64) -> bool {
        let limit = self.limit(budget);
        self.opened >= MIN_OPENED
            && self.outstanding <= limit - limit / 8
            && self.next_directory().is_some()
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
            let (at, room) = self.next_directory()?;
            let directory = self.directories.get_mut(self.queue.get(at)?)?;
            let order = self.sequence.best().0;
            directory.sort(order);
            let mut taken = Vec::new();
            while taken.len() < room.min(BATCH) as usize
                && self.outstanding < limit
                && let Some((name, id)) = directory.unread.pop()
            {
                let Some(file) = self.files.get_mut(&id) else {
                    // The program has opened the file already.
                    continue;
                };
                if let Some(last) = self.last.as_ref().filter(|it| it.0 == file.directory)
                    && !self.is_named
                    && directory.is_before(order, (&name, id.1), (&last.2, last.1))
                {
                    // The program has gone past it, perhaps before the walk has found it.
                    continue;
                }
                file.read = file.size.min(MAX_BYTES);
                self.outstanding += file.read;
                self.summary.files += 1;
                self.summary.bytes += file.read;
                directory.read.push(id);
                directory.taken += 1;
                directory.ahead += 1;
                self.beyond += u64::from(directory.last_opened == 0);
                taken.push((id, name, file.read));
            }
            let (root, path) = (directory.root.clone(), directory.path.clone());
            if directory.unread.is_empty() {
                directory.is_queued = false;
                directory.root = None;
                self.queue.remove(at);
            }
            if !taken.is_empty() {
                return Some(((root?, path), taken));
            }
        }
    }

    /// Gives up the files of directories that the program has left.
    fn give_up(&mut self) {
        let opened = self.opened;
        let given_up = |it: &&mut FilesOfDirectory| {
            it.last_opened > 0 && opened - it.last_opened > GIVE_UP_AFTER
        };
        let directories = self.directories.values_mut().filter(given_up);
        let files: Vec<Id> = directories.flat_map(|it| it.read.drain(..)).collect();
        for file in files {
            self.forget(file);
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

/// The positions of the files of a directory in its listing, by inode number.
fn positions(root: &OwnedFd, path: &Path) -> HashMap<u64, u32> {
    let directory = match path.as_os_str().is_empty() {
        true => reopen(root),
        false => open_beneath(root, path, FLAGS).ok(),
    };
    let mut positions = HashMap::new();
    let Some(directory) = directory else {
        return positions;
    };
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut names = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = names.next()
        && positions.len() < MAX_FILES
    {
        positions.insert(entry.ino(), positions.len() as u32);
    }
    positions
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

    /// Files with a budget.
    fn within(budget: u64) -> Files {
        let files = Files::new(|| 0);
        files.0.budget.set(budget).unwrap();
        files
    }

    /// Takes all files that may be read now, and returns their number. The budget of `files` is 0,
    /// so that no thread takes any.
    fn take_all(files: &Files) -> usize {
        let mut state = files.state();
        std::iter::from_fn(|| state.take(1 << 30))
            .map(|taken| taken.1.len())
            .sum()
    }

    /// A directory of files `f0`, `f1`, … of 4096 bytes that are not cached, and their ids. It is
    /// not in memory.
    fn directory(count: usize) -> (tempfile::TempDir, Vec<Id>) {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
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
        assert!(!within(1 << 30).read_ahead(&root, Path::new("fifo"), 4096));
        let mut events = [MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&watch, &mut events);
        assert!(events.next().is_err(), "the FIFO was opened");
    }

    #[test]
    fn the_files_of_a_directory_are_read_when_some_were_opened_in_order() {
        let (directory, mut ids) = directory(50);
        ids.sort_unstable();
        let files = within(1 << 30);
        find(&files, &directory);
        files.opened((0, 0));
        files.opened(ids[0]);
        assert_eq!(files.state().summary, Summary::default());
        ids[1..8].iter().for_each(|id| files.opened(*id));
        wait_for("the last file", || is_read(&files, ids[49]));
        let before = files.summary().used;
        ids[40..].iter().for_each(|id| files.opened(*id));
        assert_eq!(files.summary().used - before, 10 * 4096);
    }

    /// They do not keep others from being read.
    #[test]
    fn cached_files_are_not_ahead_of_the_program() {
        let (directory, mut ids) = directory(60);
        for n in 0..60 {
            std::fs::read(directory.path().join(format!("f{n}"))).unwrap();
        }
        ids.sort_unstable();
        let files = within(1 << 30);
        find(&files, &directory);
        ids[..3].iter().for_each(|id| files.opened(*id));
        wait_for("all files", || files.state().summary.files >= 57);
        wait_for("the end", || files.state().outstanding == 0);
        assert!(files.state().directories.values().all(|it| it.ahead == 0));
    }

    fn is_read(files: &Files, id: Id) -> bool {
        files.state().files[&id].read > 0
    }

    #[test]
    fn each_file_in_order_allows_more_to_be_read() {
        let (directory, mut ids) = directory(60);
        ids.sort_unstable();
        let files = within(0);
        find(&files, &directory);
        let read = ids[..6].iter().map(|id| {
            files.opened(*id);
            take_all(&files)
        });
        // One file, and then the number up to 4, 9, 16 and 25 that are not used.
        assert_eq!(read.collect::<Vec<_>>(), [0, 1, 4, 6, 8, 10]);
    }

    #[test]
    fn nothing_is_read_for_a_program_that_opens_files_in_no_order() {
        // Inodes in the order of the names: other programs may have left gaps.
        let made = std::iter::repeat_with(|| directory(60));
        let (directory, ids) = made.take(1000).find(|(_, ids)| ids.is_sorted()).unwrap();
        let files = within(0);
        find(&files, &directory);
        let unlisted = |it: &mut FilesOfDirectory| it.positions = Some(HashMap::new());
        files.state().directories.values_mut().for_each(unlisted);
        for n in 0..20 {
            files.opened(ids[40 + n]);
            files.opened(ids[39 - n]);
            assert_eq!(take_all(&files), 0);
        }
    }

    #[test]
    fn a_file_that_was_opened_before_it_was_found_is_not_read() {
        let (directory, mut ids) = directory(20);
        ids.sort_unstable();
        let files = within(0);
        let stat = rustix::fs::stat(directory.path()).unwrap();
        let id = (stat.st_dev, stat.st_ino);
        for n in 0..5 {
            assert!(!files.opened_name(id, Path::new(&format!("f{n}"))));
        }
        // A directory may be walked twice.
        find(&files, &directory);
        find(&files, &directory);
        for n in 5..10 {
            assert!(files.opened_name(id, Path::new(&format!("f{n}"))));
        }
        let state = files.state();
        assert_eq!(state.files.len(), 10);
        assert_eq!(state.directories[&id].names.len(), 10);
        assert_eq!(
            state.directories[&id].unread.len(),
            15,
            "five of them were opened"
        );
    }

    #[test]
    fn one_file_of_each_directory_is_no_order() {
        let root = tempfile::tempdir().unwrap();
        let files = within(0);
        let ids = (0..20).map(|n| {
            let path = root.path().join(n.to_string());
            std::fs::create_dir(&path).unwrap();
            cold_files(&path, 20)[0]
        });
        let ids: Vec<Id> = ids.collect();
        find(&files, &root);
        for id in ids {
            files.opened(id);
            assert_eq!(take_all(&files), 0);
        }
    }

    #[test]
    fn a_directory_whose_files_are_not_opened_is_let_go() {
        let (directory, mut ids) = directory(20);
        ids.sort_unstable();
        let files = within(0);
        find(&files, &directory);
        let is_open = || {
            let state = files.state();
            state.directories.values().any(|it| it.root.is_some())
        };
        assert!(is_open());
        files.let_go();
        assert!(!is_open());
        ids.iter().for_each(|id| files.opened(*id));
        assert_eq!(take_all(&files), 0);
    }

    #[test]
    fn a_directory_whose_files_were_all_opened_is_let_go() {
        let (directory, ids) = directory(20);
        let files = within(0);
        find(&files, &directory);
        ids.iter().for_each(|id| files.opened(*id));
        assert!(
            files
                .state()
                .directories
                .values()
                .all(|it| it.root.is_none())
        );
    }

    /// A program that opens each tenth file, as one that looks at the names does.
    #[test]
    fn readahead_ends_if_most_files_are_wasted() {
        let root = tempfile::tempdir().unwrap();
        let files = within(0);
        let directories: Vec<Vec<Id>> = (0..40)
            .map(|n| {
                let path = root.path().join(n.to_string());
                std::fs::create_dir(&path).unwrap();
                let mut ids = cold_files(&path, 40);
                ids.sort_unstable();
                ids
            })
            .collect();
        find(&files, &root);
        let (mut read, mut opened) = (0, 0);
        for id in directories.iter().flat_map(|ids| ids.iter().step_by(10)) {
            files.opened(*id);
            read += take_all(&files);
            opened += 1;
            if files.gives_no_gain() {
                break;
            }
        }
        assert!(files.gives_no_gain());
        // The program has left the first directories.
        assert!(opened > LEFT_AFTER && opened < 100, "{opened}");
        let state = files.state();
        assert!(state.wasted > MIN_WASTED + state.used);
        drop(state);
        assert!(read > 32, "{read}");
    }

    /// tar(1) reads the directories in a directory before the files that come later there.
    #[test]
    fn the_files_of_a_directory_are_used_after_those_of_the_directories_in_it() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let mut above = cold_files(root.path(), 200);
        above.sort_unstable();
        let mut below = cold_files(&below, 200);
        below.sort_unstable();
        let files = within(0);
        find(&files, &root);
        for id in above[..40].iter().chain(&below).chain(&above[40..]) {
            files.opened(*id);
            take_all(&files);
            assert!(!files.gives_no_gain());
            assert_eq!(files.state().wasted, 0);
        }
        assert!(files.state().used > 380);
    }

    #[test]
    fn a_directory_is_read_after_two_walks_with_different_roots() {
        let above = tempfile::tempdir().unwrap();
        let below = above.path().join("d");
        std::fs::create_dir(&below).unwrap();
        let ids = cold_files(&below, 5);
        let files = within(1 << 30);
        find_below(&files, above.path());
        find_below(&files, &below);
        ids[..3].iter().for_each(|id| files.opened(*id));
        wait_for("cached pages", || (3..5).all(|n| is_cached(&below, n)));
    }

    #[test]
    fn no_more_than_the_budget_is_ahead() {
        let (directory, mut ids) = directory(60);
        let files = within(10 * 4096);
        find(&files, &directory);
        ids.sort_unstable();
        for opened in 8..=50 {
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
        for order in [Order::Name, Order::Inode, Order::Listing] {
            let files = within(1 << 30);
            find(&files, &directory);
            let mut state = files.state();
            state.opened = MIN_OPENED;
            state.sequence.steps[order as usize] = 100;
            let position = |n: usize| (ids[n].1, (n * 7 % 30) as u32);
            let positions: HashMap<u64, u32> = (0..30).map(position).collect();
            for found in state.directories.values_mut() {
                found.positions = Some(positions.clone());
            }
            let mut taken = Vec::new();
            while let Some((_, names)) = state.take(1 << 30) {
                taken.extend(names.into_iter().map(|(_, name, _)| name));
            }
            let mut expected: Vec<(Id, PathBuf)> =
                (0..30).map(|n| (ids[n], format!("f{n}").into())).collect();
            match order {
                Order::Name => expected.sort_by(|a, b| a.1.cmp(&b.1)),
                Order::Inode => expected.sort(),
                Order::Listing => expected.sort_by_key(|it| positions[&it.0.1]),
            }
            let taken = taken.iter().map(|name| &**name);
            assert!(taken.eq(expected.iter().map(|it| &*it.1)), "{order:?}");
        }
    }

    #[test]
    fn the_order_of_the_program_is_seen() {
        let (directory, ids) = directory(40);
        let mut by_name: Vec<usize> = (0..40).collect();
        by_name.sort_by_key(|n| format!("f{n}"));
        let mut by_inode: Vec<usize> = (0..40).collect();
        by_inode.sort_by_key(|n| ids[*n]);
        let listed = std::fs::read_dir(directory.path()).unwrap().map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name[1..].parse().unwrap()
        });
        let orders = [
            (Order::Name, by_name),
            (Order::Inode, by_inode),
            (Order::Listing, listed.collect()),
        ];
        for (order, numbers) in orders {
            let files = within(0);
            find(&files, &directory);
            numbers.iter().for_each(|n| files.opened(ids[*n]));
            let sequence = &files.state().sequence;
            assert_eq!(sequence.steps[order as usize], 39);
            assert_eq!(sequence.best().1, 39);
        }
    }

    #[test]
    fn files_that_inotify_counted_are_used_in_the_order_in_which_they_were_read() {
        let (directory, _) = directory(20);
        let files = within(1 << 30);
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
