//! The budget: the number of bytes that may be read into the page cache. It is a share of the
//! memory that is available to this process, so that new data does not evict data that was read
//! before. The budget is computed again during the work.
//!
//! Available memory includes clean cached pages, so it includes the bytes that were read before.
//! The rule is *bytes read ≤ share × available*, at every check. In a cgroup, the lowest limit of
//! the group and its parents applies, minus the used memory that the kernel cannot drop.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::proc::{self, Hierarchy, Version};
use crate::size::Size;

/// The budget that the user gave: bytes, or a share of the available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A number of bytes, but not more than are available.
    Bytes(u64),
    /// A percentage of the available memory.
    Percent(u8),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Allowed::Percent(percent)),
                _ => Err(format!("`{text}` is not a percentage: write 0% to 100%")),
            };
        }
        if text == "0" {
            return Ok(Allowed::Bytes(0));
        }
        text.parse().map(|Size(bytes)| Allowed::Bytes(bytes))
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Bytes(bytes) => write!(f, "{}", Size(*bytes)),
            Allowed::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The budget as computed at the last check.
#[derive(Debug)]
pub struct Budget {
    allowed: Allowed,
    memory: Memory,
    /// The available memory at the last check, in bytes.
    available: u64,
}

/// The share of the available memory, in eighths, that [`Budget::lasting`] allows at most.
const LASTING_EIGHTHS: u64 = 7;

impl Budget {
    /// Computes the budget for the first time.
    pub fn new(allowed: Allowed) -> Budget {
        let memory = Memory::here();
        Budget {
            allowed,
            available: memory.available(),
            memory,
        }
    }

    /// Computes the budget again, because other programs may have used memory meanwhile.
    pub fn update(&mut self) {
        self.available = self.memory.available();
    }

    /// The memory in bytes that is available at this moment.
    pub fn unused(&self) -> u64 {
        self.memory.available()
    }

    /// The total number of bytes that may be read.
    pub fn max(&self) -> u64 {
        match self.allowed {
            Allowed::Bytes(bytes) => bytes.min(self.available),
            Allowed::Percent(percent) => {
                (u128::from(self.available) * u128::from(percent) / 100) as u64
            }
        }
    }

    /// Computes the budget again for memory that is filled for long. Locked memory is not available,
    /// so the caller's own locked bytes are added. An eighth of the memory is left to others.
    pub fn lasting(&mut self, locked: u64) -> u64 {
        let all = self.memory.available().saturating_add(locked);
        self.available = all / 8 * LASTING_EIGHTHS;
        match self.allowed {
            Allowed::Bytes(bytes) => bytes.min(self.available),
            Allowed::Percent(percent) => self
                .available
                .min((u128::from(all) * u128::from(percent) / 100) as u64),
        }
    }

    /// Returns true if the user's number of bytes exceeds the available memory.
    pub fn is_cut(&self) -> bool {
        matches!(self.allowed, Allowed::Bytes(bytes) if bytes > self.available)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, available) = (Size(self.max()), Size(self.available));
        match self.allowed {
            Allowed::Bytes(_) if self.is_cut() => {
                write!(f, "the available memory of {limit}")
            }
            Allowed::Bytes(_) => write!(f, "the budget of {limit}"),
            Allowed::Percent(percent) => write!(
                f,
                "the budget of {limit} ({percent}% of {available} available memory)"
            ),
        }
    }
}

/// The sources of memory limits: /proc/meminfo and the cgroups of this process.
#[derive(Debug)]
struct Memory {
    groups: Vec<Group>,
}

/// A cgroup with the memory controller's files.
#[derive(Debug)]
struct Group {
    directory: PathBuf,
    version: Version,
}

impl Memory {
    /// The sources for this process: its cgroup and the group's parents.
    fn here() -> Memory {
        Memory {
            groups: groups(
                &proc::read("/proc/self/cgroup"),
                &proc::read("/proc/self/mountinfo"),
            ),
        }
    }

    /// The number of bytes that can be used without swapping and without reaching a limit; 0 if it
    /// is unknown.
    fn available(&self) -> u64 {
        self.groups
            .iter()
            .filter_map(Group::available)
            .fold(proc::available_memory().unwrap_or(0), u64::min)
    }
}

impl Group {
    /// The bytes up to the group's limit, including used memory that the kernel can drop; `None`
    /// without a limit.
    fn available(&self) -> Option<u64> {
        let read = |name: &str| proc::read(self.directory.join(name));
        let number = |name: &str| proc::number(read(name).trim_ascii());
        let (limit, used, prefix) = match self.version {
            // Without a limit the files contain "max".
            Version::Two => {
                let limits = [number("memory.max"), number("memory.high")];
                (
                    limits.into_iter().flatten().min()?,
                    number("memory.current")?,
                    "",
                )
            }
            Version::One => (
                number("memory.limit_in_bytes")?,
                number("memory.usage_in_bytes")?,
                "total_",
            ),
        };
        let stat = read("memory.stat");
        let files: u64 = ["inactive_file", "active_file"]
            .iter()
            .filter_map(|name| proc::number_of(&stat, &format!("{prefix}{name}")))
            .sum();
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }
}

