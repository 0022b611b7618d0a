//! Tests of `nowait keep`: the resident files, what it notices, what it gives up, and its reports.

#[path = "common/program.rs"]
mod program;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use program::{
    Bound, Group, MIB, PAGE, Said, as_nobody, cached, cached_bytes, cold, directory, evict, fifo,
    limited_to, nowait, open_directory, run, wait_until, word,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use tempfile::TempDir;
use test_support::limit::LONG;
use test_support::repeat::unless_reclaimed;

/// The beginning of the line that says that the program is ready.
const READY: &str = "nowait: ready: ";

/// A running `nowait keep`, and the messages to its service manager.
struct Keep {
    child: Child,
    manager: UnixDatagram,
    errors: File,
    /// The socket and the messages are in it.
    _directory: TempDir,
}

impl Keep {
    /// Starts the program, and waits until it is ready. No sweep comes to the help of what is tested.
    fn start(words: &[&str]) -> Keep {
        Keep::ready(nowait([&["keep", "--interval", "36000"], words].concat()))
    }

    fn ready(command: Command) -> Keep {
        let keep = Keep::spawn(command);
        keep.hears("READY=1");
        keep
    }

    fn spawn(mut command: Command) -> Keep {
        let directory = open_directory();
        let socket = directory.path().join("notify");
        let manager = UnixDatagram::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
        manager.set_read_timeout(Some(LONG)).unwrap();
        let errors = directory.path().join("errors");
        let written = File::create(&errors).unwrap();
        command
            .env("NOTIFY_SOCKET", &socket)
            .stdout(Stdio::null())
            .stderr(written);
        Keep {
            child: command.spawn().unwrap(),
            manager,
            errors: File::open(errors).unwrap(),
            _directory: directory,
        }
    }

    /// Waits for a message to the service manager that contains this text.
    fn hears(&self, text: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let heard = self.manager.recv(&mut bytes);
            let heard = heard.unwrap_or_else(|e| panic!("{text}: {e}: {}", self.said()));
            let heard = String::from_utf8_lossy(&bytes[..heard]).into_owned();
            if heard.contains(text) {
                return heard;
            }
        }
    }

    /// The messages on standard error, without that of being ready.
    fn said(&self) -> String {
        let text = self.errors();
        let lines = text.split_inclusive('\n');
        lines.filter(|line| !line.starts_with(READY)).collect()
    }

