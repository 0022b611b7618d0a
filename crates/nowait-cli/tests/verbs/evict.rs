//! Tests of `nowait evict`: the evicted pages, the remaining pages, and the reported reasons.
#![allow(unsafe_code, reason = "a test that maps files has to")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::program::{
    MIB, PAGE, Said, as_nobody, cold, directory, fifo, file, nowait, open_directory, overlay_with,
    run, touch, wait_until,
};
use nowait::residency::residency;
use rustix::mm::{MapFlags, ProtFlags};
use serde_json::{Value, json};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::repeat::unless_reclaimed;

fn evict(words: &[&str], paths: &[&Path]) -> Said {
    let words = words.iter().map(OsStr::new);
    let paths = paths.iter().map(|path| path.as_os_str());
    run(&mut nowait(
        [OsStr::new("evict")].into_iter().chain(words).chain(paths),
    ))
}

/// The cached bytes of a file, as the library counts them.
fn cached(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let known = residency(&file, 0..u64::MAX).unwrap().known();
    known.expect("it is ours").cached * PAGE
}

/// A mapping of some pages of a file.
struct Mapped(*mut std::ffi::c_void, usize);

impl Mapped {
    fn new(path: &Path, range: Range<usize>) -> Mapped {
        let file = File::open(path).unwrap();
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // Those pages and no others: a fault brings its neighbours if they are cached.
        // SAFETY: a new mapping of a file that is not truncated. Its pages are only read.
        unsafe {
            let at = rustix::mm::mmap(
                std::ptr::null_mut(),
                range.len(),
                prot,
                flags,
                &file,
                range.start as u64,
            )
            .unwrap();
            for page in (0..range.len()).step_by(PAGE as usize) {
                at.cast::<u8>().add(page).read_volatile();
            }
            Mapped(at, range.len())
        }
    }

    fn lock(&self) {
        // SAFETY: the range is mapped.
        unsafe { rustix::mm::mlock(self.0, self.1) }.unwrap();
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once.
        unsafe { rustix::mm::munmap(self.0, self.1) }.unwrap();
    }
}

#[test]
fn clean_files_are_evicted() {
    unless_reclaimed(|| {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
            let mount = mounted!(filesystem);
            let path = cold(mount.path().join("file"), 2 * MIB + 5);
            touch(&path, 0..MIB);
            let report = evict(&["-v", "--json"], &[&path]).done().json();
            assert_eq!(report["evict"], 1);
            let seen = file(&report, &path);
            assert_eq!(seen["cached_bytes"], MIB, "{}", filesystem.name());
            assert_eq!(seen["evicted_bytes"], MIB);
            assert_eq!(seen["stayed_bytes"], 0);
            assert_eq!(report["total"]["evicted_bytes"], MIB);
            assert_eq!(cached(&path), 0);
        }
    });
}

#[test]
fn evicted_files_are_shown_only_on_request() {
    unless_reclaimed(|| {
        let dir = directory();
        let path = cold(dir.path().join("file"), PAGE);
        touch(&path, 0..PAGE);
        assert_eq!(
            evict(&[], &[&path]).done().text(),
            "evicted 4K of 4K in 1 file\n"
        );
        let said = evict(&["-v"], &[&path]).done();
        assert!(said.text().contains("file: 0 evicted\n"), "{said:?}");
    });
}

/// The kernel maps the file of a running program.
#[test]
fn a_process_name_may_have_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let dir = directory();
    let program = dir.path().join(OsStr::from_bytes(b"sl\xff\n\\p"));
    slowdisk::copy_program("/bin/sleep", &program).unwrap();
    File::open(&program).unwrap().sync_all().unwrap();
    let mut child = std::process::Command::new(&program)
        .arg("60")
        .spawn()
        .unwrap();
    // Its pages are mapped when it has read them: it sleeps.
    let sleeps = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep];
    wait_until("the program sleeps", || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", child.id()));
        let call = call.unwrap_or_default();
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        number.is_some_and(|number| sleeps.contains(&number))
    });
    let report = evict(&["--json"], &[&program]).in_part().json();
    child.kill().unwrap();
    child.wait().unwrap();
    let why = report["files"][0]["why"].as_array().unwrap();
    let mapped = why.iter().find(|why| why["reason"] == "mapped");
    let by = &mapped.unwrap_or_else(|| panic!("{report}"))["by"][0];
    assert_eq!(by["pid"], child.id(), "{report}");
    assert!(
        by["command"].as_str().unwrap().starts_with("sl"),
        "{report}"
    );
}

