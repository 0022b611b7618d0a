//! The control groups that contain this process (cgroups(7)), and their limits of memory or of tasks.
//!
//! /proc/self/cgroup has the groups of the process, one in each hierarchy, and /proc/self/mountinfo the
//! places where the hierarchies are mounted. A limit of a group is also one of all groups below it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::proc;

/// The version of cgroups (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// cgroup v1.
    One,
    /// cgroup v2.
    Two,
}

impl Version {
    /// The filesystem's number: `f_type` of statfs(2).
    fn magic(self) -> i64 {
        match self {
            Version::One => 0x0027_e0eb,
            Version::Two => 0x6367_7270,
        }
    }
}

/// A controller of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// The bytes of memory.
    Memory,
    /// The number of tasks: processes and threads.
    Pids,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}

/// Parses a line of /proc/PID/cgroup. Returns the version of the hierarchy that has the controller,
/// and the path of the group in it; `None` for other lines.
pub fn group_of(line: &[u8], controller: Controller) -> Option<(Version, &Path)> {
    // 4:cpu,memory:/user.slice, or 0::/user.slice
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let (number, controllers) = (fields.next()?, fields.next()?);
    let path = Path::new(OsStr::from_bytes(fields.next()?));
    if number == b"0" && controllers.is_empty() {
        return Some((Version::Two, path));
    }
    has(controllers, controller.name()).then_some((Version::One, path))
}

/// A mounted hierarchy that may have a controller.
#[derive(Debug)]
pub struct Hierarchy {
    /// The version of the hierarchy.
    pub version: Version,
    /// The group at the root of the mount.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
}

impl Hierarchy {
    /// Parses a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)); `None` for other mounts than those
    /// that may have the controller.
    pub fn of(line: &[u8], controller: Controller) -> Option<Hierarchy> {
        // 32 24 0:28 ROOT MOUNTPOINT options [tags] - TYPE source OPTIONS
        let mut words = line.split(|byte| *byte == b' ');
        let (root, point) = (words.nth(3)?, words.next()?);
        words.by_ref().find(|word| *word == b"-")?;
        let (kind, options) = (words.next()?, words.nth(1).unwrap_or_default());
        let version = match kind {
            b"cgroup2" => Version::Two,
            b"cgroup" if has(options, controller.name()) => Version::One,
            _ => return None,
        };
        Some(Hierarchy {
            version,
            root: proc::unescaped(root),
            point: proc::unescaped(point),
        })
    }

    /// The directory of a group of this hierarchy. `None` if the group is outside the mount, as may
    /// be in a container or in a cgroup namespace.
    pub fn directory(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        let leaves = below.components().any(|part| part == Component::ParentDir);
        (!leaves).then(|| self.point.join(below))
    }

    /// Returns true if the mount point is that of the mount, and no other mount hides it.
    fn is_visible(&self) -> bool {
        let filesystem = rustix::fs::statfs(&self.point);
        #[allow(clippy::unnecessary_cast, reason = "the type depends on the machine")]
        filesystem.is_ok_and(|it| it.f_type as i64 == self.version.magic())
    }
}

/// Returns true if a comma-separated list contains a word.
fn has(list: &[u8], word: &str) -> bool {
    list.split(|byte| *byte == b',')
        .any(|one| one == word.as_bytes())
}

/// A control group. Its hierarchy may have no controller, in version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its directory.
    pub directory: PathBuf,
    /// The version of its hierarchy.
    pub version: Version,
}

/// From this number of bytes on, a limit of version 1 is none: 2^63, rounded down to pages.
const NO_LIMIT: u64 = 1 << 62;

impl Group {
    /// The limit of the group in bytes: `memory.limit_in_bytes`, or the lower one of `memory.max` and
    /// `memory.high`. `None` without a limit.
    pub fn limit(&self) -> Option<u64> {
        match self.version {
            Version::One => self
                .number("memory.limit_in_bytes")
                .filter(|limit| *limit < NO_LIMIT),
            // Without a limit the files contain "max".
            Version::Two => {
                let limits = [self.number("memory.max"), self.number("memory.high")];
                limits.into_iter().flatten().min()
            }
        }
    }

    /// The bytes up to the group's limit, including used memory that the kernel can drop; `None`
    /// without a limit.
    pub fn available(&self) -> Option<u64> {
        let limit = self.limit()?;
        let (usage, prefix) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_"),
            Version::Two => ("memory.current", ""),
        };
        let used = self.number(usage)?;
        let stat = proc::read(self.directory.join("memory.stat"));
        let files: u64 = ["inactive_file", "active_file"]
            .iter()
            .filter_map(|name| proc::number_of(&stat, &format!("{prefix}{name}")))
            .sum();
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }

    /// The number of tasks that may still be created in the group; `None` without a limit.
    pub fn tasks_left(&self) -> Option<u64> {
        let (limit, tasks) = (self.number("pids.max")?, self.number("pids.current")?);
        Some(limit.saturating_sub(tasks))
    }

    fn number(&self, file: &str) -> Option<u64> {
        proc::number(proc::read(self.directory.join(file)).trim_ascii())
    }
}