    fn errors(&self) -> String {
        let mut bytes = vec![0; self.errors.metadata().unwrap().len() as usize];
        self.errors.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// SIGHUP, and the wait until all files have been looked at again.
    fn reload(&self) {
        self.signal(Signal::HUP);
        self.hears("RELOADING=1");
        self.hears("READY=1");
    }

    /// The status of this process in `--status --json`.
    fn status(&self) -> Value {
        let found = self.status_or_none();
        found.unwrap_or_else(|| panic!("no status: {}", self.said()))
    }

    fn status_or_none(&self) -> Option<Value> {
        let said = run(&mut nowait(["keep", "--status", "--json"]));
        let report = said.json();
        let all = report["instances"].as_array().unwrap();
        let of_this = |one: &&Value| one["pid"] == self.child.id();
        all.iter().find(of_this).cloned()
    }

    /// The locked memory of the process in bytes.
    fn locked(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmLck:"))
            .unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// The end by SIGTERM.
    fn end(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
        self.said()
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until this much of a file is cached.
fn wait_cached(path: &Path, bytes: u64) {
    let what = format!("{bytes} cached bytes of {}", path.display());
    wait_until(&what, || path.exists() && cached_bytes(path) == bytes);
}

#[test]
fn the_first_paths_are_resident_within_the_budget() {
    let dir = directory();
    let files = ["z", "tree/a", "tree/b", "c"].map(|name| dir.path().join(name));
    fs::create_dir(dir.path().join("tree")).unwrap();
    for file in &files {
        cold(file.clone(), 4 * MIB);
    }
    let tree = dir.path().join("tree");
    let paths = [&files[0], &tree, &files[3]].map(|path| word(path));
    let keep = Keep::start(&[&["--budget", "10M"], &paths[..]].concat());
    for (file, bytes) in files.iter().zip([4 * MIB, 4 * MIB, 2 * MIB]) {
        wait_cached(file, bytes);
    }
    assert_eq!(cached_bytes(&files[3]), 0);
    wait_until("the status", || {
        keep.status()["total"]["resident_estimated"] == 10 * MIB
    });
    let status = keep.status();
    assert_eq!(status["budget"], 10 * MIB);
    assert_eq!(status["budget_given"], "10M");
    assert_eq!(status["mode"], "touch");
    let of = |at: usize, key: &str| status["paths"][at][key].clone();
    for (at, size, budget) in [(0, 4, 4), (1, 8, 6), (2, 4, 0)] {
        assert_eq!(of(at, "path"), paths[at]);
        assert_eq!(of(at, "size"), size * MIB, "{status}");
        assert_eq!(of(at, "budget"), budget * MIB, "{status}");
        assert_eq!(of(at, "resident_estimated"), budget * MIB, "{status}");
        assert_eq!(of(at, "read"), budget * MIB, "{status}");
        assert_eq!(of(at, "read_again_estimated"), 0);
    }
    // A more important file that grows takes the place of the others.
    let mut first = File::options().append(true).open(&files[0]).unwrap();
    first.write_all(&vec![1; 3 * MIB as usize]).unwrap();
    drop(first);
    wait_until("the new plan", || {
        keep.status()["paths"][1]["budget"] == 3 * MIB
    });
    wait_cached(&files[2], 0);
    assert_eq!(keep.end(), "");
}

#[test]
fn changes_are_followed() {
    let dir = directory();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    let old = cold(tree.join("file"), MIB);
    let keep = Keep::start(&[word(&tree)]);
    wait_cached(&old, MIB);
    // Replaced.
    fs::rename(cold(dir.path().join("new"), 2 * MIB), &old).unwrap();
    wait_cached(&old, 2 * MIB);
    // New, also in a new directory, and in one that is moved here.
    fs::rename(cold(dir.path().join("new"), MIB), tree.join("below/new")).unwrap();
    wait_cached(&tree.join("below/new"), MIB);
    fs::create_dir_all(dir.path().join("other/deep")).unwrap();
    cold(dir.path().join("other/deep/file"), MIB);
    fs::rename(dir.path().join("other"), tree.join("other")).unwrap();
    wait_cached(&tree.join("other/deep/file"), MIB);
    fs::rename(
        cold(dir.path().join("new"), MIB),
        tree.join("other/deep/new"),
    )
    .unwrap();
    wait_cached(&tree.join("other/deep/new"), MIB);
    // Extended.
    let grown = tree.join("below/new");
    let file = File::options().append(true).open(&grown).unwrap();
    (&file).write_all(&[1; 5000]).unwrap();
    drop(file);
    wait_until("the size", || {
        keep.status()["total"]["size"] == 5 * MIB + 5000
    });
    // Removed, and moved away with its directory.
    fs::remove_file(&grown).unwrap();
    fs::rename(tree.join("other"), dir.path().join("gone")).unwrap();
    wait_until("the rest", || keep.status()["total"]["files"] == 1);
    // The tree itself is replaced.
    fs::rename(&tree, dir.path().join("old")).unwrap();
    wait_until("nothing", || keep.status()["total"]["files"] == 0);
    fs::create_dir(dir.path().join("next")).unwrap();
    cold(dir.path().join("next/file"), MIB);
    fs::rename(dir.path().join("next"), &tree).unwrap();
    wait_cached(&tree.join("file"), MIB);
    let said = keep.end();
    assert_eq!(
        said,
        format!(
            "nowait: {}: No such file or directory (os error 2)\n",
            tree.display()
        )
    );
}

#[test]
fn a_file_that_is_replaced_while_it_is_read_is_followed() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let fill = |path: &Path| {
        fs::create_dir(path.join("tree")).unwrap();
        cold(path.join("tree/file"), MIB);
        cold(path.join("new"), 2 * MIB);
    };
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let tree = mount.path().join("tree");
    let path = tree.join("file");
    for range in slowdisk::extents(&File::open(&path).unwrap()).unwrap() {
        disk.inject(Fault::stall(range).reads_only());
    }
    let keep = Keep::start(&[word(&tree)]);
    wait_until("a read reaches the device", || disk.stalled() > 0);
    fs::rename(mount.path().join("new"), &path).unwrap();
    disk.release_all();
    wait_cached(&path, 2 * MIB);
    assert_eq!(keep.end(), "");
}

#[test]
fn a_path_is_followed_through_symbolic_links() {
    let dir = directory();
    for version in ["v1", "v2"] {
        fs::create_dir(dir.path().join(version)).unwrap();
        cold(dir.path().join(version).join("file"), MIB);
    }
    symlink("v1", dir.path().join("current")).unwrap();
    let given = dir.path().join("current/file");
    let keep = Keep::start(&["--lock", word(&given)]);
    wait_until("the lock", || keep.locked() == MIB);
    assert_eq!(cached_bytes(&dir.path().join("v2/file")), 0);
    symlink("v2", dir.path().join("next")).unwrap();
    fs::rename(dir.path().join("next"), dir.path().join("current")).unwrap();
    wait_cached(&dir.path().join("v2/file"), MIB);
    wait_until("the lock", || keep.locked() == MIB);
    evict(&dir.path().join("v1/file"));
    assert_eq!(cached_bytes(&dir.path().join("v1/file")), 0);
    assert_eq!(keep.end(), "");
}

#[test]
fn a_replaced_file_gives_its_disk_space_back() {
    let mount = mounted!(Filesystem::Ext4);
    let path = cold(mount.path().join("file"), 8 * MIB);
    let new = cold(mount.path().join("new"), MIB);
    mount.sync().unwrap();
    let keep = Keep::start(&["--lock", word(&path)]);
    wait_until("the lock", || keep.locked() == 8 * MIB);
    let used = || {
        let stat = rustix::fs::statvfs(mount.path()).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    };
    let before = used();
    fs::rename(&new, &path).unwrap();
    wait_until("the lock of the new file", || keep.locked() == MIB);
    wait_until("free space", || used() + 8 * MIB <= before);
    fs::remove_file(&path).unwrap();
    wait_until("no lock", || keep.locked() == 0);
    keep.end();
}

#[test]
fn locked_files_stay_and_nothing_stays_locked_after_sigkill() {
    let dir = directory();
    let path = cold(dir.path().join("file"), 4 * MIB + 10);
    let mut keep = Keep::start(&["--lock", word(&path)]);
    wait_until("the lock", || keep.locked() == 4 * MIB + PAGE);
    evict(&path);
    assert_eq!(cached_bytes(&path), 4 * MIB + 10);
    wait_until("the status", || {
        keep.status()["total"]["locked"] == 4 * MIB + 10
    });
    assert_eq!(keep.status()["mode"], "lock");
    // The bytes of a file that is written anew are locked, too.
    fs::write(&path, vec![5; 2 * MIB as usize]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    wait_until("the new lock", || keep.locked() == 2 * MIB);
    evict(&path);
    assert_eq!(cached_bytes(&path), 2 * MIB);
    keep.child.kill().unwrap();
    keep.child.wait().unwrap();
    evict(&path);
    assert_eq!(cached_bytes(&path), 0);
    // Its status is not shown, and the next process removes it.
    assert!(keep.status_or_none().is_none());
    let left = format!("/run/nowait/keep/{}-", keep.child.id());
    let is_left = || {
        let files = fs::read_dir("/run/nowait/keep").unwrap();
        let paths = files.map(|file| file.unwrap().path());
        paths.into_iter().any(|path| word(&path).starts_with(&left))
    };
    // Processes of other tests may have removed it already.
    let next = Keep::start(&[word(&path)]);
    assert!(!is_left());
    next.end();
}

#[test]
fn what_cannot_be_locked_is_touched_and_named() {
    let dir = open_directory();
    for name in ["1", "2"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        for file in ["a", "b"] {
            let path = cold(dir.path().join(name).join(file), MIB);
            std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        }
    }
    let paths = ["1", "2"].map(|name| dir.path().join(name));
    let words = ["keep", "--lock", word(&paths[0]), word(&paths[1])];
    let (mut command, _copy) = as_nobody(words);
    let runtime = open_directory();
    std::os::unix::fs::chown(runtime.path(), Some(65534), None).unwrap();
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let mut limited = limit_locked(&mut command, 3 * MIB);
    limited.env("XDG_RUNTIME_DIR", runtime.path());
    let keep = Keep::ready(limited);
    wait_until("the locks", || keep.locked() == 3 * MIB);
    wait_cached(&paths[1].join("b"), MIB);
    let said = keep.end();
    let why = format!(
        "nowait: {}: 1M of 1 file are touched, not locked: RLIMIT_MEMLOCK\n",
        paths[1].display()
    );
    assert_eq!(said, why);
}

/// The same command as the same user, with a limit of locked memory. prlimit(1) starts as root.
fn limit_locked(command: &mut Command, most: u64) -> Command {
    let mut inner = Command::new("setpriv");
    inner
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(command.get_program())
        .args(command.get_args());
    limited_to(&mut inner, "memlock", most);
    inner.env("LC_ALL", "C.UTF-8").current_dir("/");
    inner
}

#[test]
fn more_files_than_mappings_do_not_use_all_mappings() {
    const FILES: usize = 33_000;
    let mount = mounted!(Filesystem::Tmpfs);
    let tree = mount.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(number.to_string()), "x").unwrap();
    }
    let large = tree.join("zzz");
    fs::write(&large, vec![1; MIB as usize]).unwrap();
    let keep = Keep::start(&["--lock", word(&tree)]);
    let most: u64 = fs::read_to_string("/proc/sys/vm/max_map_count")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    if most != 65_530 {
        return slowdisk::skip_or_fail("the default of vm.max_map_count");
    }
    // The large file, and as many of the small ones as there are mappings for.
    wait_until("the locks", || keep.locked() == MIB + (most / 2 - 1) * PAGE);
    let why = format!("nowait: {}: ", tree.display());
    let said = keep.end();
    assert!(
        said.starts_with(&why) && said.ends_with("touched, not locked: vm.max_map_count\n"),
        "{said}"
    );
}

#[test]
fn a_sweep_reads_again_what_was_evicted() {
    unless_reclaimed(|| {
        let dir = directory();
        let path = cold(dir.path().join("file"), 2 * MIB);
        let keep = Keep::start(&[word(dir.path())]);
        wait_cached(&path, 2 * MIB);
        wait_until("the status", || keep.status()["total"]["read"] == 2 * MIB);
        evict(&path);
        keep.reload();
        wait_cached(&path, 2 * MIB);
        // A page that was evicted while others of the file were read again is read a third time. The status may have one
        // count without the other for a moment.
        let counts = || {
            let total = &keep.status()["total"];
            ["read", "read_again_estimated"].map(|name| total[name].as_u64().unwrap())
        };
        let (mut last, mut same) = (counts(), 0);
        wait_until("counts that stay", || {
            let now = counts();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same >= 20 && now[1] >= 2 * MIB
        });
        assert_eq!(last[0], 2 * MIB + last[1]);
        assert_eq!(keep.end(), "");
    });
}

#[test]
fn lost_events_are_made_up_for_by_a_sweep() {
    let dir = directory();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let keep = Keep::start(&[word(&tree)]);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    keep.signal(Signal::STOP);
    let (a, b) = (tree.join("a"), tree.join("b"));
    fs::write(&a, "x").unwrap();
    // An event that equals the one before is dropped, so there are two names.
    for _ in 0..limit / 2 + 1 {
        fs::rename(&a, &b).unwrap();
        fs::rename(&b, &a).unwrap();
    }
    let path = cold(dir.path().join("new"), MIB);
    fs::rename(path, tree.join("new")).unwrap();
    keep.signal(Signal::CONT);
    wait_cached(&tree.join("new"), MIB);
    assert_eq!(keep.end(), "");
}

#[test]
fn files_of_others_are_read_in_each_sweep() {
    let dir = open_directory();
    let path = cold(dir.path().join("file"), MIB);
    let (mut command, _copy) = as_nobody(["keep", word(&path)]);
    let runtime = open_directory();
    std::os::unix::fs::chown(runtime.path(), Some(65534), None).unwrap();
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let keep = Keep::ready(command);
    wait_cached(&path, MIB);
    evict(&path);
    keep.reload();
    wait_cached(&path, MIB);
    let (mut command, _copy) = as_nobody(["keep", "--status", "--json"]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    wait_until("the status", || {
        let said = run(&mut command);
        said.code == Some(0) && said.json()["instances"][0]["total"]["unknown_size"] == MIB
    });
    let status = run(&mut command).json();
    let path_status = &status["instances"][0]["paths"][0];
    assert!(path_status["unknown"].is_string(), "{status}");
    assert_eq!(path_status["resident_estimated"], 0);
    let said = keep.end();
    let begin = format!(
        "nowait: {}: the residency of 1 file is unknown (",
        path.display()
    );
    assert!(
        said.starts_with(&begin) && said.contains("all is read in each sweep"),
        "{said}"
    );
}

#[test]
fn sighup_reads_the_list_again() {
    let dir = directory();
    let [a, b] = ["a", "b"].map(|name| cold(dir.path().join(name), MIB));
    let list = dir.path().join("list");
    let write = |paths: &[&Path]| {
        let mut text = b"# comment\n\n".to_vec();
        for path in paths {
            text.extend_from_slice(path.as_os_str().as_encoded_bytes());
            text.push(b'\n');
        }
        fs::write(&list, text).unwrap();
    };
    write(&[&a]);
    let keep = Keep::start(&["--lock", "--paths", word(&list)]);
    wait_until("the lock", || keep.locked() == MIB);
    assert_eq!(cached_bytes(&b), 0);
    write(&[&b, &a, &b]);
    keep.reload();
    wait_until("both locks", || keep.locked() == 2 * MIB);
    write(&[&b]);
    keep.reload();
    wait_until("one lock", || keep.locked() == MIB);
    evict(&a);
    assert_eq!(cached_bytes(&a), 0);
    // Changes are still noticed.
    fs::rename(cold(dir.path().join("new"), 2 * MIB), &b).unwrap();
    wait_until("the lock of the new file", || keep.locked() == 2 * MIB);
    // A list without paths changes nothing, and neither does one that has vanished.
    write(&[]);
    keep.reload();
    assert_eq!(keep.locked(), 2 * MIB);
    fs::remove_file(&list).unwrap();
    keep.reload();
    assert_eq!(keep.locked(), 2 * MIB);
    let name = list.display();
    let why = format!(
        "nowait: {name}: the list has no paths; the paths stay as they were\n\
         nowait: {name}: cannot read the list: No such file or directory (os error 2); the paths stay \
         as they were\n"
    );
    assert_eq!(keep.end(), why);
}

#[test]
fn the_service_manager_hears_of_all_states() {
    let dir = directory();
    let path = cold(dir.path().join("file"), MIB);
    let mut command = nowait(["keep", word(&path)]);
    command.env("WATCHDOG_USEC", "200000");
    let mut keep = Keep::ready(command);
    assert!(keep.hears("STATUS=").contains("1M"));
    for _ in 0..3 {
        keep.hears("WATCHDOG=1");
    }
    keep.signal(Signal::HUP);
    assert!(keep.hears("RELOADING=1").contains("MONOTONIC_USEC="));
    keep.hears("READY=1");
    keep.signal(Signal::TERM);
    keep.hears("STOPPING=1");
    assert!(keep.child.wait().unwrap().success());
}

#[test]
fn a_service_manager_that_does_not_listen_is_not_waited_for() {
    let dir = directory();
    let path = cold(dir.path().join("file"), MIB);
    let mut command = nowait(["keep", "--lock", word(&path)]);
    // The queue of the socket is soon full.
    command.env("WATCHDOG_USEC", "200");
    let keep = Keep::spawn(command);
    wait_until("the lock", || keep.locked() == MIB);
    let fills = UnixDatagram::unbound().unwrap();
    fills.set_nonblocking(true).unwrap();
    let socket = keep._directory.path().join("notify");
    wait_until("a full queue", || fills.send_to(b"x", &socket).is_err());
    fs::rename(cold(dir.path().join("new"), 2 * MIB), &path).unwrap();
    wait_until("the lock of the new file", || keep.locked() == 2 * MIB);
    assert_eq!(keep.end(), "");
}

#[test]
fn a_device_that_hangs_is_not_waited_for() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let fill = |path: &Path| {
        fs::create_dir(path.join("tree")).unwrap();
        cold(path.join("tree/file"), MIB);
    };
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let tree = mount.path().join("tree");
    let extents = slowdisk::extents(&File::open(tree.join("file")).unwrap()).unwrap();
    let file = extents[0].clone();
    let directory = mount.directory_block(&tree, 0).unwrap();
    // While the file is read, and before, while the directory is listed.
    for place in [file, directory] {
        mount.remount().unwrap();
        disk.inject(Fault::stall(place).reads_only());
        let mut command = nowait(["keep", word(&tree)]);
        command.env("WATCHDOG_USEC", "200000");
        let mut keep = Keep::spawn(command);
        wait_until("a read reaches the device", || disk.stalled() > 0);
        for _ in 0..3 {
            keep.hears("WATCHDOG=1");
        }
        keep.signal(Signal::TERM);
        keep.hears("STOPPING=1");
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", keep.child.id())).unwrap();
            stat.rsplit(") ").next().unwrap().chars().next()
        };
        // The kernel may keep the thread that waits for the device.
        wait_until("the end", || state() == Some('Z'));
        assert!(disk.stalled() > 0);
        disk.release_all();
        assert!(keep.child.wait().unwrap().success());
        wait_until("the filesystem is not in use", || mount.remount().is_ok());
    }
}

#[test]
fn a_filesystem_that_is_mounted_again_is_kept_again() {
    let mount = mounted!(Filesystem::Ext4);
    let tree = mount.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let paths = [tree.join("file"), mount.path().join("given")];
    paths.iter().for_each(|path| _ = cold(path.clone(), MIB));
    mount.sync().unwrap();
    let keep = Keep::start(&[word(&tree), word(&paths[1])]);
    for round in 0..3 {
        paths.iter().for_each(|path| wait_cached(path, MIB));
        // Nothing of it stays open.
        wait_until("the filesystem is not in use", || mount.remount().is_ok());
        paths
            .iter()
            .for_each(|path| assert_eq!(cached_bytes(path), 0));
        keep.reload();
        paths.iter().for_each(|path| wait_cached(path, MIB));
        wait_until("the status", || {
            keep.status()["total"]["resident_estimated"] == (2 + round) * MIB
        });
        // The directories are watched again.
        // A file that is made here could be read before it is evicted.
        let new = tree.join(format!("new-{round}"));
        fs::rename(cold(mount.path().join("other"), MIB), &new).unwrap();
        wait_cached(&new, MIB);
        fs::rename(cold(mount.path().join("other"), MIB), &paths[1]).unwrap();
        wait_cached(&paths[1], MIB);
        mount.sync().unwrap();
    }
    keep.end();
}

#[test]
fn the_unit_is_valid() {
    let file = "../../contrib/systemd/nowait-keep@.service";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let verify = Command::new("systemd-analyze").arg("--version").output();
    if verify.is_err() {
        return slowdisk::skip_or_fail("systemd-analyze");
    }
    let dir = directory();
    let unit = dir.path().join("nowait-keep@.service");
    let program = env!("CARGO_BIN_EXE_nowait");
    fs::write(&unit, text.replace("/usr/bin/nowait", program)).unwrap();
    let mut verify = Command::new("systemd-analyze");
    run(verify.args(["verify", "--man=no"]).arg(&unit)).done();
}

#[test]
fn numbers_for_prometheus_are_written_and_removed() {
    let dir = directory();
    let path = cold(dir.path().join("a \"file\""), MIB);
    let metrics = dir.path().join("web.prom");
    let keep = Keep::start(&["--prometheus", word(&metrics), word(&path)]);
    let label = word(&path).replace('"', "\\\"");
    let line = format!(
        "nowait_keep_resident_estimated_bytes{{keep=\"web\",path=\"{label}\",path_hex=\"\"}} {MIB}\n"
    );
    wait_until("the metrics", || {
        fs::read_to_string(&metrics).is_ok_and(|text| text.contains(&line))
    });
    let text = fs::read_to_string(&metrics).unwrap();
    for name in ["size", "budget", "locked", "unknown"] {
        assert!(
            text.contains(&format!("nowait_keep_{name}_bytes{{")),
            "{text}"
        );
    }
    assert!(
        text.contains("nowait_keep_read_again_estimated_bytes_total{"),
        "{text}"
    );
    assert_eq!(fs::metadata(&metrics).unwrap().mode() & 0o777, 0o644);
    assert_eq!(keep.end(), "");
    assert!(!metrics.exists());
}

#[test]
fn a_file_that_keep_has_not_written_is_neither_replaced_nor_removed() {
    let dir = directory();
    let path = cold(dir.path().join("file"), MIB);
    let metrics = dir.path().join("a.prom");
    let refused = |why: &str| {
        for kept in [word(&path), "/nonexistent"] {
            let said = keep(&["--prometheus", word(&metrics), kept]);
            assert_eq!(said.code, Some(2), "{said:?}");
            let name = word(&metrics);
            let line = format!("nowait: {name} {why}; remove it, or name another file\n");
            assert_eq!(said.err, line);
        }
    };
    fs::write(&metrics, "notes").unwrap();
    refused("exists, and `nowait keep` has not written it");
    assert_eq!(fs::read(&metrics).unwrap(), b"notes");
    fs::remove_file(&metrics).unwrap();
    symlink("/nonexistent", &metrics).unwrap();
    refused("exists, and is not a regular file");
    fs::remove_file(&metrics).unwrap();

    let mut running = Keep::start(&["--prometheus", word(&metrics), word(&path)]);
    wait_until("the metrics", || metrics.exists());
    refused("belongs to a `nowait keep` that runs");
    assert!(metrics.exists());
    // SIGKILL leaves the file behind, and it stays until the next process writes.
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert_eq!(
        keep(&["--prometheus", word(&metrics), "/nonexistent"]).code,
        Some(1)
    );
    assert!(metrics.exists());
    let next = Keep::start(&["--prometheus", word(&metrics), word(&path)]);
    let inode = fs::metadata(&metrics).unwrap().ino();
    fs::rename(&metrics, dir.path().join("aside")).unwrap();
    fs::write(&metrics, "notes").unwrap();
    let (name, before) = (word(&metrics), next.said());
    assert_eq!((before.as_str(), inode > 0), ("", true));
    cold(dir.path().join("file"), 2 * MIB);
    wait_until("the message", || next.said().contains(name));
    next.end();
    assert_eq!(fs::read(&metrics).unwrap(), b"notes");
    assert_eq!(
        keep(&["--prometheus", "/nonexistent/a.prom", "/nonexistent"]).code,
        Some(1)
    );
}

#[test]
fn a_status_directory_may_have_other_files_and_be_that_of_several_pid_namespaces() {
    let dir = open_directory();
    let path = cold(dir.path().join("file"), MIB);
    let runtime = open_directory();
    fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let as_user = |words: &[&str]| {
        let (mut command, copy) = as_nobody(words);
        command.env("XDG_RUNTIME_DIR", runtime.path());
        (command, copy)
    };
    let status = runtime.path().join("nowait/keep");
    let (command, _copy) = as_user(&["keep", word(&path)]);
    let first = Keep::ready(command);
    let names = || fs::read_dir(&status).unwrap().count();
    assert_eq!(names(), 1);
    fs::write(status.join("notes.json"), "notes").unwrap();
    let (command, _copy) = as_user(&["keep", word(&path)]);
    let mut inner = Command::new("unshare");
    // The process ends with unshare(1). The change of the user has cleared the signal that --kill-child sets.
    inner.args(["--pid", "--fork", "--mount-proc", "setpriv"]);
    inner.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    inner.args(["--pdeathsig", "KILL"]);
    inner.arg(command.get_program()).args(command.get_args());
    inner.env("XDG_RUNTIME_DIR", runtime.path());
    let second = Keep::ready(inner);
    assert_eq!(names(), 3);
    let (mut command, _copy) = as_user(&["keep", "--status", "--json"]);
    let report = run(&mut command).json();
    assert_eq!(report["instances"].as_array().unwrap().len(), 2);
    drop(second);
    first.end();
    assert!(status.join("notes.json").exists());
}

#[test]
fn the_status_is_a_table() {
    let dir = directory();
    let path = cold(dir.path().join("file"), MIB);
    let keep = Keep::start(&[word(&path)]);
    wait_until("the status", || {
        keep.status()["total"]["resident_estimated"] == MIB
    });
    let said = run(&mut nowait(["keep", "--status"])).done();
    let head = "   SIZE RESIDENT~  LOCKED  BUDGET READ AGAIN~ PATH";
    let row = format!(
        "     1M        1M       0      1M           0 {}",
        path.display()
    );
    for line in [head, &row, "~: estimated, as of the last sweep"] {
        assert!(
            said.text().lines().any(|one| one == line),
            "{line}: {said:?}"
        );
    }
    assert!(
        said.text()
            .contains(&format!("process {}, --touch: budget", keep.child.id()))
    );
    keep.end();
}

#[test]
fn holes_are_neither_read_nor_counted() {
    let dir = directory();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 36).unwrap();
    file.write_all_at(&vec![1; MIB as usize], 1 << 35).unwrap();
    file.sync_all().unwrap();
    drop(file);
    evict(&path);
    let after = cold(dir.path().join("zzz"), MIB);
    let keep = Keep::start(&["--budget", "4M", word(dir.path())]);
    wait_cached(&after, MIB);
    // Files are read at the same time: the second may be complete first.
    wait_until("the data", || cached(&path) == [(1 << 35, (1 << 35) + MIB)]);
    wait_until("the status", || {
        keep.status()["total"]["resident_estimated"] == 2 * MIB
    });
    assert_eq!(keep.status()["total"]["size"], 2 * MIB);
    assert_eq!(keep.end(), "");
}

