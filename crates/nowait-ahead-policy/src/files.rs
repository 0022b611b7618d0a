//! Reads the first bytes of files into the page cache, ahead of a program that opens the files of a
//! directory in turn.
//!
//! The walks report the files of each directory. When the program opens some of them, threads read
//! the others. They begin with the directory that the program is in. The bytes of files that were
//! read and that the program has not opened are within a budget, so that nothing is evicted before
//! it is used. [`Queue`] decides which files are read.

use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nowait::FileType;
use nowait::residency::residency;
use nowait::scan::Batch;
use nowait::walk::open_beneath;
use nowait_page_cache::{begin_to_read, open_for_readahead};
use nowait_residency::tasks::threads_beside_program;
use rustix::fs::{OFlags, fstat};

use crate::directory::{Id, positions};
use crate::file_queue::{File, MIN_OPENED, Queue, Summary};
use crate::found_files::{FilesOfDirectory, MAX_FILES};
use crate::surveyed_file::{ReadAheadFiles, SurveyedFile};

/// The files. Clones share them.
#[derive(Clone)]
pub struct Files(Arc<Shared>);

struct Shared {
    /// Returns the bytes of memory that are available.
    available: fn() -> u64,
    /// The maximum number of bytes that were read and not yet used.
    budget: OnceLock<u64>,
    /// The maximum number of threads.
    max_threads: OnceLock<usize>,
    state: Mutex<Queue>,
    /// Signalled when the program opens files, when files are found, and when readahead ends.
    changed: Condvar,
    /// Readahead has ended: all files were cached already, or the program did not open those that
    /// were read.
    useless: AtomicBool,
    /// Takes the files before they are read, if they are to be evicted at the end.
    to_survey: OnceLock<ReadAheadFiles>,
}

/// The result of an attempt to read a file ahead.
#[derive(Debug, PartialEq, Eq)]
enum Tried {
    /// Its bytes were cached.
    Cached,
    /// They are being read.
    Begun,
    /// The file could not be opened, or its pages could not be evicted afterwards.
    NotRead,
}

/// The number of cached files in a row after which all are taken to be cached.
const MIN_CACHED: u32 = 1024;
/// The maximum number of threads, unless few tasks are left. A thread begins to read a file, and goes on to the next one
/// without waiting for the data.
const MAX_THREADS: usize = 8;

impl Files {
    /// Reads nothing yet. The budget is a tenth of the available memory.
    pub fn new(available: fn() -> u64) -> Files {
        Files(Arc::new(Shared {
            available,
            budget: OnceLock::new(),
            max_threads: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            useless: AtomicBool::new(false),
            to_survey: OnceLock::new(),
        }))
    }

    /// The maximum number of bytes that were read and not yet used. The available memory is asked
    /// for when there is a file to be read: the program need not wait for that.
    fn budget(&self) -> u64 {
        let ask = || ((self.0.available)() / 10).min(4 << 30);
        *self.0.budget.get_or_init(ask)
    }

    /// The maximum number of threads. It is asked for when there is a file to be read, too.
    fn max_threads(&self) -> usize {
        let ask = || threads_beside_program(MAX_THREADS);
        *self.0.max_threads.get_or_init(ask)
    }

