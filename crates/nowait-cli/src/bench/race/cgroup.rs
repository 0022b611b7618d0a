//! A memory cgroup around one process: made, limited, and removed again, whatever happens.
//!
//! Version 1 or 2, whichever has the memory controller and lets us make a child: in our own cgroup
//! or, where that may have none (version 2, with processes in it), in one above. Nothing is
//! believed of a hierarchy; each step is tried. A bench that was killed leaves an empty directory,
//! and the next one removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::problem::Problem;

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
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut places = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        // A container may see another's path here; then the top of the mount is left.
        let inside = mount.own(&own).unwrap_or_default();
        let inside = inside.strip_prefix(mount.root).unwrap_or(&inside);
        let directory = Path::new(mount.point).join(inside.trim_start_matches('/'));
        let upwards = directory.ancestors().filter(|d| d.starts_with(mount.point));
        places.extend(upwards.map(|d| (d.to_path_buf(), mount.files)));
    }
    places
}

/// A mounted hierarchy that may have the memory controller.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    files: Files,
}

impl<'a> Mount<'a> {
    /// Of a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let files = match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => V1,
            "cgroup2" => V2,
            _ => return None,
        };
        Some(Mount { root, point, files })
    }

    /// This process's own cgroup in it, of /proc/self/cgroup (cgroups(7)).
    fn own(&self, cgroups: &str) -> Option<String> {
        cgroups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let ours = if self.files.limit == V2.limit {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == "memory")
            };
            ours.then(|| path.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_told_apart() {
        let v1 = "37 34 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";
        let v2 = "30 23 0:26 /a /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let own = "4:memory:/one/two\n0::/a/b\n";
        let mount = Mount::parse(v1).unwrap();
        assert_eq!(
            (mount.point, mount.files.usage),
            ("/sys/fs/cgroup/memory", V1.usage)
        );
        assert_eq!(mount.own(own).as_deref(), Some("/one/two"));
        let mount = Mount::parse(v2).unwrap();
        assert_eq!((mount.root, mount.files.limit), ("/a", V2.limit));
        assert_eq!(mount.own(own).as_deref(), Some("/a/b"));
        let cpu = "33 34 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert!(Mount::parse(cpu).is_none() && Mount::parse("").is_none());
    }
}