#[test]
fn files_with_holes_are_touched_not_locked() {
    let dir = directory();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![1; MIB as usize], 8 * MIB).unwrap();
    file.sync_all().unwrap();
    drop(file);
    evict(&path);
    let whole = cold(dir.path().join("whole"), MIB);
    let keep = Keep::start(&["--lock", word(dir.path())]);
    wait_until("the lock", || keep.locked() == MIB);
    wait_until("the data", || cached(&path) == [(8 * MIB, 9 * MIB)]);
    evict(&whole);
    assert_eq!(cached_bytes(&whole), MIB);
    let why = format!(
        "nowait: {}: 1M of 1 file are touched, not locked: files with holes\n",
        dir.path().display()
    );
    assert_eq!(keep.end(), why);
}

#[test]
fn a_part_of_a_file_with_holes_is_its_first_data() {
    let dir = directory();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    for at in [1, 3, 5] {
        file.write_all_at(&vec![1; MIB as usize], at * MIB).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    evict(&path);
    // Data behind the planned part does not count.
    program::touch(&path, 5 * MIB..6 * MIB);
    let keep = Keep::start(&["--budget", "2M", word(&path)]);
    let planned = |ranges: &[(u64, u64)]| ranges.starts_with(&[(MIB, 2 * MIB), (3 * MIB, 4 * MIB)]);
    wait_until("the first data", || planned(&cached(&path)));
    assert_eq!(keep.end(), "");
}

#[test]
fn the_budget_is_not_exceeded_while_files_change() {
    let dir = directory();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let files: Vec<PathBuf> = (0..8)
        .map(|number| cold(tree.join(number.to_string()), 4 * MIB))
        .collect();
    let keep = Keep::start(&["--budget", "9M", word(&tree)]);
    let sum = || files.iter().map(|file| cached_bytes(file)).sum::<u64>();
    let fill = |bytes: u64| {
        wait_until("the budget is used", || {
            let sum = sum();
            assert!(sum <= bytes, "{sum}");
            sum == bytes
        });
    };
    fill(9 * MIB);
    for number in [0, 1, 0] {
        fs::rename(cold(dir.path().join("new"), 5 * MIB), &files[number]).unwrap();
        // Its old size is given to others before it is read.
        fill(9 * MIB);
    }
    assert_eq!(keep.end(), "");
}

#[test]
fn a_link_that_takes_the_place_of_a_directory_is_not_followed() {
    let dir = directory();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let secret = cold(outside.join("file"), MIB);
    let file = cold(tree.join("below/file"), MIB);
    let keep = Keep::start(&[word(&tree)]);
    wait_cached(&file, MIB);
    fs::rename(tree.join("below"), dir.path().join("moved")).unwrap();
    symlink(&outside, tree.join("below")).unwrap();
    wait_until("nothing", || keep.status()["total"]["files"] == 0);
    // Changes behind the link raise no event here.
    let new = cold(dir.path().join("new"), MIB);
    fs::rename(&new, outside.join("new")).unwrap();
    let last = cold(dir.path().join("last"), MIB);
    fs::rename(&last, tree.join("last")).unwrap();
    wait_cached(&tree.join("last"), MIB);
    keep.reload();
    wait_until("one file", || keep.status()["total"]["files"] == 1);
    assert_eq!(cached_bytes(&secret), 0);
    assert_eq!(cached_bytes(&outside.join("new")), 0);
    assert_eq!(keep.end(), "");
}

#[test]
fn names_may_have_any_bytes() {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let dir = directory();
    let tree = dir.path().join(std::ffi::OsStr::from_bytes(b"any\n\xff"));
    fs::create_dir(&tree).unwrap();
    let name = std::ffi::OsString::from_vec(b"new\nline \"\xfe".to_vec());
    let file = cold(tree.join(&name), MIB);
    let metrics = dir.path().join("keep.prom");
    let mut command = nowait(["keep", "--prometheus", word(&metrics)]);
    command.arg(&tree);
    let keep = Keep::ready(command);
    wait_cached(&file, MIB);
    fs::rename(cold(dir.path().join("new"), 2 * MIB), &file).unwrap();
    wait_cached(&file, 2 * MIB);
    wait_until("the status", || keep.status()["total"]["size"] == 2 * MIB);
    let hex: String = tree
        .as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let status = keep.status();
    assert_eq!(status["paths"][0]["path_hex"], hex.as_str());
    let label = format!("path_hex=\"{hex}\"}} {}\n", 2 * MIB);
    wait_until("the metrics", || {
        let text = fs::read_to_string(&metrics).unwrap_or_default();
        text.contains(&format!("any\\n\u{fffd}\",{label}"))
    });
    let table = run(&mut nowait(["keep", "--status"])).done();
    let shown = table.text().lines().filter(|line| line.contains("/any"));
    assert!(
        shown.count() >= 1 && !table.text().contains("/any\n"),
        "{table:?}"
    );
    assert_eq!(keep.end(), "");
}

#[test]
fn a_runtime_directory_of_another_user_is_not_used() {
    let dir = open_directory();
    let path = cold(dir.path().join("file"), MIB);
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let runtime = open_directory();
    fs::create_dir_all(runtime.path().join("nowait/keep")).unwrap();
    let (mut command, _copy) = as_nobody(["keep", word(&path)]);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let keep = Keep::ready(command);
    wait_cached(&path, MIB);
    let why =
        "nowait: there will be no status for --status: the directory belongs to another user\n";
    assert_eq!(keep.end(), why);
    let left = fs::read_dir(runtime.path().join("nowait/keep")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn all_keys_of_the_status_are_documented() {
    fn keys(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                found.push(key.clone());
                keys(value, found);
            }),
            Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let dir = directory();
    let path = cold(dir.path().join("file"), MIB);
    let keep = Keep::start(&[word(&path)]);
    let report = run(&mut nowait(["keep", "--status", "--json"]))
        .done()
        .json();
    let mut printed = vec!["path_hex".into()];
    keys(&report, &mut printed);
    printed.sort();
    printed.dedup();
    let help = run(&mut nowait(["keep", "--help"])).done();
    let json = help.text().split("JSON (--status --json)").nth(1).unwrap();
    let words = json
        .split("Later programs")
        .next()
        .unwrap()
        .split('"')
        .skip(1)
        .step_by(2);
    let mut documented: Vec<&str> = words.collect();
    documented.sort_unstable();
    documented.dedup();
    assert_eq!(printed, documented);
    keep.end();
}

#[test]
fn files_with_several_names_count_once() {
    let dir = directory();
    let path = cold(dir.path().join("file"), MIB);
    fs::hard_link(&path, dir.path().join("again")).unwrap();
    let keep = Keep::start(&["--lock", word(dir.path()), word(&path)]);
    wait_until("the lock", || keep.locked() == MIB);
    wait_until("the status", || keep.status()["total"]["locked"] == MIB);
    let status = keep.status();
    for key in ["budget", "size", "resident_estimated"] {
        assert_eq!(status["total"][key], MIB, "{key}");
        assert_eq!(status["paths"][0][key], MIB, "{key}");
        assert_eq!(status["paths"][1][key], 0, "{key}");
    }
    assert_eq!(status["total"]["files"], 1);
    // One name goes, the file stays.
    fs::remove_file(dir.path().join("again")).unwrap();
    // The file is locked again by its other name.
    wait_until("the lock", || {
        evict(&path);
        keep.locked() == MIB && cached_bytes(&path) == MIB
    });
    keep.end();
}

#[test]
fn overlayfs_is_followed() {
    let (overlay, path) = program::overlay_with("file", MIB);
    let keep = Keep::start(&[word(overlay.path())]);
    wait_cached(&path, MIB);
    // A copy-up.
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(&vec![1; MIB as usize]).unwrap();
    drop(file);
    wait_until("the size", || keep.status()["total"]["size"] == 2 * MIB);
    evict(&path);
    keep.reload();
    wait_cached(&path, 2 * MIB);
    assert_eq!(keep.end(), "");
}

fn keep(words: &[&str]) -> Said {
    run(&mut nowait([&["keep"], words].concat()))
}

#[test]
fn wrong_usage_is_refused() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 1);
    for (words, why) in [
        (vec![], "required arguments"),
        (
            vec!["--budget", "0", word(&file)],
            "a budget of 0 keeps nothing",
        ),
        (
            vec!["--budget", "0%", word(&file)],
            "a budget of 0 keeps nothing",
        ),
        (vec!["--budget", "200%", word(&file)], "write 0% to 100%"),
        (vec!["--budget", "much", word(&file)], "is not a size"),
        (
            vec!["--lock", "--touch", word(&file)],
            "cannot be used with",
        ),
        (vec!["--interval", "59", word(&file)], "60"),
        (vec!["--rate", "0", word(&file)], "greater than 0"),
        (vec!["--json", word(&file)], "cannot be used with"),
        (vec!["--json"], "--status"),
        (vec!["--status", word(&file)], "cannot be used with"),
        (vec!["--paths", "list", word(&file)], "cannot be used with"),
    ] {
        let said = keep(&words);
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
        assert!(said.err.contains(why), "{words:?}: {said:?}");
    }
}

