//! A process that is killed leaves no mount, no loop device and no directory behind, even with
//! requests stalled and threads in uninterruptible waits for them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, evict, require};

/// Tells the child what to make.
const CHILD: &str = "SLOWDISK_CRASH_CHILD";
const READY: &str = "ready:";
const PATIENCE: Duration = Duration::from_secs(10);

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

fn killed_leaves_nothing(filesystem: Filesystem) {
    require!(slowdisk::available());
    require!(filesystem.available());
    // Kept when the test fails: removing it would go through what is still mounted below it.
    let dir = tempfile::tempdir().unwrap().keep();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CHILD, filesystem.name())
        .env("TMPDIR", &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let device = wait_until_ready(&mut child);
    assert!(is_mounted_below(&dir));
    assert!(is_attached_below(&dir));

    child.kill().unwrap();
    let killed = Instant::now();
    loop {
        let left = what_is_left(&mut child, &dir);
        if left.is_empty() {
            break;
        }
        assert!(killed.elapsed() < PATIENCE, "{device}: left are {left:?}");
        thread::sleep(Duration::from_millis(20));
    }
    fs::remove_dir(&dir).unwrap();
    println!("{filesystem}: clean {:?} after the kill", killed.elapsed());
}

fn wait_until_ready(child: &mut Child) -> String {
    BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once(READY)?.1.to_owned()))
        .expect("the child says when it is ready")
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

fn direct_read(path: &Path) {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let mut page = Box::new(Page([0; 4096]));
    File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .and_then(|file| file.read_exact_at(&mut page.0, 512 << 10))
        .expect("nobody hears of it");
}
