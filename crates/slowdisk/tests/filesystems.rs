//! Each filesystem mounts, gives bytes back after the cache is emptied, and leaves nothing behind.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::CWD;
use rustix::io::Errno;
use slowdisk::{
    Filesystem, Linkless, LinklessTree, Log, LoopDevice, ServedTree, SlowDisk, TestMount, evict,
    require,
};

fn round_trip(root: &Path) {
    let path = root.join("file");
    let bytes: Vec<u8> = (0..1 << 20).map(|n: u32| (n / 7) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    evict(&File::open(&path).unwrap()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

fn on_an_image(filesystem: Filesystem) {
    require!(filesystem.available());
    let mount = TestMount::new(filesystem).unwrap();
    let root = mount.path().to_owned();
    round_trip(&root);
    drop(mount);
    assert!(!root.exists());
}

fn on_a_slow_disk(filesystem: Filesystem) {
    require!(slowdisk::available());
    require!(filesystem.available());
    let disk = SlowDisk::builder().build().unwrap();
    let mount = TestMount::on(&disk, filesystem).unwrap();
    assert!(disk.log().is_empty());
    round_trip(mount.path());
    assert!(disk.counters().bytes_read > 1 << 20);
    let device = mount.device().unwrap();
    device.set_read_ahead_kb(64).unwrap();
    device.set_nr_requests(64).unwrap();
    let paths = [mount.path().to_owned(), disk.path().to_owned()];
    drop((disk, mount));
    assert!(paths.iter().all(|path| !path.exists()));
}

#[test]
fn the_readahead_of_a_device_is_restored() {
    // No other test sets this value.
    const KIB: u32 = 76;
    require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).unwrap();
    let device = mount.device().unwrap();
    let name = device.path().file_name().unwrap().to_str().unwrap();
    let setting = format!("/sys/block/{name}/queue/read_ahead_kb");
    let kib = || fs::read_to_string(&setting).unwrap().trim().to_owned();
    device.set_read_ahead_kb(KIB).unwrap();
    device.set_read_ahead_kb(KIB).unwrap();
    assert_eq!(kib(), KIB.to_string());
    drop(mount);
    assert_ne!(kib(), KIB.to_string());
}

#[test]
fn what_was_not_synced_is_lost_when_a_filesystem_is_shut_down() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        let path = |name| mount.path().join(name);
        fs::write(path("synced"), [7; 100_000]).unwrap();
        mount.sync().unwrap();
        fs::write(path("written"), [7; 100_000]).unwrap();
        mount.shut_down(Log::Lost).unwrap();
        fs::write(path("later"), "").unwrap_err();
        mount.remount().unwrap();
        assert_eq!(fs::read(path("synced")).unwrap(), [7; 100_000]);
        assert_ne!(fs::read(path("written")).unwrap_or_default(), [7; 100_000]);
    }
}

#[test]
fn a_disk_that_seeks_says_that_it_rotates_and_is_sorted_for() {
    require!(slowdisk::available());
    let kinds = [
        (Duration::ZERO, "0\n", "[none]"),
        (Duration::from_nanos(1), "1\n", "[mq-deadline]"),
        (Duration::ZERO, "0\n", "[none]"),
    ];
    for (seek, rotational, scheduler) in kinds {
        let disk = SlowDisk::builder().seek(seek).build().unwrap();
        let device = LoopDevice::on(&disk).unwrap();
        let name = device.path().file_name().unwrap().to_str().unwrap();
        let setting = |it| fs::read_to_string(format!("/sys/block/{name}/queue/{it}"));
        assert_eq!(setting("rotational").unwrap(), rotational);
        let schedulers = setting("scheduler").unwrap();
        // A kernel may have no scheduler.
        assert!(schedulers.contains(scheduler) || !schedulers.contains("mq-deadline"));
    }
}

#[test]
fn ext4_on_an_image() {
    on_an_image(Filesystem::Ext4);
}

#[test]
fn ext4_on_a_slow_disk() {
    on_a_slow_disk(Filesystem::Ext4);
}

#[test]
fn xfs_on_an_image() {
    on_an_image(Filesystem::Xfs);
}

#[test]
fn xfs_on_a_slow_disk() {
    on_a_slow_disk(Filesystem::Xfs);
}

#[test]
fn btrfs_on_an_image() {
    on_an_image(Filesystem::Btrfs);
}

#[test]
fn btrfs_on_a_slow_disk() {
    on_a_slow_disk(Filesystem::Btrfs);
}

#[test]
fn tmpfs_in_memory() {
    on_an_image(Filesystem::Tmpfs);
}

#[test]
fn overlay_on_an_image() {
    on_an_image(Filesystem::Overlay);
}

#[test]
fn overlay_is_mounted_again_with_its_files() {
    require!(Filesystem::Overlay.available());
    let mount = TestMount::new(Filesystem::Overlay).unwrap();
    fs::write(mount.path().join("file"), "bytes").unwrap();
    mount.remount().unwrap();
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"bytes");
}

