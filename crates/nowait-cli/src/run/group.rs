//! The memory control group of the program (cgroups(7)). The page cache that the program fills is
//! charged to the group, and is given back at the end. A group of version 1 gets the limit of the group that `nowait run` was
//! in. A group of version 2 has no limit of its own.
//!
//! Pages that were cached before are charged to other groups, and stay.
//!
//! The directory of the group has a lock (flock(2)) until the helper ends. A group without one was abandoned: any run may empty and
//! remove it. The program has no descriptor of the directory, so that the processes that it leaves behind do not hold the lock.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use nowait_residency::cgroup::{self, Controller, Groups, Version};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::name::shown;
use crate::size::Size;

/// A group that the process of the program has entered. The helper ends it.
#[derive(Clone)]
pub struct Group {
    path: PathBuf,
    /// Its directory, with a lock.
    lock: Arc<OwnedFd>,
    /// The group of the process before.
    before: PathBuf,
    version: Version,
}

/// The beginning of the names of groups. The number of the process follows.
const NAME: &str = "nowait-run-";

/// The pauses between attempts to remove a group while processes that have ended are still in it,
/// and to evict pages that are still written to the device: 10 seconds altogether.
fn pauses() -> impl Iterator<Item = Duration> {
    (0..160).map(|n| Duration::from_millis(1 << n.min(6)))
}

/// Files of a group of version 2 that limit its processes, with the words for no limit.
const LIMITS: [(&str, &[&str]); 7] = [
    ("memory.max", &["max"]),
    ("memory.high", &["max"]),
    ("memory.swap.max", &["max"]),
    ("memory.zswap.max", &["max"]),
    ("pids.max", &["max"]),
    ("cpu.max", &["max 100000"]),
    ("io.max", &[""]),
];

