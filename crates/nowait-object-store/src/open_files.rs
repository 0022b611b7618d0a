//! The files that a store keeps open, and the thread that closes them.
//!
//! A file that was not used between two ticks of the thread is closed. A file that is used is
//! compared with its path each time. So the space of a deleted file is free within two ticks, and a
//! filesystem can be unmounted then.

use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lru::LruCache;
use nowait::Owner;

use crate::open_file::OpenFile;

/// The time between two ticks.
const TICK: Duration = Duration::from_millis(400);

/// The number of files that are closed together.
const TOGETHER: usize = 16;

/// The default for the number of files: a quarter of the process's limit, at most 1,024.
fn usual() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = limit
        .current
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    (limit / 4).min(1024)
}

/// The open files of a store by the locations of their objects.
///
/// In a forked child, the thread does not exist, and another thread may have held the lock at the
/// fork. A miss in a file of the parent's engine would fail. So a child keeps no file open, and
/// uses none of its parent.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    shared: Arc<Shared>,
    /// The process that has the thread.
    owner: Owner,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the thread.
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    files: LruCache<Box<str>, Slot>,
    /// Files that the thread closes. The last close of a deleted file may wait for the device.
    closing: Vec<Arc<OpenFile>>,
    /// The number of [`Closing`] values.
    closings: usize,
    /// The number of those that there were.
    closed: u64,
    /// The thread runs.
    has_thread: bool,
    /// The store was dropped.
    over: bool,
}

#[derive(Debug)]
struct Slot {
    file: Arc<OpenFile>,
    /// It was used since the last tick.
    used: bool,
}

impl Shared {
    // A panic leaves the data under the lock consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives a file to the thread.
    fn close(&mut self, file: Arc<OpenFile>, wake: &Condvar) {
        self.closing.push(file);
        if self.closing.len() >= TOGETHER {
            wake.notify_one();
        }
    }
}

impl OpenFiles {
    pub(crate) fn new() -> OpenFiles {
        let state = State {
            files: LruCache::new(at_least_one(usual())),
            closing: Vec::new(),
            closings: 0,
            closed: 0,
            has_thread: false,
            over: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
        });
        let owner = Owner::current();
        OpenFiles { shared, owner }
    }

    /// The files, or `None` in a forked child.
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.owner.is_here().then(|| self.shared.lock())
    }

    /// Sets the number of files that are kept open, at least 1.
    pub(crate) fn limit(&self, files: usize) {
        let Some(mut state) = self.lock() else {
            return;
        };
        let most = at_least_one(files);
        while state.files.len() > most.get() {
            if let Some((_, kept)) = state.files.pop_lru() {
                state.close(kept.file, &self.shared.wake);
            }
        }
        state.files.resize(most);
    }

    /// The number of files that are open.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.map_or(0, |state| state.files.len() + state.closing.len())
    }

    /// The open file of an object.
    pub(crate) fn get(&self, location: &str) -> Option<Arc<OpenFile>> {
        let mut state = self.lock()?;
        let kept = state.files.get_mut(location)?;
        kept.used = true;
        Some(kept.file.clone())
    }

    /// Keeps the file of an object open, unless the thread is late with closing others.
    pub(crate) fn insert(&self, location: &str, file: &Arc<OpenFile>) {
        let Some(mut state) = self.lock() else {
            return;
        };
        if state.closing.len() >= 2 * TOGETHER {
            return;
        }
        if !state.has_thread {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("nowait-store".into());
            if thread.spawn(move || run(&shared)).is_err() {
                return;
            }
            state.has_thread = true;
        }
        if state.files.is_empty() {
            self.shared.wake.notify_one();
        }
        let kept = Slot {
            file: file.clone(),
            used: true,
        };
        if let Some((_, old)) = state.files.push(location.into(), kept) {
            state.close(old.file, &self.shared.wake);
        }
    }

    /// Keeps the file of an object open no longer.
    pub(crate) fn remove(&self, location: &str) {
        let Some(mut state) = self.lock() else {
            return;
        };
        if let Some(kept) = state.files.pop(location) {
            state.close(kept.file, &self.shared.wake);
        }
    }

    /// A number that is greater after files were closed.
    pub(crate) fn closed(&self) -> u64 {
        self.lock().map_or(0, |state| state.closed)
    }

    /// Removes all files. They are closed when the result is dropped. Returns `None` if there are
    /// none, and no others are being closed.
    pub(crate) fn take_all(&self) -> Option<Closing> {
        let mut state = self.lock()?;
        while let Some((_, kept)) = state.files.pop_lru() {
            state.closing.push(kept.file);
        }
        let is_over = state.closing.is_empty() && state.closings == 0;
        (!is_over).then(|| Closing::begin(&self.shared, &mut state))
    }
}

/// Files that are closed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Closing {
    files: Vec<Arc<OpenFile>>,
    shared: Arc<Shared>,
}

impl Closing {
    fn begin(shared: &Arc<Shared>, state: &mut State) -> Closing {
        state.closings += 1;
        Closing {
            files: std::mem::take(&mut state.closing),
            shared: shared.clone(),
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.files.clear();
        let mut state = self.shared.lock();
        state.closings -= 1;
        state.closed += 1;
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        if let Some(mut state) = self.lock() {
            state.over = true;
            self.shared.wake.notify_one();
        }
    }
}

fn at_least_one(files: usize) -> NonZeroUsize {
    NonZeroUsize::new(files).unwrap_or(NonZeroUsize::MIN)
}

/// The loop of the thread.
fn run(shared: &Arc<Shared>) {
    let mut tick = Instant::now() + TICK;
    let mut state = shared.lock();
    loop {
        let now = Instant::now();
        if tick <= now {
            tick = now + TICK;
            sweep(&mut state);
        } else if state.closing.len() < TOGETHER && !state.over {
            let is_idle = state.files.is_empty() && state.closing.is_empty();
            let wait = if is_idle { Duration::MAX } else { tick - now };
            state = shared
                .wake
                .wait_timeout(state, wait)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
            continue;
        }
        if state.over {
            return;
        }
        let closing = Closing::begin(shared, &mut state);
        drop(state);
        drop(closing);
        state = shared.lock();
    }
}

/// Gives the files to be closed that were not used since the last tick.
fn sweep(state: &mut State) {
    let unused = state.files.iter().filter(|(_, kept)| !kept.used);
    let unused: Vec<Box<str>> = unused.map(|(location, _)| location.clone()).collect();
    for location in unused {
        if let Some(kept) = state.files.pop(&location) {
            state.closing.push(kept.file);
        }
    }
    for (_, kept) in state.files.iter_mut() {
        kept.used = false;
    }
}