#[test]
fn overlay_on_a_slow_disk() {
    on_a_slow_disk(Filesystem::Overlay);
}

#[test]
fn a_disk_can_be_kept_in_a_file() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let disk = SlowDisk::builder()
        .backing_dir(std::env::temp_dir())
        .build()
        .unwrap();
    round_trip(TestMount::on(&disk, Filesystem::Ext4).unwrap().path());
}

#[test]
fn an_overlay_shows_its_lower_directory() {
    require!(Filesystem::Overlay.available());
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    fs::create_dir(base.path().join("lower")).unwrap();
    fs::write(base.path().join("lower/file"), "below").unwrap();
    let overlay = TestMount::overlay(base).unwrap();
    assert_eq!(
        fs::read_to_string(overlay.path().join("file")).unwrap(),
        "below"
    );
    fs::write(overlay.path().join("file"), "above").unwrap();
    let lower = overlay.lower().unwrap().join("file");
    assert_eq!(fs::read_to_string(lower).unwrap(), "below");
}

#[test]
fn many_at_once() {
    require!(Filesystem::Ext4.available());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| round_trip(TestMount::new(Filesystem::Ext4).unwrap().path()));
        }
    });
}

#[test]
fn a_tmpfs_is_on_no_disk() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().build().unwrap();
    let error = TestMount::on(&disk, Filesystem::Tmpfs).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn mounted_anew_it_is_read_from_the_disk_again() {
    require!(slowdisk::available());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        require!(filesystem.available());
        let disk = SlowDisk::builder().build().unwrap();
        let mount = TestMount::on(&disk, filesystem).unwrap();
        let path = mount.path().join("file");
        // More than what a mount reads.
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let open = File::open(&path).unwrap();
        assert!(mount.remount().is_err(), "it is in use");
        drop(open);
        // A process with mounts of its own.
        let mut other = Command::new("unshare");
        other.args(["--mount", "sh", "-c", "echo; sleep 0.2"]);
        let mut other = other.stdout(Stdio::piped()).spawn().unwrap();
        let mut started = [0];
        other
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut started)
            .unwrap();
        mount.remount().unwrap();
        other.wait().unwrap();
        assert!(disk.log().is_empty());
        assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
        assert!(!disk.log().is_empty(), "{filesystem}: it was cached");
    }
    let nothing = TestMount::new(Filesystem::Tmpfs).unwrap();
    assert!(nothing.remount().is_err());
}

#[test]
fn a_served_tree_shows_a_directory() {
    require!(slowdisk::available());
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/file"), "some bytes").unwrap();
    std::os::unix::fs::symlink("d/file", at("link")).unwrap();
    let tree = ServedTree::new(directory.path(), Duration::from_millis(1)).unwrap();
    let served = |name: &str| tree.path().join(name);
    for name in ["d", "d/file", "link"] {
        let [here, there] = [at(name), served(name)].map(|path| path.symlink_metadata().unwrap());
        let said = |m: &fs::Metadata| (m.mode(), m.size(), m.ino(), m.modified().unwrap());
        assert_eq!(said(&here), said(&there), "{name}");
    }
    assert_eq!(fs::read(served("link")).unwrap(), b"some bytes");
    let mut names: Vec<_> = fs::read_dir(tree.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["d", "link"]);
    fs::remove_dir_all(served("d")).unwrap();
    assert!(!at("d").exists());
    let root = tree.path().to_owned();
    drop(tree);
    assert!(!root.exists());
}

#[test]
fn a_linkless_tree_can_be_changed_and_has_no_hard_links() {
    require!(slowdisk::available());
    for rename_flags in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let properties = Linkless {
            link: libc::EPERM,
            rename_flags,
        };
        let tree = LinklessTree::new(directory.path(), properties).unwrap();
        let at = |name: &str| tree.path().join(name);
        round_trip(tree.path());
        fs::create_dir(at("d")).unwrap();
        fs::rename(at("file"), at("d/a")).unwrap();
        assert_eq!(fs::metadata(at("d/a")).unwrap().len(), 1 << 20);
        File::open(at("d/a")).unwrap().sync_all().unwrap();
        // evict() syncs the file.
        assert_eq!(tree.syncs(), ["file", "d/a"].map(Path::new));
        let refused = fs::hard_link(at("d/a"), at("b")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        fs::write(at("b"), "bytes").unwrap();
        let rename = |to: &str| {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(CWD, at("b"), CWD, at(to), flags)
        };
        assert_eq!(rename("d/a"), Err(Errno::EXIST));
        let renamed = if rename_flags {
            Ok(())
        } else {
            Err(Errno::INVAL)
        };
        assert_eq!(rename("c"), renamed);
        // A directory takes its files with it.
        let file = File::open(at("d/a")).unwrap();
        fs::rename(at("d"), at("e")).unwrap();
        assert_eq!(fs::read(at("e/a")).unwrap().len(), 1 << 20);
        fs::remove_dir_all(at("e")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }
}