impl Group {
    /// Makes a group and enters it. Processes that are started later are in it, too.
    ///
    /// # Errors
    /// The errors of mkdir(2), and of writing `cgroup.procs`; others say why no group can be made.
    pub fn enter() -> Result<Group> {
        let cgroup::Group { directory, version } = own_group()?;
        let before = directory;
        // In version 2, a group with processes has no controllers for groups below it.
        let above = match version {
            Version::One => before.as_path(),
            Version::Two => beside(&before)?,
        };
        remove_abandoned(above, version);
        let path = above.join(format!("{NAME}{}", std::process::id()));
        let lock = Arc::new(create_locked(&path)?);
        let group = Group {
            path,
            lock,
            before,
            version,
        };
        if !group.path.join(evicts_by(version)).exists() {
            let _ = fs::remove_dir(&group.path);
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the kernel or the group above has no memory controller that can evict",
            ));
        }
        // Memory of processes that the program leaves behind is not to be swapped out.
        let _ = write(&group.path.join("memory.swappiness"), "0");
        if version == Version::One {
            group.copy_limit();
        }
        write(&group.path.join(entered_by(version)), "0")
            .inspect_err(|_| drop(fs::remove_dir(&group.path)))?;
        Ok(group)
    }

    /// The directory of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor with the lock. The helper keeps it. It is closed when the program is executed.
    pub fn lock(&self) -> RawFd {
        self.lock.as_raw_fd()
    }

    /// Gives the group the limit of the group before, which limits both. A program that asks for the limit of its own
    /// group alone, such as Node.js, then finds it.
    fn copy_limit(&self) {
        let limit = "memory.limit_in_bytes";
        if let Ok(limited) = fs::read_to_string(self.before.join(limit)) {
            let _ = write(&self.path.join(limit), limited.trim());
        }
    }

    /// Moves the calling process, which has one thread, to the group before.
    pub fn leave(&self) {
        let _ = write(&self.before.join(entered_by(self.version)), "0");
    }

    /// Leaves the group and removes it. The program was not executed.
    pub fn cancel(&self) {
        self.leave();
        let _ = fs::remove_dir(&self.path);
    }

    /// Moves the other processes to the group before. Those that the program has left behind run on.
    fn move_others(&self) {
        let own = std::process::id().to_string();
        let processes = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines().filter(|process| **process != own) {
            // It may have ended.
            let _ = write(&self.before.join("cgroup.procs"), process);
        }
    }

    /// Evicts the pages, and waits for those that are still written.
    fn evict(&self) {
        for pause in pauses() {
            // Pages that are written after this are evicted in the next round.
            let unwritten = self.count(&[
                "total_dirty",
                "total_writeback",
                "file_dirty",
                "file_writeback",
            ]);
            evict(&self.path, self.version);
            if unwritten == 0 {
                return;
            }
            sleep(pause);
        }
    }

    /// The sum of some numbers of the group, which are those of this moment.
    fn count(&self, names: &[&str]) -> u64 {
        add_up_counts();
        number(&self.path, names)
    }

    /// Evicts the pages of the group and removes it. Returns a report for the user, and what has failed.
    pub fn end(&self) -> (String, String) {
        // This process makes the kernel add up the counts of its own group.
        let _ = write(&self.path.join("cgroup.procs"), "0");
        self.move_others();
        let added = self.cached();
        self.evict();
        let left = self.cached();
        let _ = write(&self.before.join("cgroup.procs"), "0");
        if left > 0 {
            // These may be pages of this process.
            evict(&self.path, self.version);
        }
        remove_abandoned(&self.path, self.version);
        let mut failed = String::new();
        let report = format!(
            "page cache: {} of the program at its end, {} after the eviction\n",
            Size(added),
            Size(left)
        );
        // Another run may have removed it, since it is empty.
        if let Err(error) = self.remove()
            && error.kind() != ErrorKind::NotFound
        {
            let path = shown(&self.path);
            failed = format!("nowait: the control group {path} stays: {error}\n");
        }
        (report, failed)
    }

    /// The bytes of files that are charged to the group.
    fn cached(&self) -> u64 {
        match self.version {
            // tmpfs counts as cache, too.
            Version::One => self.count(&["total_inactive_file", "total_active_file"]),
            Version::Two => {
                add_up_counts();
                file_bytes(&self.path)
            }
        }
    }

    /// Removes the group. Pages that are left stay charged to the group until they are reclaimed.
    fn remove(&self) -> Result<()> {
        let mut removed = fs::remove_dir(&self.path);
        for pause in pauses() {
            match &removed {
                Err(error)
                    if error.kind() == ErrorKind::ResourceBusy && !has_groups(&self.path) =>
                {
                    sleep(pause);
                    self.move_others();
                    removed = fs::remove_dir(&self.path);
                }
                _ => break,
            }
        }
        removed
    }
}

/// The file by which this process enters a group. Its only thread enters by `tasks` without waiting
/// for an RCU grace period, which takes some milliseconds.
fn entered_by(version: Version) -> &'static str {
    match version {
        Version::One => "tasks",
        Version::Two => "cgroup.procs",
    }
}

/// The file that evicts the pages of a group when it is written.
fn evicts_by(version: Version) -> &'static str {
    match version {
        Version::One => "memory.force_empty",
        Version::Two => "memory.reclaim",
    }
}

/// Makes the numbers in `memory.stat` of the group of this process those of this moment. The kernel
/// counts on each processor, and adds up before it answers only if 64 changes for each processor were
/// counted. Otherwise it does so every two seconds. These pages are such changes.
fn add_up_counts() {
    const BATCH: usize = 64;
    let processors = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    let processors = processors.and_then(|it| usize::try_from(it).ok());
    let len = BATCH * rustix::param::page_size();
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // Each processor may keep the last ones to itself.
    for _ in 0..processors.unwrap_or(1) + 2 {
        // SAFETY: the kernel chooses an address that is free.
        let pages = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::WRITE, flags) };
        if let Ok(pages) = pages {
            // SAFETY: these pages have just been mapped, and nothing else uses them.
            let _ = unsafe { munmap(pages, len) };
        }
    }
}

