//! The memory control group of the program (cgroups(7)). The page cache that the program fills is
//! charged to the group, and is given back at the end. The group has no limit.
//!
//! Pages that were cached before are charged to other groups, and stay.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

/// A group that this process has entered. Dropping it leaves the group, evicts its pages and
/// removes it.
pub struct Group {
    path: PathBuf,
    /// The group of this process before.
    before: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The pauses while processes that have ended are still in the group.
const PAUSES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

impl Group {
    /// Makes a group and enters it. Processes that are started later are in it, too.
    ///
    /// # Errors
    /// The errors of mkdir(2), and of writing `cgroup.procs`; `NotFound` if no memory control group
    /// has this process.
    pub fn enter() -> Result<Group> {
        let (before, version) = own_group()?;
        // In version 2, a group with processes has no controllers for groups below it.
        let above = match version {
            Version::One => before.as_path(),
            Version::Two => beside(&before)?,
        };
        let path = above.join(format!("nowait-run-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group {
            path,
            before,
            version,
        };
        if !group.path.join(group.evicts_by()).exists() {
            return Err(ErrorKind::Unsupported.into());
        }
        fs::write(group.path.join("cgroup.procs"), "0")?;
        Ok(group)
    }

    /// The file that evicts the pages of the group when it is written.
    fn evicts_by(&self) -> &'static str {
        match self.version {
            Version::One => "memory.force_empty",
            Version::Two => "memory.reclaim",
        }
    }

    /// Moves the processes to the group of this process before. Those that the program has left
    /// behind run on.
    fn empty(&self) {
        let processes = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            // It may have ended.
            let _ = fs::write(self.before.join("cgroup.procs"), process);
        }
    }

    fn evict(&self) {
        let all = match self.version {
            Version::One => "0".to_owned(),
            Version::Two => {
                fs::read_to_string(self.path.join("memory.current")).unwrap_or_default()
            }
        };
        // Pages that are not reclaimed are charged to the parent when the group is removed.
        let _ = fs::write(self.path.join(self.evicts_by()), all.trim());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A signal would end the eviction early, and leave the group behind.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        self.empty();
        self.evict();
        for _ in 0..PAUSES {
            if fs::remove_dir(&self.path).is_ok() {
                break;
            }
            sleep(PAUSE);
            self.empty();
        }
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
    }
}

/// The directory of the memory control group of this process.
fn own_group() -> Result<(PathBuf, Version)> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let find = |controller: &str, root: &str| {
        let line = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, group) = (fields.next()?, fields.next()?);
            let mut controllers = controllers.split(',');
            controllers.any(|it| it == controller).then_some(group)
        });
        line.map(|group| Path::new(root).join(group.trim_start_matches('/')))
    };
    if let Some(group) = find("memory", "/sys/fs/cgroup/memory") {
        return Ok((group, Version::One));
    }
    let two = find("", "/sys/fs/cgroup").map(|group| (group, Version::Two));
    two.ok_or(ErrorKind::NotFound.into())
}

/// The group above a group without a limit. A group beside it has no other limits.
fn beside(group: &Path) -> Result<&Path> {
    let limit = fs::read_to_string(group.join("memory.max"));
    match (limit, group.parent()) {
        (Ok(limit), _) if limit.trim() != "max" => Err(Error::other(
            "the control group of this process has a limit",
        )),
        (_, Some(above)) => Ok(above),
        (_, None) => Err(ErrorKind::NotFound.into()),
    }
}
