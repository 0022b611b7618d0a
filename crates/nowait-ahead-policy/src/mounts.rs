//! The mount points at which filesystems are unmounted while a program runs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nowait_page_cache::proc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Watches the mount namespace of this process, in a thread, until it is dropped.
pub struct Mounts(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    is_over: AtomicBool,
}

struct State {
    /// The mount points, with the IDs of their mounts.
    there: HashMap<PathBuf, u64>,
    unmounted: HashSet<PathBuf>,
}

/// The thread ends after this time.
const INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

impl Mounts {
    /// Begins to watch. Without a thread, only [`unmounted`](Mounts::unmounted) looks.
    pub fn watch() -> Mounts {
        let there = mounts();
        let state = Mutex::new(State {
            there,
            unmounted: HashSet::new(),
        });
        let is_over = AtomicBool::new(false);
        let shared = Arc::new(Shared { state, is_over });
        let watched = shared.clone();
        let thread = std::thread::Builder::new().name("mounts".to_owned());
        let _ = thread.spawn(move || watched.watch());
        Mounts(shared)
    }

    /// The mount points at which a filesystem was unmounted until now, also if another one was mounted there. The kernel may give
    /// a new mount the ID of one that was unmounted: such a pair is missed if the thread was too late for the first one.
    pub fn unmounted(&self) -> HashSet<PathBuf> {
        self.0.look();
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unmounted.clone()
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// poll(2) reports a change of the mounts once; see proc_pid_mounts(5).
    fn watch(&self) {
        let Ok(mounts) = File::open("/proc/self/mounts") else {
            return;
        };
        // A filesystem may have been unmounted before the file was opened.
        self.look();
        while !self.is_over.load(Ordering::Relaxed) {
            let changed = poll(&mut [PollFd::new(&mounts, PollFlags::PRI)], Some(&INTERVAL));
            if changed.is_ok_and(|count| count > 0) {
                self.look();
            }
        }
    }

    fn look(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = mounts();
        let before = std::mem::replace(&mut state.there, now);
        let gone = before
            .into_iter()
            .filter(|(path, id)| state.there.get(path) != Some(id));
        let gone: Vec<PathBuf> = gone.map(|(path, _)| path).collect();
        state.unmounted.extend(gone);
    }
}

/// The mount points, with the ID of the last mount at each. None without /proc.
fn mounts() -> HashMap<PathBuf, u64> {
    let text = proc::read("/proc/self/mountinfo");
    let mount = |line: &[u8]| {
        let id = proc::number(line.split(|byte| *byte == b' ').next()?)?;
        Some((proc::mount(line)?.0, id))
    };
    proc::lines(&text).filter_map(mount).collect()
}