/// Evicts the pages of files that are charged to a group.
fn evict(group: &Path, version: Version) {
    let path = group.join(evicts_by(version));
    match version {
        Version::One => drop(write(&path, "0")),
        Version::Two => {
            let bytes = file_bytes(group);
            // Older kernels do not know the second word.
            if bytes > 0 && write(&path, &format!("{bytes} swappiness=0")).is_err() {
                let _ = write(&path, &bytes.to_string());
            }
        }
    }
}

/// The bytes of files on a disk that are charged to a group of version 2.
fn file_bytes(group: &Path) -> u64 {
    number(group, &["file"]).saturating_sub(number(group, &["shmem"]))
}

/// Makes the directory of a group, with a lock.
fn create_locked(path: &Path) -> Result<OwnedFd> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        fs::create_dir(path)?;
        // Another run may have the lock for a moment, and remove the directory, which has no lock at first.
        let locked = open_directory(path).and_then(|it| lock(&it).map(|()| it));
        match locked {
            Ok(directory) if is_at(&directory, path) => return Ok(directory),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => {
                let _ = fs::remove_dir(path);
                return Err(error.into());
            }
        }
    }
    Err(ErrorKind::NotFound.into())
}

/// Waits a second at most: every user may lock a directory, and a process that has a lock may be stopped.
fn lock(directory: &OwnedFd) -> rustix::io::Result<()> {
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => sleep(PAUSE),
            locked => return locked,
        }
    }
    flock(directory, FlockOperation::NonBlockingLockExclusive)
}

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

/// Returns true if this directory has not been removed.
fn is_at(directory: &OwnedFd, path: &Path) -> bool {
    let (held, there) = (fstat(directory), stat(path));
    held.is_ok_and(|held| there.is_ok_and(|it| it.st_ino == held.st_ino))
}

/// Locks the directory of a group. `None` if its run has not ended.
fn lock_abandoned(path: &Path) -> Option<OwnedFd> {
    let directory = open_directory(path).ok()?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(directory)
}

/// Removes groups of helpers that were killed. One with processes cannot be removed.
fn remove_abandoned(above: &Path, version: Version) {
    for group in fs::read_dir(above).into_iter().flatten().flatten() {
        if group.file_name().to_string_lossy().starts_with(NAME)
            && let Some(_lock) = lock_abandoned(&group.path())
            && fs::read(group.path().join("cgroup.procs")).is_ok_and(|it| it.is_empty())
        {
            // A program may have run `nowait run`.
            remove_abandoned(&group.path(), version);
            evict(&group.path(), version);
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// Writes to a file that exists.
fn write(path: &Path, text: &str) -> Result<()> {
    File::options()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// The sum of some numbers of a group's `memory.stat`.
fn number(group: &Path, names: &[&str]) -> u64 {
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let numbers = stat.lines().filter_map(|line| {
        let (name, number) = line.split_once(' ')?;
        names.contains(&name).then(|| number.parse::<u64>().ok())?
    });
    numbers.sum()
}

/// Returns true if the program has made groups in this one.
fn has_groups(group: &Path) -> bool {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|it| it.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// The memory control group of this process.
fn own_group() -> Result<cgroup::Group> {
    let own = Groups::of_this_process(Controller::Memory).own().cloned();
    own.ok_or_else(|| {
        Error::other("this process has no memory control group, or it is not visible here")
    })
}

/// The group above a group without limits, and not of a unit of systemd(1). A group beside it has no other limits.
fn beside(group: &Path) -> Result<&Path> {
    // systemd ends a unit by its group, and would spare the program.
    let unit = group
        .extension()
        .is_some_and(|it| ["service", "scope"].iter().any(|kind| it == *kind));
    if unit {
        return Err(Error::other(
            "the control group of this process is a unit of systemd",
        ));
    }
    for (name, none) in LIMITS {
        if let Ok(limit) = fs::read_to_string(group.join(name))
            && !none.contains(&limit.trim())
        {
            let why = format!("the control group of this process has a limit ({name})");
            return Err(Error::other(why));
        }
    }
    match group.parent() {
        Some(above) if above.join("cgroup.procs").exists() => Ok(above),
        _ => Err(Error::other(
            "this process is in the root of the control groups",
        )),
    }
}
