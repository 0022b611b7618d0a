//! A memory cgroup around one process: made, limited, and removed again, whatever happens.
//!
//! Version 1 or 2, whichever has the memory controller and lets us make a child: in our own cgroup
//! or, where that may have none (version 2, with processes in it), in one above. Nothing is
//! believed of a hierarchy; each step is tried. A bench that was killed leaves an empty directory,
//! and the next one removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_cli::problem::Problem;
use nowait_cli::proc::{self, Hierarchy, Version};

/// A cgroup of our own. Its process has to have ended before this is dropped.
pub struct Cgroup {
    path: PathBuf,
    files: Files,
}

/// What a version calls its files.
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

/// What directories of ours are called, before the pid of their bench.
const PREFIX: &str = "nowait-race-";

impl Cgroup {
    /// Makes one and puts a process into it. What that has in memory stays where it is counted;
    /// what it brings from now on counts here.
    ///
    /// # Errors
    /// Why there can be none.
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

    /// Bytes that count here now.
    pub fn usage(&self) -> Result<u64, Problem> {
        let path = self.path.join(self.files.usage);
        let text = fs::read_to_string(&path).map_err(|e| Problem::of(path.display(), e))?;
        text.trim()
            .parse()
            .map_err(|e| Problem::of(path.display(), e))
    }

    /// Allows it so much. What it has beyond that is reclaimed before this returns.
    pub fn limit(&self, bytes: u64) -> Result<(), Problem> {
        let path = self.path.join(self.files.limit);
        fs::write(&path, bytes.to_string()).map_err(|e| Problem::of(path.display(), e))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was waited for may be counted for a moment more.
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
    // From here on it is removed if anything fails.
    let cgroup = Cgroup { path, files };
    for name in [files.limit, files.usage] {
        let file = cgroup.path.join(name);
        fs::metadata(&file).map_err(|e| failed(&file, e))?;
    }
    let members = cgroup.path.join("cgroup.procs");
    fs::write(&members, pid.to_string()).map_err(|e| failed(&members, e))?;
    Ok(cgroup)
}

/// Removes what a bench left that no longer runs; one that has a process in it stays.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where a child may be made, in the order in which it is tried.
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