/// The cgroups with a memory controller that contain a process, and their visible parents. The
/// arguments are the contents of /proc/self/cgroup and /proc/self/mountinfo.
fn groups(cgroup: &[u8], mountinfo: &[u8]) -> Vec<Group> {
    let mut groups = Vec::new();
    for (version, path) in proc::lines(cgroup).filter_map(proc::memory_group) {
        let mut hierarchies = proc::lines(mountinfo).filter_map(Hierarchy::of);
        if let Some(hierarchy) = hierarchies.find(|hierarchy| hierarchy.version == version) {
            let own = hierarchy.directory(path);
            let visible = own
                .ancestors()
                .take_while(|d| d.starts_with(&hierarchy.point));
            groups.extend(visible.map(|directory| Group {
                directory: directory.to_path_buf(),
                version,
            }));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_parsed() {
        for (text, allowed) in [
            ("0", Allowed::Bytes(0)),
            ("4G", Allowed::Bytes(4 << 30)),
            ("0%", Allowed::Percent(0)),
            ("75%", Allowed::Percent(75)),
            ("100%", Allowed::Percent(100)),
        ] {
            assert_eq!(text.parse(), Ok(allowed), "{text}");
        }
        for text in ["", "%", "101%", "-1%", "1.5%", "x"] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }

    fn directories(cgroup: &str, mountinfo: &str) -> Vec<String> {
        groups(cgroup.as_bytes(), mountinfo.as_bytes())
            .iter()
            .map(|group| group.directory.display().to_string())
            .collect()
    }

    #[test]
    fn a_group_and_its_parents_are_found_in_both_versions() {
        let two = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            directories("0::/system.slice/a.service\n", two),
            [
                "/sys/fs/cgroup/system.slice/a.service",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup"
            ]
        );
        let one = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                   35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(
            directories("2:cpu:/b\n4:memory:/a\n0::/\n", one),
            ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]
        );
    }

    #[test]
    fn a_group_that_is_mounted_as_the_root_is_found() {
        let mounted = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        for seen in ["0::/docker/abc\n", "0::/\n"] {
            assert_eq!(directories(seen, mounted), ["/sys/fs/cgroup/"]);
        }
    }

    /// A directory with the given files of a cgroup.
    fn group(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        let group = Group {
            directory: directory.path().to_path_buf(),
            version,
        };
        (directory, group)
    }

    #[test]
    fn memory_that_a_group_can_drop_is_available() {
        let (_two, group_two) = group(
            Version::Two,
            &[
                ("memory.max", "1000\n"),
                ("memory.high", "800\n"),
                ("memory.current", "700\n"),
                (
                    "memory.stat",
                    "file 500\ninactive_file 300\nactive_file 100\n",
                ),
            ],
        );
        assert_eq!(group_two.available(), Some(800 - (700 - 400)));
        let (_one, group_one) = group(
            Version::One,
            &[
                ("memory.limit_in_bytes", "1000\n"),
                ("memory.usage_in_bytes", "700\n"),
                (
                    "memory.stat",
                    "inactive_file 7\ntotal_inactive_file 300\ntotal_active_file 100\n",
                ),
            ],
        );
        assert_eq!(group_one.available(), Some(1000 - (700 - 400)));
        let (_none, unlimited) = group(
            Version::Two,
            &[("memory.max", "max\n"), ("memory.high", "max\n")],
        );
        assert_eq!(unlimited.available(), None);
    }

    #[test]
    fn a_lasting_budget_leaves_memory_to_others_and_counts_locked_memory() {
        let budget = |allowed| Budget::new(allowed).lasting(1 << 50);
        let all = budget(Allowed::Bytes(u64::MAX));
        assert!(all >= (1 << 50) / 8 * 7, "{all}");
        assert_eq!(budget(Allowed::Bytes(1 << 30)), 1 << 30);
        // The available memory changes between two calls.
        assert!(budget(Allowed::Percent(100)) >= (1 << 50) / 8 * 7);
        let half = budget(Allowed::Percent(50));
        assert!(((1 << 50) / 2..(1 << 50) / 8 * 5).contains(&half), "{half}");
    }

    #[test]
    fn a_machine_has_memory() {
        assert!(Memory::here().available() > 0);
    }
}