#[test]
fn dirty_pages_stay_until_they_are_written() {
    unless_reclaimed(|| {
        slowdisk::require!(slowdisk::available());
        let disk = SlowDisk::builder().size(512 * MIB).build().unwrap();
        let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
        let path = mount.path().join("file");
        fs::write(&path, vec![7; MIB as usize]).unwrap();
        // The advice starts writeback, and writes to this device do not complete.
        disk.inject(Fault::stall(0..disk.size()).writes_only());
        let said = evict(&["--json"], &[&path]).in_part();
        disk.release_all();
        let report = said.json();
        let seen = file(&report, &path);
        assert_eq!(
            (&seen["evicted_bytes"], &seen["stayed_bytes"]),
            (&json!(0), &json!(MIB))
        );
        for why in seen["why"].as_array().unwrap() {
            let reason = why["reason"].as_str().unwrap();
            assert!(["dirty", "writeback"].contains(&reason), "{said:?}");
        }
        assert_eq!(report["total"]["stayed_files"], 1);
        fs::write(&path, vec![8; MIB as usize]).unwrap();
        // The delay is so long that writeback has not ended when the pages are counted.
        disk.set_latency(Duration::from_millis(100));
        evict(&["--flush"], &[&path]).done();
        assert_eq!(cached(&path), 0);
        assert_eq!(fs::read(&path).unwrap(), vec![8; MIB as usize]);
    });
}

#[test]
fn processes_that_map_a_file_are_named() {
    unless_reclaimed(|| {
        for filesystem in [Filesystem::Ext4, Filesystem::Btrfs, Filesystem::Overlay] {
            slowdisk::require!(filesystem.available());
            let (_mount, path) = match filesystem {
                Filesystem::Overlay => overlay_with("file", 4 * MIB),
                _ => {
                    let mount = TestMount::new(filesystem).unwrap();
                    let path = cold(mount.path().join("file"), 4 * MIB);
                    (mount, path)
                }
            };
            touch(&path, 3 * MIB..4 * MIB);
            let mapped = Mapped::new(&path, 0..MIB as usize);
            let said = evict(&["--json"], &[&path]).in_part();
            let report = said.json();
            let seen = file(&report, &path);
            let name = filesystem.name();
            assert!(
                seen["stayed_bytes"].as_u64().unwrap() >= MIB,
                "{name}: {said:?}"
            );
            let [why] = &seen["why"].as_array().unwrap()[..] else {
                panic!("{name}: {said:?}")
            };
            assert_eq!(why["reason"], "mapped", "{name}: {said:?}");
            // A child that another test has just forked has the mapping until it executes its program.
            let by = why["by"].as_array().unwrap();
            let own = by.iter().find(|by| by["pid"] == std::process::id());
            let own = own.unwrap_or_else(|| panic!("{name}: {said:?}"));
            assert_eq!(own["locked"], false, "{name}");
            mapped.lock();
            let said = evict(&[], &[&path]).in_part();
            let me = format!("({}, locked)\n", std::process::id());
            assert!(said.text().contains(&me), "{name}: {said:?}");
            drop(mapped);
            wait_until("no process has the mapping", || {
                evict(&[], &[&path]).code == Some(0)
            });
            assert_eq!(cached(&path), 0, "{name}");
        }
    });
}

#[test]
fn a_file_on_tmpfs_stays() {
    let mount = mounted!(Filesystem::Tmpfs);
    let path = mount.path().join("file");
    fs::write(&path, vec![1; MIB as usize]).unwrap();
    let report = evict(&["--json"], &[&path]).in_part().json();
    assert_eq!(
        file(&report, &path)["why"],
        json!([{"reason": "memory", "bytes": MIB, "by": []}])
    );
    assert_eq!(fs::read(&path).unwrap(), vec![1; MIB as usize]);
}

