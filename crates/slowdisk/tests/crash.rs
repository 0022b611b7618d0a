//! A process that is killed leaves no mount, no loop device and no directory behind, even with
//! requests stalled and threads in uninterruptible waits for them. A disk that is dropped or whose process
//! is killed ends its FUSE connection, even if another process would keep it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Lines};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, evict, require, skip_or_fail};
use test_support::limit::LONG;

/// Tells the child what to make.
const CHILD: &str = "SLOWDISK_CRASH_CHILD";
const READY: &str = "ready:";

#[test]
fn killed_with_stalled_requests_on_ext4() {
    killed_leaves_nothing(Filesystem::Ext4);
}

#[test]
fn killed_with_stalled_requests_on_xfs() {
    killed_leaves_nothing(Filesystem::Xfs);
}

#[test]
fn killed_with_stalled_requests_on_btrfs() {
    killed_leaves_nothing(Filesystem::Btrfs);
}

#[test]
fn killed_with_stalled_requests_on_an_overlay() {
    killed_leaves_nothing(Filesystem::Overlay);
}

/// The directory and the started program of a test that kills it. The directory is kept when the test fails:
/// removing it would go through what is still mounted below it.
fn start(child: &str, role: &str) -> (PathBuf, Child, Reports) {
    let dir = tempfile::tempdir().unwrap().keep();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", child, "--ignored", "--nocapture"])
        .env(CHILD, role)
        .env("TMPDIR", &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let reports = Reports(BufReader::new(child.stdout.take().unwrap()).lines());
    (dir, child, reports)
}

/// The reports of a started program.
struct Reports(Lines<BufReader<ChildStdout>>);

impl Reports {
    fn next(&mut self) -> String {
        self.0
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once(READY)?.1.to_owned()))
            .expect("a report of the child")
    }
}

fn killed_leaves_nothing(filesystem: Filesystem) {
    require!(slowdisk::available());
    require!(filesystem.available());
    let (dir, mut child, mut reports) = start("child", filesystem.name());
    let device = reports.next();
    assert!(is_mounted_below(&dir));
    assert!(is_attached_below(&dir));

    child.kill().unwrap();
    wait_until_clean(&mut child, &dir, &device);
}

fn wait_until_clean(child: &mut Child, dir: &Path, what: &str) {
    let killed = Instant::now();
    loop {
        let left = what_is_left(child, dir);
        if left.is_empty() {
            break;
        }
        assert!(killed.elapsed() < LONG, "{what}: left are {left:?}");
        thread::sleep(Duration::from_millis(20));
    }
    fs::remove_dir(dir).unwrap();
    println!("{what}: clean {:?} after the kill", killed.elapsed());
}

/// A shell that runs `script` in its own mount namespace, which keeps a mount that is unmounted elsewhere. Its
/// first argument is `path`.
fn elsewhere(script: &str, path: &Path) -> Child {
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn dropped_while_another_mount_namespace_has_the_mount() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().build().unwrap();
    let mut holder = elsewhere("exec 3<$0; echo; read -r _; exec cat <&3", disk.path());
    let mut opened = String::new();
    let mut said = BufReader::new(holder.stdout.take().unwrap());
    assert_eq!(said.read_line(&mut opened).unwrap(), 1);

    let (done, dropped) = mpsc::channel();
    thread::spawn(move || {
        drop(disk);
        let _ = done.send(());
    });
    let dropped = dropped.recv_timeout(LONG);
    if dropped.is_err() {
        holder.kill().unwrap();
    }
    drop(holder.stdin.take());
    assert!(
        !holder.wait().unwrap().success(),
        "a disk that ended was read"
    );
    dropped.expect("the disk is dropped");
}

