//! The mount points at which filesystems are unmounted while a program runs, and the mounts of open files.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nowait_page_cache::proc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dir, Mode, open};

use crate::directory::FLAGS;

/// Watches the mount namespace of this process, in a thread, until it is dropped.
pub struct Mounts(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    is_over: AtomicBool,
}

struct State {
    /// The mount points, by the IDs of their mounts.
    there: HashMap<u64, PathBuf>,
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
        let there = points();
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
        let now = points();
        let before = std::mem::replace(&mut state.there, now);
        let gone = before
            .into_iter()
            .filter(|(id, path)| state.there.get(id) != Some(path));
        let gone: Vec<PathBuf> = gone.map(|(_, path)| path).collect();
        state.unmounted.extend(gone);
    }
}

/// The IDs of the mounts at a mount point. If there are none, the path is relative, or leads through a symbolic link: those of
/// [`of_files`].
pub fn at(point: &Path) -> HashSet<u64> {
    let here = all().into_iter().filter(|(_, path, _)| path == point);
    let found: HashSet<u64> = here.map(|(id, ..)| id).collect();
    match found.is_empty() {
        true => of_files(),
        false => found,
    }
}

/// The IDs of all mounts but those of proc(5) and cgroups(7), which this process itself uses.
pub fn of_files() -> HashSet<u64> {
    let is_own = |kind: &str| ["proc", "cgroup", "cgroup2"].contains(&kind);
    let others = all().into_iter().filter(|(.., kind)| !is_own(kind));
    others.map(|(id, ..)| id).collect()
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
    let Ok(directory) = open("/proc/self/fd", FLAGS, Mode::empty()) else {
        return false;
    };
    let own = ["0", "1", "2", &directory.as_raw_fd().to_string()].map(str::to_owned);
    let entries = Dir::new(directory).into_iter().flatten();
    let names =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
    let mut others = names.filter(|name| !own.contains(name));
    others.any(|name| of_descriptor(&name).is_some_and(|mount| mounts.contains(&mount)))
}

/// Waits until this process has nothing of these mounts open, at most for this time. Calls `close` before each look, with the time
/// that has passed.
pub fn wait_until_unused(
    mounts: &HashSet<u64>,
    longest: Duration,
    mut close: impl FnMut(Duration),
) {
    let begin = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        close(begin.elapsed());
        if !are_in_use(mounts) || begin.elapsed() >= longest {
            return;
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

/// The mount points, by the IDs of their mounts.
pub fn points() -> HashMap<u64, PathBuf> {
    all().into_iter().map(|(id, path, _)| (id, path)).collect()
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::process::Command;

    use test_support::limit::wait_until;

    /// A mount for a test. It is unmounted at the end, also if it is in use.
    pub struct Mounted(pub PathBuf);

    impl Mounted {
        /// `None` if this user may not mount.
        pub fn new(words: &[&str], at: &Path) -> Option<Mounted> {
            let status = Command::new("mount").args(words).arg(at).status();
            if !status.is_ok_and(|it| it.success()) {
                slowdisk::skip_or_fail("cannot mount");
                return None;
            }
            Some(Mounted(at.to_owned()))
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }

    #[test]
    fn a_filesystem_is_unmounted_if_its_mount_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().canonicalize().unwrap();
        let mount = || Mounted::new(&["-t", "tmpfs", "none"], &at);
        let Some(below) = mount() else { return };
        let mounts = Mounts::watch();
        let above = mount().unwrap();
        // It is mounted over.
        assert!(!mounts.unmounted().contains(&at));
        drop(above);
        assert!(mounts.unmounted().contains(&at));
        let mounts = Mounts::watch();
        drop(below);
        assert!(mounts.unmounted().contains(&at));
    }

    #[test]
    fn the_look_for_descriptors_sees_all_but_its_own() {
        let proc = HashSet::from([of(File::open("/proc/self").unwrap()).unwrap()]);
        // Other tests read files there for a moment.
        wait_until("no file is open", || !are_in_use(&proc));
        let _open = File::open("/proc/self/status").unwrap();
        assert!(are_in_use(&proc));
    }
}