/// The control groups of a controller that contain a process: its own, and those above it that are visible.
#[derive(Debug)]
pub struct Groups {
    own: Option<Group>,
    all: Vec<Group>,
}

impl Groups {
    /// The groups of this process at this moment that may limit memory, or the number of tasks.
    pub fn of_this_process(controller: Controller) -> Groups {
        Groups::of(
            &proc::read("/proc/self/cgroup"),
            &proc::read("/proc/self/mountinfo"),
            controller,
            Hierarchy::is_visible,
        )
    }

    /// The groups in the contents of /proc/self/cgroup and /proc/self/mountinfo. Of several mounts of
    /// a hierarchy, the one that shows the most groups above the process counts.
    fn of(
        cgroup: &[u8],
        mountinfo: &[u8],
        controller: Controller,
        is_visible: impl Fn(&Hierarchy) -> bool,
    ) -> Groups {
        let mounts = proc::lines(mountinfo).filter_map(|line| Hierarchy::of(line, controller));
        let mounts: Vec<Hierarchy> = mounts.filter(is_visible).collect();
        let mut groups = Groups {
            own: None,
            all: Vec::new(),
        };
        let own = proc::lines(cgroup).filter_map(|line| group_of(line, controller));
        for (version, path) in own {
            let of_version = || mounts.iter().filter(|mount| mount.version == version);
            let depth = |mount: &&Hierarchy| mount.root.components().count();
            let shown = of_version().filter(|mount| mount.directory(path).is_some());
            // In a container the group at the root of the mount may be the process's own.
            let Some(mount) = shown.min_by_key(depth).or_else(|| of_version().next()) else {
                continue;
            };
            let own = mount.directory(path);
            let nearest = own.clone().unwrap_or_else(|| mount.point.clone());
            let visible = nearest
                .ancestors()
                .take_while(|directory| directory.starts_with(&mount.point));
            groups.all.extend(visible.map(|directory| Group {
                directory: directory.to_path_buf(),
                version,
            }));
            // In a system with both versions, the controller is in the first.
            if let Some(directory) = own
                && (groups.own.is_none() || version == Version::One)
            {
                groups.own = Some(Group { directory, version });
            }
        }
        groups
    }

    /// The group of the process. `None` if it is not visible: it is in no group, no hierarchy with the
    /// controller is mounted, or the group is outside the mounts.
    pub fn own(&self) -> Option<&Group> {
        self.own.as_ref()
    }

    /// The lowest limit of the groups in bytes. `None` without a limit.
    pub fn limit(&self) -> Option<u64> {
        self.all.iter().filter_map(Group::limit).min()
    }

    /// The bytes that the process can use before it reaches a limit, including used memory that the
    /// kernel can drop. `None` without a limit.
    pub fn available(&self) -> Option<u64> {
        self.all.iter().filter_map(Group::available).min()
    }