    fn state(&self) -> MutexGuard<'_, Queue> {
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
        directory.walk = Arc::downgrade(root);
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
        state.uses(root);
        self.wake(state);
    }

    /// The root of a walk that the user has asked for: [`let_go_unused`](Files::let_go_unused) does not close it.
    pub fn keep(&self, root: &Arc<OwnedFd>) {
        self.state().roots.keep(root);
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
        if self.count_opened(id) {
            self.is_not_expected(id);
        }
    }

    /// The program has opened a file that was read or is being read: it is to be evicted when it is not in use any more.
    fn is_not_expected(&self, id: Id) {
        if let Some(files) = self.0.to_survey.get() {
            files.add_opened(id);
        }
    }

    /// Counts a file as opened. Returns true if it was taken to be read.
    fn count_opened(&self, id: Id) -> bool {
        self.learn_listing(id);
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(file) = state.forget(id) else {
            return false;
        };
        state.opened += 1;
        // A later walk does not find it again, when it was evicted.
        if self.0.to_survey.get().is_some()
            && state.opened_before < MAX_FILES
            && let Some(directory) = state.directories.get_mut(&file.directory)
            && directory.opened_before.insert(file.name.clone())
        {
            state.opened_before += 1;
        }
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
        file.read > 0
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
        let positions = positions(&root, &path, MAX_FILES);
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
        // The program has opened so many files, perhaps not these. Files that are only counted are evicted at the end of the
        // program.
        for id in used {
            self.count_opened(id);
        }
    }

    /// Reads no more in the directories of these walks that were found until now, so that the program can unmount
    /// their filesystems. Later walks may find the files again.
    pub fn let_go(&self, which: impl Fn(&OwnedFd) -> bool) {
        self.state().let_go(which);
    }

    /// Does the same in the walks in which the program has opened no file since then, and which have found none.
    pub fn let_go_unused(&self, since: Instant) {
        self.state().let_go_unused(since);
    }

    /// Starts or wakes a thread if there is something to read. That thread wakes the next one.
    fn wake(&self, state: &mut Queue) {
        if !state.has_room(self.budget()) || self.gives_no_gain() {
            return;
        }
        if state.idle > 0 {
            self.0.changed.notify_one();
        } else if state.threads < self.max_threads() {
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
            let (mut cached, mut not_read) = (Vec::new(), Vec::new());
            let (mut row, mut tried) = (0, 0);
            for (id, name, len) in &taken {
                if self.gives_no_gain() || !self.state().roots.contains(&root) {
                    break;
                }
                tried += 1;
                let result = self.read_ahead(&root, &path.join(name), *len);
                row = if result == Tried::Cached { row + 1 } else { 0 };
                match result {
                    Tried::Cached => cached.push(*id),
                    Tried::NotRead => not_read.push(*id),
                    Tried::Begun if !self.state().is_ahead(*id) => self.is_not_expected(*id),
                    Tried::Begun => {}
                }
            }
            state = self.state();
            cached.iter().for_each(|id| state.was_cached(*id));
            not_read.extend(taken[tried..].iter().map(|(id, ..)| *id));
            not_read.iter().for_each(|id| state.was_not_read(*id));
            state.cached = if row == taken.len() as u32 {
                state.cached + row
            } else {
                row
            };
            if state.cached >= MIN_CACHED {
                self.end_readahead();
            }
        }
        // Files that were read are still counted as used when the program opens them.
        state.close_roots();
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

    /// Begins to read the first bytes of a file.
    fn read_ahead(&self, root: &OwnedFd, path: &Path, len: u64) -> Tried {
        let Some(file) = open_regular(root, path) else {
            return Tried::NotRead;
        };
        let cached = residency(&file, 0..len)
            .ok()
            .and_then(|answer| answer.known());
        if cached.is_some_and(|residency| residency.cached >= residency.pages) {
            return Tried::Cached;
        }
        let surveyed = self.0.to_survey.get();
        let reading = surveyed.map(|it| SurveyedFile::before_readahead(&file, it));
        if let Some(None) = reading {
            return Tried::NotRead;
        }
        begin_to_read(&file, &(0..len));
        drop(reading);
        Tried::Begun
    }

    /// Surveys each file before it is read, and adds it to `surveyed`.
    pub fn survey_before_reading(&self, surveyed: ReadAheadFiles) {
        let _ = self.0.to_survey.set(surveyed);
    }

    /// The sums over all files.
    pub fn summary(&self) -> Summary {
        self.state().summary
    }
}

/// Opens a file if it is still regular. No lease is broken, and none is kept from the program.
fn open_regular(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    let held = open_beneath(root, path, OFlags::PATH).ok()?;
    let stat = fstat(&held).ok()?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return None;
    }
    open_for_readahead(&held, &stat).ok()
}

#[cfg(test)]
mod tests;