#[test]
fn killed_while_another_process_keeps_the_connection() {
    require!(slowdisk::available());
    let (dir, mut child, mut reports) = start("child_without_filesystem", "");
    let path = PathBuf::from(reports.next());
    // The connection lives as long as this copy of the server's descriptor.
    let _kept = match fuse_descriptor(child.id()) {
        Ok(descriptor) => descriptor,
        Err(error) => {
            child.kill().unwrap();
            return skip_or_fail(format!("pidfd_getfd(2) of a thread (Linux 6.9): {error}"));
        }
    };
    let mut reader = elsewhere("exec cat $0", &path);
    assert_eq!(reports.next(), "stalled");

    child.kill().unwrap();
    wait_until_clean(&mut child, &dir, "connection");
    let killed = Instant::now();
    while reader.try_wait().unwrap().is_none() {
        assert!(killed.elapsed() < LONG, "the reader hangs");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A copy of the descriptor of /dev/fuse in a disk's process.
fn fuse_descriptor(process: u32) -> io::Result<OwnedFd> {
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?;
        if fs::read_to_string(task.path().join("comm"))?.trim() != "slowdisk" {
            continue;
        }
        let thread = task.file_name().into_string().unwrap().parse().unwrap();
        // PIDFD_THREAD: the thread has its own descriptor table.
        let pidfd = pidfd_open(
            Pid::from_raw(thread).unwrap(),
            PidfdFlags::from_bits_retain(libc::O_EXCL as u32),
        )?;
        for descriptor in fs::read_dir(task.path().join("fd"))? {
            let descriptor = descriptor?;
            if fs::read_link(descriptor.path())? == Path::new("/dev/fuse") {
                let number = descriptor.file_name().into_string().unwrap();
                let number = number.parse().unwrap();
                return Ok(pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty())?);
            }
        }
    }
    Err(io::Error::other("the process has no disk"))
}

fn what_is_left(child: &mut Child, dir: &Path) -> Vec<&'static str> {
    let mut left = Vec::new();
    if child.try_wait().unwrap().is_none() {
        left.push("process");
    }
    if is_mounted_below(dir) {
        left.push("mount");
    }
    if is_attached_below(dir) {
        left.push("loop device");
    }
    if fs::read_dir(dir).unwrap().next().is_some() {
        left.push("directory");
    }
    left
}

fn is_mounted_below(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(dir.to_str().unwrap())
}

fn is_attached_below(dir: &Path) -> bool {
    fs::read_dir("/sys/block").unwrap().any(|device| {
        let backing = device.unwrap().path().join("loop/backing_file");
        fs::read_to_string(backing).is_ok_and(|path| path.contains(dir.to_str().unwrap()))
    })
}

/// The process that is killed. It does nothing unless the test above started it.
#[test]
#[ignore = "run by the other tests in a process of its own"]
fn child() {
    let Ok(name) = std::env::var(CHILD) else {
        return;
    };
    let disk = SlowDisk::builder().build().unwrap();
    let mount = TestMount::on(&disk, name.parse().unwrap()).unwrap();
    let path = mount.path().join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let file = File::open(&path).unwrap();
    evict(&file).unwrap();
    mount.sync().unwrap();
    disk.inject(Fault::stall(0..disk.size()));

    thread::scope(|scope| {
        // A read that a signal can end, one that none can, and a sync.
        scope.spawn(|| file.read_exact_at(&mut [0; 4096], 0));
        scope.spawn(|| direct_read(&path));
        fs::write(mount.path().join("dirty"), vec![2; 1 << 20]).unwrap();
        scope.spawn(|| mount.sync());
        while disk.stalled() < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        println!("{READY}{}", mount.device().unwrap().path().display());
    });
}

/// Like `child`, with a disk alone.
#[test]
#[ignore = "run by the other tests in a process of its own"]
fn child_without_filesystem() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let disk = SlowDisk::builder().build().unwrap();
    disk.inject(Fault::stall(0..disk.size()));
    println!("{READY}{}", disk.path().display());
    while disk.stalled() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    println!("{READY}stalled");
    loop {
        thread::park();
    }
}

fn direct_read(path: &Path) {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let mut page = Box::new(Page([0; 4096]));
    File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .and_then(|file| file.read_exact_at(&mut page.0, 512 << 10))
        .expect("the process is killed before");
}