#[test]
fn paths_that_cannot_be_kept_are_reported() {
    let dir = directory();
    let missing = dir.path().join("missing");
    let fifo = fifo(dir.path().join("fifo"));
    let good = cold(dir.path().join("good"), MIB);
    let bad = [
        (word(&missing), "No such file or directory (os error 2)"),
        (word(&fifo), "is a FIFO, not a regular file"),
        ("/dev/null", "is a device, not a regular file"),
        (
            "/proc",
            "is on a pseudo filesystem (proc), which has no page cache",
        ),
        (
            "/proc/cmdline",
            "is on a pseudo filesystem (proc), which has no page cache",
        ),
    ];
    for (path, why) in bad {
        let said = keep(&[path]).in_part();
        let lines = format!("nowait: {path}: {why}\nnowait: none of the paths can be kept\n");
        assert_eq!(said.err, lines);
    }
    let mut words: Vec<&str> = bad.iter().map(|(path, _)| *path).collect();
    words.push(word(&good));
    let kept = Keep::start(&words);
    wait_cached(&good, MIB);
    // A path that comes later is found.
    fs::rename(cold(dir.path().join("new"), MIB), &missing).unwrap();
    wait_cached(&missing, MIB);
    let lines: String = bad
        .iter()
        .map(|(path, why)| format!("nowait: {path}: {why}\n"))
        .collect();
    assert_eq!(kept.end(), lines);
}

