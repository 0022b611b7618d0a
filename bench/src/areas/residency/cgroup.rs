//! A memory cgroup for the process under pressure, which makes it. The bench removes it when that
//! process has ended.
//!
//! The cgroup is made in version 1 or 2, in the hierarchy that has the memory controller: below the
//! cgroup of this process or, if that may have no child (version 2 with processes in it), below one
//! of its ancestors. Each step is tried; no property of the hierarchy is assumed. A bench that was
//! killed leaves an empty directory, which the next one removes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_cli::problem::Problem;
use nowait_cli::proc;
use nowait_residency::cgroup::{Controller, Hierarchy, Version, group_of};
use rustix::process::getppid;

/// The cgroup of this process.
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
    /// Makes a cgroup and moves this process into it. Memory that the process has already stays
    /// charged to its former cgroup. The name has the pid of the bench, which is the parent.
    ///
    /// # Errors
    /// The reason if no cgroup can be made.
    pub fn join() -> Result<Cgroup, String> {
        let bench = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        let mut why = String::from("no memory cgroups are mounted here");
        for (directory, files) in places() {
            let path = directory.join(format!("{PREFIX}{bench}"));
            match make(&path, files) {
                Ok(()) => return Ok(Cgroup { path, files }),
                Err(error) => why = error,
            }
            let _ = fs::remove_dir(&path);
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
    ///
    /// # Errors
    /// `EBUSY` if the kernel cannot reclaim enough for some seconds.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        let path = self.path.join(self.files.limit);
        patiently(|| fs::write(&path, bytes.to_string()))
    }
}

fn make(path: &Path, files: Files) -> Result<(), String> {
    let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    fs::create_dir(path).map_err(|e| failed(path, e))?;
    for name in [files.limit, files.usage] {
        let file = path.join(name);
        fs::metadata(&file).map_err(|e| failed(&file, e))?;
    }
    let members = path.join("cgroup.procs");
    fs::write(&members, std::process::id().to_string()).map_err(|e| failed(&members, e))
}

/// Removes the cgroups of this bench, whose processes have ended, and those of benches that no
/// longer run.
pub fn sweep() {
    for (directory, _) in places() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let is_over = |pid: &str| {
                pid == std::process::id().to_string() || !Path::new("/proc").join(pid).exists()
            };
            if pid.is_some_and(is_over) {
                // Another bench may have removed it.
                let _ = patiently(|| fs::remove_dir(entry.path()));
            }
        }
    }
}

/// Repeats a call while the cgroup is busy, for ten seconds: the kernel may count a process for a
/// moment after wait(2) has returned, and may need a while to reclaim pages beside other work.
fn patiently(call: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..1000 {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
    call()
}

/// The directories in which a child may be made, in the order of the attempts.
fn places() -> Vec<(PathBuf, Files)> {
    let mounts = proc::read("/proc/self/mountinfo");
    let own = proc::read("/proc/self/cgroup");
    let mut places = Vec::new();
    for hierarchy in proc::lines(&mounts).filter_map(|line| Hierarchy::of(line, Controller::Memory))
    {
        let files = match hierarchy.version {
            Version::One => V1,
            Version::Two => V2,
        };
        let mut groups = proc::lines(&own).filter_map(|line| group_of(line, Controller::Memory));
        let group = groups.find(|(version, _)| *version == hierarchy.version);
        // The group is outside the mount in a container.
        let directory = hierarchy.directory(group.map_or(Path::new("/"), |(_, path)| path));
        let directory = directory.unwrap_or_else(|| hierarchy.point.clone());
        let upwards = directory.ancestors();
        let visible = upwards.take_while(|d| d.starts_with(&hierarchy.point));
        places.extend(visible.map(|d| (d.to_path_buf(), files)));
    }
    places
}
