//! A memory cgroup for one process. It is removed when it is dropped.
//!
//! The cgroup is made in version 1 or 2, in the hierarchy that has the memory controller: below the
//! cgroup of this process or, if that may have no child (version 2 with processes in it), below one
//! of its ancestors. Each step is tried; no property of the hierarchy is assumed. A bench that was
//! killed leaves an empty directory, which the next one removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_cli::problem::Problem;
use nowait_cli::proc::{self, Hierarchy, Version};

/// A cgroup of this program. Its process must have ended before this is dropped.
pub struct Cgroup {
    path: PathBuf,
    files: Files,
}

/// The names of the files in one version of cgroups.
#[derive(Clone, Copy)]
struct Files {
    limit: &'static str,
    usage: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
};
const V2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
};

/// The prefix of the directories that this program makes. The pid of the bench follows.
const PREFIX: &str = "nowait-race-";

impl Cgroup {
    /// Makes a cgroup and puts a process into it. Memory that the process has already stays charged
    /// to its former cgroup.
    ///
    /// # Errors
    /// The reason if no cgroup can be made.
    pub fn around(pid: u32) -> Result<Cgroup, String> {
        let mut why = String::from("no memory cgroups are mounted here");
        for (directory, files) in places() {
            sweep(&directory);
            match make(&directory, files, pid) {
                Ok(cgroup) => return Ok(cgroup),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The bytes that are charged to the cgroup.
    pub fn usage(&self) -> Result<u64, Problem> {
        let path = self.path.join(self.files.usage);
        let text = fs::read_to_string(&path).map_err(|e| Problem::of(path.display(), e))?;
        text.trim()
            .parse()
            .map_err(|e| Problem::of(path.display(), e))
    }

    /// Limits the cgroup to this many bytes. The kernel reclaims the rest before this returns.
    pub fn limit(&self, bytes: u64) -> Result<(), Problem> {
        let path = self.path.join(self.files.limit);
        fs::write(&path, bytes.to_string()).map_err(|e| Problem::of(path.display(), e))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may count a process for a moment after wait(2) has returned.
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

fn make(directory: &Path, files: Files, pid: u32) -> Result<Cgroup, String> {
    let path = directory.join(format!("{PREFIX}{}", std::process::id()));
    let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    fs::create_dir(&path).map_err(|e| failed(&path, e))?;
    // From here on the directory is removed if a step fails.
    let cgroup = Cgroup { path, files };
    for name in [files.limit, files.usage] {
        let file = cgroup.path.join(name);
        fs::metadata(&file).map_err(|e| failed(&file, e))?;
    }
    let members = cgroup.path.join("cgroup.procs");
    fs::write(&members, pid.to_string()).map_err(|e| failed(&members, e))?;
    Ok(cgroup)
}

/// Removes the empty directories of benches that no longer run.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The directories in which a child may be made, in the order of the attempts.
fn places() -> Vec<(PathBuf, Files)> {
    let mounts = proc::read("/proc/self/mountinfo");
    let own = proc::read("/proc/self/cgroup");
    let mut places = Vec::new();
    for hierarchy in proc::lines(&mounts).filter_map(Hierarchy::of) {
        let files = match hierarchy.version {
            Version::One => V1,
            Version::Two => V2,
        };
        let mut groups = proc::lines(&own).filter_map(proc::memory_group);
        let group = groups.find(|(version, _)| *version == hierarchy.version);
        let directory = hierarchy.directory(group.map_or(Path::new("/"), |(_, path)| path));
        let upwards = directory.ancestors();
        let visible = upwards.take_while(|d| d.starts_with(&hierarchy.point));
        places.extend(visible.map(|d| (d.to_path_buf(), files)));
    }
    places
}