#[test]
fn pseudo_filesystems_and_links_below_a_path_are_not_entered() {
    let dir = directory();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("proc")).unwrap();
    let point = tree.join("proc");
    let _proc = Bound::new(Path::new("/proc/sys"), &point);
    for number in 0..5000 {
        symlink("/etc/passwd", tree.join(number.to_string())).unwrap();
    }
    fifo(tree.join("fifo"));
    let file = cold(tree.join("file"), MIB);
    let keep = Keep::start(&[word(&tree)]);
    wait_cached(&file, MIB);
    wait_until("the status", || keep.status()["total"]["files"] == 1);
    assert_eq!(keep.end(), "");
}

#[test]
fn wrong_lists_are_reported() {
    let dir = directory();
    let list = |name: &str, text: &[u8]| -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let file = cold(dir.path().join("file"), MIB);
    for (path, why) in [
        (
            dir.path().join("none"),
            "cannot read the list: No such file or directory (os error 2)",
        ),
        (
            dir.path().to_path_buf(),
            "cannot read the list: Is a directory (os error 21)",
        ),
        (list("empty", b""), "the list has no paths"),
        (
            list("comments", b"# nothing\n\n  \n"),
            "the list has no paths",
        ),
        (
            list("large", &vec![b'\n'; 16 << 20 | 1]),
            "the list is larger than 16M",
        ),
    ] {
        let said = keep(&["--paths", word(&path)]).in_part();
        assert_eq!(said.err, format!("nowait: {}: {why}\n", path.display()));
    }
    let mut text = vec![b'x'; 5000];
    text.extend(b"\na\0b\n");
    text.extend(word(&file).as_bytes());
    let mixed = list("mixed", &text);
    let kept = Keep::start(&["--paths", word(&mixed)]);
    wait_cached(&file, MIB);
    let name = mixed.display();
    let lines = format!(
        "nowait: {name}: line 1 is longer than any path; it is skipped\n\
         nowait: {name}: line 2 has a NUL byte; it is skipped\n"
    );
    assert_eq!(kept.end(), lines);
}

