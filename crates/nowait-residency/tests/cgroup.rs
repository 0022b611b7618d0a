//! Limits of real control groups, as a process in them sees them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nowait_residency::cgroup::{Controller, Groups, Version};
use nowait_residency::tasks::tasks_left;

const MIB: u64 = 1 << 20;
/// The limit that a child has to see.
const EXPECTED: &str = "NOWAIT_TEST_EXPECTED";

/// The mounted hierarchy that has the memory controller, and the name of the file with the limit.
fn hierarchy() -> Option<(&'static Path, &'static str)> {
    let one = Path::new("/sys/fs/cgroup/memory");
    let two = Path::new("/sys/fs/cgroup");
    if one.join("memory.limit_in_bytes").exists() {
        return Some((one, "memory.limit_in_bytes"));
    }
    let controllers = std::fs::read_to_string(two.join("cgroup.subtree_control"));
    let has_memory = controllers.is_ok_and(|it| it.split_whitespace().any(|it| it == "memory"));
    has_memory.then_some((two, "memory.max"))
}

/// A group with one below it. Dropping it removes both.
struct Nested(PathBuf);

impl Nested {
    fn new(name: &str, limits: [u64; 2]) -> Option<Nested> {
        let (root, file) = hierarchy()?;
        let groups = Nested(root.join(format!("nowait-residency-{name}-{}", std::process::id())));
        std::fs::create_dir(&groups.0).ok()?;
        std::fs::create_dir(groups.own()).ok()?;
        let [above, own] = limits.map(|limit| limit.to_string());
        std::fs::write(groups.0.join(file), above).ok()?;
        // In version 2 the group above may have no controllers for those below.
        let _ = std::fs::write(groups.0.join("cgroup.subtree_control"), "+memory");
        std::fs::write(groups.own().join(file), own).ok()?;
        Some(groups)
    }

    fn own(&self) -> PathBuf {
        self.0.join("own")
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // The kernel may count a process for a moment after it has ended.
        let end = Instant::now() + Duration::from_secs(60);
        for group in [self.own(), self.0.clone()] {
            while std::fs::remove_dir(&group).is_err() && group.exists() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Runs `script` in a child that is in a group with these limits. `"$@"` in it is this test, which
/// has to see the limit `expected`.
fn sees(test: &str, limits: [u64; 2], expected: u64, script: &str) {
    if let Some(expected) = std::env::var_os(EXPECTED) {
        let groups = Groups::of_this_process(Controller::Memory);
        let expected = expected.to_str().unwrap().parse().unwrap();
        assert_eq!(groups.limit(), Some(expected), "{groups:?}");
        let available = groups.available().unwrap();
        assert!((1..=expected).contains(&available), "{available}");
        let own = groups.own().expect("the group of this process");
        assert!(own.directory.join("cgroup.procs").exists(), "{own:?}");
        let is_one = own.directory.join("memory.limit_in_bytes").exists();
        assert_eq!(own.version == Version::One, is_one);
        return;
    }
    let Some(groups) = Nested::new(test, limits) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller cannot be made");
    };
    let directory = tempfile::tempdir().unwrap();
    let entered = format!("echo $$ >\"$OWN/cgroup.procs\" && {script}");
    let output = Command::new("sh")
        .args(["-ec", &entered, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("OWN", groups.own())
        .env("DIR", directory.path())
        .env(
            "KIND",
            match hierarchy() {
                Some((_, "memory.max")) => "cgroup2",
                _ => "cgroup -o memory",
            },
        )
        .env(EXPECTED, expected.to_string())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{out}\n{err}"
    );
}

#[test]
fn the_lowest_limit_of_nested_groups_counts() {
    let name = "the_lowest_limit_of_nested_groups_counts";
    sees(name, [64 * MIB, 128 * MIB], 64 * MIB, "exec \"$@\"");
    sees(name, [128 * MIB, 64 * MIB], 64 * MIB, "exec \"$@\"");
}

/// The mount point has a blank and a backslash, which mountinfo escapes. The usual one is hidden.
#[test]
fn groups_that_are_mounted_elsewhere_are_found() {
    let script = r#"exec unshare --mount sh -ec '
        mkdir "$DIR/a b\\c" && mount -t $KIND none "$DIR/a b\\c"
        mount -t tmpfs none /sys/fs/cgroup
        exec "$@"' sh "$@""#;
    let name = "groups_that_are_mounted_elsewhere_are_found";
    sees(name, [64 * MIB, 128 * MIB], 64 * MIB, script);
}

/// In a namespace the group is the root of what is mounted there. The groups above are not visible.
#[test]
fn the_own_limit_is_found_in_a_cgroup_namespace() {
    let script = r#"exec unshare --mount --cgroup sh -ec '
        mount -t tmpfs none /sys/fs/cgroup
        mkdir /sys/fs/cgroup/memory && mount -t $KIND none /sys/fs/cgroup/memory
        exec "$@"' sh "$@""#;
    let name = "the_own_limit_is_found_in_a_cgroup_namespace";
    sees(name, [128 * MIB, 64 * MIB], 64 * MIB, script);
}

/// A bind mount of another group is found first, or last.
#[test]
fn a_mount_of_another_group_is_not_taken_for_the_own_one() {
    let script = r#"exec unshare --mount sh -ec '
        mkdir "$DIR/other" && mount --bind "$OWN" "$DIR/other"
        echo $$ >"$OWN/../cgroup.procs"
        exec "$@"' sh "$@""#;
    let name = "a_mount_of_another_group_is_not_taken_for_the_own_one";
    if hierarchy().is_some_and(|(_, file)| file == "memory.max") {
        // A group of version 2 with groups below has no processes.
        return;
    }
    sees(name, [128 * MIB, 64 * MIB], 128 * MIB, script);
}

/// The directory of a hierarchy that has the pids controller for the groups below it.
fn of_tasks() -> Option<&'static Path> {
    let (one, two) = (
        Path::new("/sys/fs/cgroup/pids"),
        Path::new("/sys/fs/cgroup"),
    );
    let controllers = std::fs::read_to_string(two.join("cgroup.subtree_control"));
    let has_pids = controllers.is_ok_and(|it| it.split_whitespace().any(|it| it == "pids"));
    let found = [(one, one.exists()), (two, has_pids)];
    found.into_iter().find(|it| it.1).map(|it| it.0)
}

#[test]
fn the_tasks_that_a_group_allows_are_left() {
    const MOST: u64 = 60;
    if std::env::var_os(EXPECTED).is_some() {
        let left = tasks_left().unwrap();
        // This test, and the thread that runs it.
        assert!((MOST - 10..=MOST - 2).contains(&left), "{left}");
        return;
    }
    let name = format!("nowait-residency-tasks-{}", std::process::id());
    let group = of_tasks().map(|root| Nested(root.join(name)));
    let made = |it: &Nested| {
        std::fs::create_dir(&it.0).is_ok() && std::fs::write(it.0.join("pids.max"), "60").is_ok()
    };
    let Some(group) = group.filter(made) else {
        return slowdisk::skip_or_fail("a cgroup with a pids controller cannot be made");
    };
    let output = Command::new("sh")
        .args(["-ec", "echo $$ >\"$OWN/cgroup.procs\" && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["the_tasks_that_a_group_allows_are_left", "--exact"])
        .env("OWN", &group.0)
        .env(EXPECTED, "60")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{out}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
