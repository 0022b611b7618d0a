//! The mount points at which filesystems are unmounted while a program runs, and the mounts of open files.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
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

/// The thread ends within this time after `drop`.
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

/// The IDs of the mounts at a mount point. If there are none, the path is relative, or leads through a symbolic link: all mounts
/// but those of proc(5).
pub fn at(point: &Path) -> HashSet<u64> {
    let all = all();
    let here = |kept: &dyn Fn(&Path, &str) -> bool| {
        let kept = all.iter().filter(|(_, path, kind)| kept(path, kind));
        kept.map(|(id, ..)| *id).collect::<HashSet<_>>()
    };
    let found = here(&|path, _| path == point);
    match found.is_empty() {
        true => here(&|_, kind| kind != "proc"),
        false => found,
    }
}

/// The ID of the mount of an open file. No server is asked.
pub fn of(file: impl AsFd) -> Option<u64> {
    of_descriptor(&file.as_fd().as_raw_fd().to_string())
}

fn of_descriptor(number: &str) -> Option<u64> {
    let text = proc::read(format!("/proc/self/fdinfo/{number}"));
    proc::number_of(&text, "mnt_id:")
}

/// Returns true if this process has a file or directory of these mounts open, other than its standard streams.
pub fn are_in_use(mounts: &HashSet<u64>) -> bool {
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let names = descriptors.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut others = names.filter(|name| !["0", "1", "2"].contains(&name.as_str()));
    others.any(|name| of_descriptor(&name).is_some_and(|mount| mounts.contains(&mount)))
}

/// The mount points, by the IDs of their mounts.
pub fn points() -> HashMap<u64, PathBuf> {
    all().into_iter().map(|(id, path, _)| (id, path)).collect()
}

/// The mount points, with the ID of the last mount at each.
fn mounts() -> HashMap<PathBuf, u64> {
    all().into_iter().map(|(id, path, _)| (path, id)).collect()
}

/// The mounts of this process: ID, mount point and type of each. None without /proc.
fn all() -> Vec<(u64, PathBuf, String)> {
    let text = proc::read("/proc/self/mountinfo");
    let mount = |line: &[u8]| {
        let id = proc::number(line.split(|byte| *byte == b' ').next()?)?;
        let (path, kind) = proc::mount(line)?;
        Some((id, path, kind))
    };
    proc::lines(&text).filter_map(mount).collect()
}