#[test]
fn a_group_of_little_memory_is_not_filled() {
    let Some(group) = Group::new(128 * MIB) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller");
    };
    let dir = directory();
    let path = cold(dir.path().join("file"), 200 * MIB);
    for mode in ["--touch", "--lock"] {
        evict(&path);
        let mut command = nowait(["keep", mode, "--budget", "100%", word(&path)]);
        group.around(&mut command);
        let keep = Keep::ready(command);
        let planned = || keep.status()["total"]["budget"].as_u64().unwrap();
        wait_until("the file", || {
            let status = keep.status();
            let there = match mode {
                "--lock" => status["total"]["locked"].as_u64(),
                _ => status["total"]["resident_estimated"].as_u64(),
            };
            there.unwrap() > 32 * MIB && there.unwrap() >= planned() / 2
        });
        assert!(planned() < 128 * MIB / 8 * 7, "{mode}");
        assert!(keep.locked() < 128 * MIB / 8 * 7, "{mode}");
        // It was not killed by the kernel.
        keep.end();
    }
}

#[test]
fn a_line_says_that_it_is_ready_and_ready_waits_for_that() {
    let dir = open_directory();
    let file = dir.path().join("file");
    fs::write(&file, vec![1; MIB as usize]).unwrap();
    let keep = Keep::start(&[word(&file)]);
    wait_until("the line", || keep.errors().starts_with(READY));
    assert!(keep.errors().contains(" of 1M resident in 1 file"));
    run(&mut nowait(["keep", "--ready"])).done();
}
