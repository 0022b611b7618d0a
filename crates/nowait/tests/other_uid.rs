//! A file that one may read but not write: the kernel does not tell such a reader what is cached
//! (cachestat says EPERM, mincore calls every page resident). Strict reads must not believe the
//! latter: they are right, and the caller does not touch the device.
//!
//! The tests run themselves again as `nobody`, in a process of its own.

#[path = "common/engines.rs"]
mod engines;
#[path = "common/mounts.rs"]
mod mounts;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures_util::future::join_all;
use mounts::{Sample, overlay_with};
use nowait::engine::Options;
use nowait::residency::{Answer, Probe, Reason, Source, page_map, residency, resident_prefix};
use nowait::{File, Mode, OpenOptions, Provenance, ServedBy};
use slowdisk::{Filesystem, TestMount};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 2 * MIB + 99;
const NOBODY: u32 = 65534;
const NAME: &str = "file";

/// Makes the file on a fresh filesystem, cold, and has `test` play `role` as nobody with it.
fn as_nobody(filesystem: Filesystem, test: &str, role: &str) {
    let (mount, sample) = if filesystem == Filesystem::Overlay {
        overlay_with(NAME, SIZE)
    } else {
        let mount = TestMount::new(filesystem).expect("a fresh filesystem");
        let sample = Sample::new(mount.path(), NAME, SIZE);
        (mount, sample)
    };
    fs::set_permissions(&sample.path, fs::Permissions::from_mode(0o644)).expect("chmod");
    sample.evict();
    as_nobody_on(&mount, &sample, test, role);
}

/// Has `test` play `role` as nobody with a file on this mount.
fn as_nobody_on(mount: &TestMount, sample: &Sample, test: &str, role: &str) {
    // Neither the build's directory nor the mount's need be open to everybody.
    let open = tempfile::tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let program = open.path().join("program");
    fs::copy(engines::this_program(), &program).expect("copy");
    open_the_way(mount.path());
    let mut command = Command::new(program);
    command
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env("NOWAIT_TEST_FILE", &sample.path);
    engines::in_child_by(command, test, role);
}

/// Lets everybody pass to the mount, through the directories that were made for it.
fn open_the_way(path: &Path) {
    let temp = std::env::temp_dir().canonicalize().expect("a path");
    for dir in path.ancestors().take_while(|dir| *dir != temp) {
        let mode = fs::metadata(dir).expect("stat").permissions().mode();
        if mode & 0o001 == 0 {
            fs::set_permissions(dir, fs::Permissions::from_mode(mode | 0o011)).expect("chmod");
        }
    }
}

/// Runs the test again as nobody on each filesystem; in that process runs `child`.
fn each(test: &str, child: impl Fn(&Sample, &dyn Fn(Mode) -> Vec<File>)) {
    if engines::role().is_some() {
        assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
        let path = PathBuf::from(std::env::var_os("NOWAIT_TEST_FILE").expect("a file"));
        fs::File::options()
            .write(true)
            .open(&path)
            .expect_err("it may not be written");
        let sample = Sample {
            // As `Sample::new` made it: warming it up by reading it would spoil the test.
            content: mounts::bytes(SIZE ^ NAME.len() as u64, 0..SIZE),
            path,
        };
        child(&sample, &|mode| {
            let file = |backend| {
                let engine = Options::new().backend(backend).build().expect("an engine");
                let mut options = OpenOptions::new();
                options.read(true).cache_mode(mode).engine(&engine);
                options.blocking_open(&sample.path).expect("open")
            };
            engines::backends().into_iter().map(file).collect()
        });
        return;
    }
    for filesystem in Filesystem::ALL {
        slowdisk::require!(filesystem.available());
        as_nobody(filesystem, test, filesystem.name());
    }
}

#[track_caller]
fn right(file: &File, sample: &Sample, offset: u64, len: usize) -> Provenance {
    let done = pollster::block_on(file.read_at(Vec::with_capacity(len), offset));
    let expected = sample.expected(offset, len);
    assert_eq!(done.result.expect("read"), expected.len());
    assert!(done.buf == expected, "{len} from {offset}");
    let from = done.provenance;
    assert_eq!(from.cached + from.device + from.unknown, expected.len());
    from
}

fn all_over(n: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..n).map(|i| {
        (
            i * 7_919_113 % (SIZE + 5_000),
            (i * 3_571 % 30_000) as usize,
        )
    })
}

#[test]
fn reads_are_right() {
    each("reads_are_right", |sample, open| {
        for mode in [Mode::Eager, Mode::Strict] {
            for file in open(mode) {
                for (offset, len) in all_over(200) {
                    right(&file, sample, offset, len);
                }
                let ranges: Vec<(u64, usize)> = all_over(64).collect();
                let all = ranges
                    .iter()
                    .map(|&(offset, len)| file.read_at(Vec::with_capacity(len), offset));
                for ((offset, len), done) in ranges.iter().zip(pollster::block_on(join_all(all))) {
                    assert!(done.buf == sample.expected(*offset, *len));
                }
                right(&file, sample, 0, SIZE as usize + 10);
            }
        }
    });
}