    /// The number of tasks that the process may still create. `None` without a limit.
    pub fn tasks_left(&self) -> Option<u64> {
        self.all.iter().filter_map(Group::tasks_left).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_parsed() {
        let v1 = b"37 34 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";
        let v2 = b"30 23 0:26 /a /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let directory = |hierarchy: &Hierarchy, group| {
            let directory = hierarchy.directory(Path::new(group));
            directory.map(|it| it.display().to_string())
        };
        let one = Hierarchy::of(v1, Controller::Memory).unwrap();
        assert_eq!(one.version, Version::One);
        assert_eq!(directory(&one, "/b").unwrap(), "/sys/fs/cgroup/memory/b");
        let two = Hierarchy::of(v2, Controller::Memory).unwrap();
        assert_eq!(
            (two.version, two.root.as_path()),
            (Version::Two, Path::new("/a"))
        );
        assert_eq!(directory(&two, "/a/b").unwrap(), "/sys/fs/cgroup/b");
        for elsewhere in ["/", "/x", "/ab", "/a/../.."] {
            assert_eq!(directory(&two, elsewhere), None, "{elsewhere}");
        }
        let cpu = b"33 34 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert!(
            Hierarchy::of(cpu, Controller::Memory).is_none()
                && Hierarchy::of(b"", Controller::Memory).is_none()
        );
        let escaped = b"30 23 0:26 /a\\040b /mnt/a\\040-\\040b\\012\\134c\xff rw - cgroup2 none rw";
        let escaped = Hierarchy::of(escaped, Controller::Memory).unwrap();
        assert_eq!(escaped.root, Path::new("/a b"));
        assert_eq!(escaped.point.as_os_str().as_bytes(), b"/mnt/a - b\n\\c\xff");
    }

    #[test]
    fn groups_are_found_in_both_versions() {
        for (line, found) in [
            (&b"0::/a:b"[..], Some((Version::Two, "/a:b"))),
            (b"4:cpu,memory:/one/two", Some((Version::One, "/one/two"))),
            (b"2:cpu:/b", None),
            (b"1:name=systemd:/b", None),
            (b"0:", None),
        ] {
            let found = found.map(|(version, path)| (version, Path::new(path)));
            assert_eq!(group_of(line, Controller::Memory), found);
        }
    }

    fn groups(cgroup: &str, mountinfo: &str) -> Groups {
        Groups::of(
            cgroup.as_bytes(),
            mountinfo.as_bytes(),
            Controller::Memory,
            |_| true,
        )
    }

    fn directories(cgroup: &str, mountinfo: &str) -> Vec<String> {
        let all = groups(cgroup, mountinfo).all;
        let all = all.iter().map(|it| it.directory.display().to_string());
        all.collect()
    }

    const TWO: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const ONE: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                       35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                       36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_group_and_its_parents_are_found() {
        let two =
            "/sys/fs/cgroup/system.slice/a.service /sys/fs/cgroup/system.slice /sys/fs/cgroup";
        assert_eq!(
            directories("0::/system.slice/a.service\n", TWO).join(" "),
            two
        );
        let seen = "2:cpu:/b\n4:memory:/a\n0::/\n";
        let one = "/sys/fs/cgroup/memory/a /sys/fs/cgroup/memory /sys/fs/cgroup/unified/";
        assert_eq!(directories(seen, ONE).join(" "), one);
        let own = groups(seen, ONE).own.unwrap();
        assert_eq!(own.directory, Path::new("/sys/fs/cgroup/memory/a"));
        // Debian's and Amazon's version 1 mount controllers together.
        let both = "35 31 0:32 / /cg/memory,cpu rw - cgroup cgroup rw,cpu,memory\n";
        let found = directories("4:cpu,memory:/a/b\n", both);
        assert_eq!(
            found.join(" "),
            "/cg/memory,cpu/a/b /cg/memory,cpu/a /cg/memory,cpu"
        );
    }

    #[test]
    fn a_group_that_is_mounted_as_the_root_is_found() {
        let mounted = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        for (seen, is_own) in [
            ("0::/docker/abc\n", true),
            ("0::/\n", false),
            ("0::/..\n", false),
        ] {
            assert_eq!(directories(seen, mounted).len(), 1, "{seen}");
            assert!(directories(seen, mounted)[0].starts_with("/sys/fs/cgroup"));
            assert_eq!(groups(seen, mounted).own.is_some(), is_own, "{seen}");
        }
    }

    #[test]
    fn the_mount_that_shows_the_most_groups_counts() {
        let others = "40 23 0:26 /x /other rw - cgroup2 none rw\n41 23 0:26 /a/b /part rw - cgroup2 none rw\n";
        let found = directories("0::/a/b/c\n", &format!("{others}{TWO}"));
        assert_eq!(found[0], "/sys/fs/cgroup/a/b/c");
        assert_eq!(
            directories("0::/a/b/c\n", others).join(" "),
            "/part/c /part"
        );
        let hidden = |it: &Hierarchy| it.point != Path::new("/part");
        let groups = Groups::of(
            b"0::/a/b/c\n",
            others.as_bytes(),
            Controller::Memory,
            hidden,
        );
        assert_eq!(groups.own, None);
    }

    #[test]
    fn a_process_without_groups_has_no_limit() {
        for (cgroup, mountinfo) in [("", ""), ("0::/a\n", ""), ("", TWO), ("2:cpu:/\n", ONE)] {
            let groups = groups(cgroup, mountinfo);
            assert_eq!(
                (groups.own(), groups.limit(), groups.available()),
                (None, None, None)
            );
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
        let (_two, two) = group(
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
        assert_eq!(
            (two.limit(), two.available()),
            (Some(800), Some(800 - (700 - 400)))
        );
        let (_one, one) = group(
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
        assert_eq!(
            (one.limit(), one.available()),
            (Some(1000), Some(1000 - (700 - 400)))
        );
    }

    #[test]
    fn a_group_may_have_no_limit() {
        for (version, files) in [
            (
                Version::Two,
                &[("memory.max", "max\n"), ("memory.high", "max\n")][..],
            ),
            (Version::Two, &[]),
            (
                Version::One,
                &[("memory.limit_in_bytes", "9223372036854771712\n")],
            ),
            (
                Version::One,
                &[("memory.limit_in_bytes", "9223372036854710272\n")],
            ),
        ] {
            let (_directory, group) = group(version, files);
            assert_eq!(
                (group.limit(), group.available()),
                (None, None),
                "{files:?}"
            );
        }
    }

    #[test]
    fn groups_above_limit_those_below() {
        let (above, _) = group(
            Version::Two,
            &[("memory.max", "500"), ("memory.high", "max")],
        );
        let own = above.path().join("own");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("memory.max"), "max").unwrap();
        std::fs::write(own.join("memory.high"), "700").unwrap();
        let mountinfo = format!(
            "30 23 0:26 / {} rw - cgroup2 none rw\n",
            above.path().display()
        );
        assert_eq!(groups("0::/own\n", &mountinfo).limit(), Some(500));
        std::fs::write(own.join("memory.high"), "300").unwrap();
        assert_eq!(groups("0::/own\n", &mountinfo).limit(), Some(300));
    }
}
