//! Tests of `nowait warm --metadata`: the metadata that is cached afterwards.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{
    MIB, Said, as_nobody, cached_bytes, directory, nowait, open_directory, run, wait_until, word,
};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::limit::LONG;

fn warm(words: &[&str]) -> Said {
    run(&mut nowait(["warm", "--metadata"].iter().chain(words)))
}

/// Makes files with attributes that are too large for their inodes, and one file with data.
fn fill(at: &Path) {
    for i in 0..600 {
        let dir = at.join(format!("tree/d{}/e{}", i % 3, i % 7));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(format!("f{i}"));
        fs::write(&path, "").unwrap();
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.key", &[b'x'; 500], none).unwrap();
    }
    fs::write(at.join("tree/data"), vec![1; MIB as usize]).unwrap();
}

#[test]
fn inodes_and_attributes_are_cached_and_data_is_not() {
    slowdisk::require!(slowdisk::available());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
        let cold = TestMount::filled(&disk, filesystem, fill).unwrap();
        let tree = cold.path().join("tree");
        let reads_of = |words: &[&str]| {
            let before = disk.counters().reads;
            let found = run(Command::new("find").arg(&tree).args(words));
            assert_eq!(found.code, Some(0), "{found:?}");
            disk.counters().reads - before
        };
        let ask = ["-printf", "%s %p\n"];
        cold.remount().unwrap();
        let unwarmed = reads_of(&ask);
        assert!(unwarmed > 5, "{filesystem:?}: cold at first: {unwarmed}");
        cold.remount().unwrap();
        let said = warm(&["--json", "-r", word(&tree)]).done().json();
        // The root, d0 to d2 with seven directories each, 600 files, and the file with data.
        assert_eq!(said["inodes"], 1 + 3 + 21 + 601, "{said}");
        assert_eq!(said["directories"], 1 + 3 + 21);
        assert_eq!(said["metadata"], true);
        assert_eq!(reads_of(&ask), 0, "{filesystem:?}");
        assert_eq!(cached_bytes(&tree.join("data")), 0);

        cold.remount().unwrap();
        let said = warm(&["--json", "--xattr", "-r", word(&tree)])
            .done()
            .json();
        assert_eq!(said["xattrs"], 600);
        let before = disk.counters().reads;
        let attributes = run(Command::new("getfattr")
            .args(["-R", "-d", "--absolute-names"])
            .arg(&tree));
        assert_eq!(attributes.text().matches("user.key").count(), 600);
        assert_eq!(disk.counters().reads, before, "{filesystem:?}");
    }
}

#[test]
fn an_interrupt_is_handled_while_a_device_hangs() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    // The kernel reads the first inodes ahead when it mounts, so a later one is used.
    let hangs = cold.inode(cold.path().join("tree/d2/e4/f599")).unwrap();
    cold.remount().unwrap();
    disk.inject(Fault::stall(hangs).reads_only());
    let mut child = nowait(["warm", "--metadata", "--json", "-r", word(cold.path())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("a read of the device hangs", || disk.stalled() > 0);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // The results are printed while the device still hangs. The process ends afterwards.
    let (said, heard) = std::sync::mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
    });
    let interrupted = std::iter::from_fn(|| heard.recv_timeout(LONG).ok())
        .find(|line| line.contains("interrupted"));
    let still_hangs = disk.stalled() > 0;
    disk.release_all();
    reader.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(interrupted.is_some_and(|line| line.contains("true")));
    assert!(still_hangs);
}

#[test]
fn failed_queries_are_reported_and_the_rest_is_processed() {
    let dir = directory();
    fs::write(dir.path().join("file"), "x").unwrap();
    let file = dir.path().join("file");
    let said = warm(&["--json", "/no/such", word(dir.path()), word(&file)]).in_part();
    assert_eq!(said.json()["inodes"], 3);
    assert_eq!(said.json()["failed"], 1);
    let said = warm(&["--xattr", word(&file)]).done();
    assert!(
        said.text().starts_with("1 inode in 0 directories"),
        "{said:?}"
    );
    for words in [&["--xattr", "x"][..], &["--metadata", "--dry-run", "x"]] {
        assert_eq!(run(&mut nowait(["warm"].iter().chain(words))).code, Some(2));
    }
    let dir = open_directory();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let none = std::os::unix::fs::PermissionsExt::from_mode(0o0);
    fs::set_permissions(&closed, none).unwrap();
    let (mut command, _copy) = as_nobody(["warm", "--metadata", "-r", word(dir.path())]);
    let said = run(&mut command).in_part();
    assert!(said.err.contains("closed: Permission denied"), "{said:?}");
    assert!(said.text().starts_with("2 inodes"), "{said:?}");
}