#[test]
fn strict_reads_of_a_cold_file_stay_off_the_device() {
    let name = "strict_reads_of_a_cold_file_stay_off_the_device";
    each(name, |sample, open| {
        let role = engines::role();
        let in_memory = role.as_deref() == Some(Filesystem::Tmpfs.name());
        let Some(before) = read_bytes() else {
            return slowdisk::skip_or_fail("/proc/thread-self/io is missing");
        };
        for file in open(Mode::Strict) {
            sample.evict();
            for at in (0..SIZE).step_by(30_000) {
                let from = right(&file, sample, at, 10_000);
                if !in_memory {
                    // A fast device may deliver while the ring's owner submits: that is its affair.
                    assert_ne!(from.served_by, ServedBy::Caller, "{at}: {from:?}");
                }
            }
            if !in_memory {
                // "Resident" was said of nothing, so there was nothing to be wrong about.
                let stats = file.engine().stats();
                assert_eq!((stats.hits, stats.races), (0, 0));
                assert!(stats.handoffs > 0);
            }
        }
        assert_eq!(read_bytes(), Some(before), "{role:?}");
    });
}

/// Eager mode needs no residency: what is cached is served in the caller, also to nobody.
#[test]
fn eager_reads_of_a_warm_file_are_served_in_the_caller() {
    let name = "eager_reads_of_a_warm_file_are_served_in_the_caller";
    each(name, |sample, open| {
        sample.check();
        let role = engines::role();
        // There is no way to know, so there the engine has to do it.
        let overlay = role.as_deref() == Some(Filesystem::Overlay.name());
        for file in open(Mode::Eager) {
            for (offset, len) in all_over(50) {
                let from = right(&file, sample, offset, len);
                if !overlay {
                    assert_eq!(from.served_by, ServedBy::Caller, "{role:?}: {from:?}");
                }
            }
        }
    });
}

/// Of a file that is half cached: its count where the kernel tells, else "unknown", and never all
/// of it, as mincore has it.
#[test]
fn residency_is_unknown_and_not_full() {
    each("residency_is_unknown_and_not_full", |sample, _| {
        let filesystem = engines::role().expect("a role");
        let file = sample.open();
        let in_memory = filesystem == Filesystem::Tmpfs.name();
        if !in_memory {
            sample.evict();
            sample.touch(0..MIB);
        }
        let mincore = Probe::only(Source::Mincore, &file).expect("a mapping");
        assert!(mincore.is_untrustworthy().expect("mincore"), "{filesystem}");
        let page = nowait::residency::page_size();
        let there = if in_memory { SIZE } else { MIB };
        match residency(&file, 0..u64::MAX).expect("an answer") {
            // Before cachestat was restricted.
            Answer::Known { value, source } => {
                assert_eq!(source, Source::Cachestat);
                assert_eq!(value.cached, there.div_ceil(page));
                let prefix = resident_prefix(&file, 0, u64::MAX).expect("an answer");
                assert_eq!(prefix.known(), Some(there));
                // Fragmented: without mincore's help.
                sample.evict();
                for p in (0..SIZE / page).step_by(2) {
                    sample.touch(p * page..p * page + 1);
                }
                let map = page_map(&file, 0..u64::MAX).expect("an answer");
                let map = map.known().expect("a map");
                for p in 0..SIZE / page {
                    assert_eq!(map.is_resident(p * page), in_memory || p % 2 == 0, "{p}");
                }
            }
            Answer::Unknown(reason) => {
                assert_eq!(reason, Reason::NotOurs, "{filesystem}");
                assert!(reason.to_string().contains("own"), "{reason}");
                let prefix = resident_prefix(&file, 0, 1).expect("an answer");
                assert_eq!(prefix, Answer::Unknown(reason));
                let map = page_map(&file, 0..1).expect("an answer");
                assert!(matches!(map, Answer::Unknown(Reason::NotOurs)));
            }
        }
    });
}

/// On an overlay with `metacopy=on` a file may change hands while its bytes stay in the lower
/// layer, where they belong to another: its owner is told nothing either.
#[test]
fn the_owner_of_a_file_whose_bytes_are_not_his() {
    const TEST: &str = "the_owner_of_a_file_whose_bytes_are_not_his";
    if engines::role().is_some() {
        let path = std::env::var_os("NOWAIT_TEST_FILE").expect("a file");
        let file = fs::File::open(path).expect("open");
        let owner = file.metadata().expect("stat");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), NOBODY);
        let answer = residency(&file, 0..u64::MAX).expect("an answer");
        assert_eq!(answer, Answer::Unknown(Reason::NotOurs));
        return;
    }
    slowdisk::require!(Filesystem::Overlay.available());
    let base = TestMount::new(Filesystem::Ext4).expect("a fresh ext4");
    let lower = base.path().join("lower");
    fs::create_dir(&lower).expect("mkdir");
    let mut sample = Sample::new(&lower, NAME, SIZE);
    fs::set_permissions(&sample.path, fs::Permissions::from_mode(0o644)).expect("chmod");
    let overlay = TestMount::builder(Filesystem::Overlay)
        .option("metacopy=on")
        .overlay_on(base)
        .expect("an overlay");
    sample.path = overlay.path().join(NAME);
    std::os::unix::fs::chown(&sample.path, Some(NOBODY), None).expect("chown");
    sample.evict();
    as_nobody_on(&overlay, &sample, TEST, "owner");
}

/// How many bytes this thread has had read from block devices (proc(5)).
fn read_bytes() -> Option<u64> {
    let io = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = io.lines().find_map(|l| l.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}