#[test]
fn a_dry_run_changes_nothing() {
    unless_reclaimed(|| {
        let dir = directory();
        let clean = cold(dir.path().join("clean"), MIB);
        let mapped = cold(dir.path().join("mapped"), MIB);
        touch(&clean, 0..MIB);
        let _mapped = Mapped::new(&mapped, 0..MIB as usize);
        let report = evict(&["--dry-run", "--json", "-r"], &[dir.path()])
            .done()
            .json();
        assert_eq!(report["dry_run"], true);
        assert_eq!(report["total"]["evicted_bytes"], MIB);
        assert_eq!(report["total"]["stayed"], json!({"mapped": MIB}));
        assert_eq!((cached(&clean), cached(&mapped)), (MIB, MIB));
        assert_eq!(evict(&["--dry-run", "--flush"], &[&clean]).code, Some(2));
    });
}

#[test]
fn totals_are_correct_and_a_file_counts_once() {
    unless_reclaimed(|| {
        let dir = directory();
        for i in 0..200u64 {
            let path = cold(dir.path().join(format!("{i}")), (1 + i % 5) * PAGE);
            touch(&path, 0..(1 + i % 5) * PAGE);
            fs::hard_link(&path, dir.path().join(format!("{i}-too"))).unwrap();
        }
        let report = evict(&["-v", "--json", "-r"], &[dir.path()]).done().json();
        let files = report["files"].as_array().unwrap();
        assert_eq!(files.len(), 200);
        let sum = |key: &str| files.iter().map(|f| f[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("evicted_bytes"), 600 * PAGE);
        assert_eq!(report["total"]["evicted_bytes"], 600 * PAGE);
        assert_eq!(report["total"]["cached_bytes"], 600 * PAGE);
        assert_eq!(report["total"]["files"], 200);
    });
}

#[test]
fn files_below_a_link_are_not_evicted() {
    unless_reclaimed(|| {
        let dir = directory();
        let outside = cold(dir.path().join("outside"), MIB);
        touch(&outside, 0..MIB);
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
        evict(&["-r"], &[&tree]).done();
        assert_eq!(cached(&outside), MIB);
    });
}

#[test]
fn the_residency_of_other_users_files_is_unknown() {
    let dir = open_directory();
    let theirs = cold(dir.path().join("theirs"), PAGE);
    let (mut command, _copy) = as_nobody(["evict", "--json", theirs.to_str().unwrap()]);
    let said = run(&mut command).in_part();
    let report = said.json();
    let total = &report["total"];
    assert_eq!(total["unknown"][0]["files"], 1, "{said:?}");
    assert_eq!(
        (&total["evicted_bytes"], &total["stayed_bytes"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(file_or_null(&report, &theirs), Value::Null);
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o600)).unwrap();
    let (mut command, _copy) = as_nobody([OsStr::new("evict"), theirs.as_os_str()]);
    let said = run(&mut command).in_part();
    assert!(said.err.contains("theirs: Permission denied"), "{said:?}");
}

/// The bytes of a file that were cached before, from a report with -v.
fn file_or_null(report: &Value, path: &Path) -> Value {
    file(report, path)["cached_bytes"].clone()
}

#[test]
fn other_types_of_files_are_reported_and_the_rest_is_evicted() {
    unless_reclaimed(|| {
        let dir = directory();
        let good = cold(dir.path().join("good"), PAGE);
        touch(&good, 0..PAGE);
        let pipe = fifo(dir.path().join("fifo"));
        let missing = dir.path().join("missing");
        let said = evict(&["--json"], &[&missing, &pipe, &good]).in_part();
        assert_eq!(said.json()["total"]["failed"], 2, "{said:?}");
        assert_eq!(said.json()["total"]["evicted_bytes"], PAGE);
        assert_eq!(said.err.lines().count(), 2, "{said:?}");
    });
}
