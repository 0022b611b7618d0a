//! Files that the process may read but not write. For them the kernel does not tell which pages are cached:
//! cachestat(2) fails with EPERM, and mincore(2) reports every page as resident. Strict reads must not
//! believe mincore(2): they return the right bytes, and the caller does not touch the device.
//!
//! The tests run in child processes of the user nobody.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use nowait::engine::Options;
use nowait::residency::{Answer, Probe, Reason, Source, page_map, residency, resident_prefix};
use nowait::{File, Mode, OpenOptions, Provenance, ServedBy};
use slowdisk::{Filesystem, TestMount};

use crate::common::accounting::read_bytes;
use crate::common::backends::backends;
use crate::common::children::role;
use crate::common::nobody::{NOBODY, in_child_as_nobody};
use crate::common::samples::{Sample, bytes};
use crate::common::wait::wait_until;
use crate::overlay::overlay_with;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 2 * MIB + 99;
const NAME: &str = "file";

/// Makes the file on a fresh filesystem, cold, and runs the calling test again as the user nobody
/// in this role.
fn as_nobody(filesystem: Filesystem, role: &str) {
    let (mount, sample) = if filesystem == Filesystem::Overlay {
        overlay_with(NAME, SIZE)
    } else {
        let mount = TestMount::new(filesystem).expect("a fresh filesystem");
        let sample = Sample::new(mount.path(), NAME, SIZE);
        (mount, sample)
    };
    fs::set_permissions(&sample.path, fs::Permissions::from_mode(0o644)).expect("chmod");
    sample.evict();
    as_nobody_on(&mount, &sample, role);
}

/// Runs the calling test again as the user nobody, in this role, with a file on this mount.
fn as_nobody_on(mount: &TestMount, sample: &Sample, role: &str) {
    open_the_way(mount.path());
    in_child_as_nobody(role, |command| {
        command.env("NOWAIT_TEST_FILE", &sample.path);
    });
}

/// Gives all users access to the mount point.
pub fn open_the_way(path: &Path) {
    let temp = std::env::temp_dir().canonicalize().expect("a path");
    for dir in path.ancestors().take_while(|dir| *dir != temp) {
        let mode = fs::metadata(dir).expect("stat").permissions().mode();
        if mode & 0o001 == 0 {
            fs::set_permissions(dir, fs::Permissions::from_mode(mode | 0o011)).expect("chmod");
        }
    }
}

/// Runs the test again as the user nobody on each filesystem. In that process runs `child`.
fn each(child: impl Fn(&Sample, &dyn Fn(Mode) -> Vec<File>)) {
    if role().is_some() {
        assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
        let path = PathBuf::from(std::env::var_os("NOWAIT_TEST_FILE").expect("a file"));
        fs::File::options()
            .write(true)
            .open(&path)
            .expect_err("it may not be written");
        let sample = Sample {
            // The content that `Sample::new` wrote. Reading the file here would cache it.
            content: bytes(SIZE ^ NAME.len() as u64, 0..SIZE),
            path,
        };
        child(&sample, &|mode| {
            let file = |backend| {
                let engine = Options::new().backend(backend).build().expect("an engine");
                let mut options = OpenOptions::new();
                options.read(true).cache_mode(mode).engine(&engine);
                options.blocking_open(&sample.path).expect("open")
            };
            backends().into_iter().map(file).collect()
        });
        return;
    }
    for filesystem in Filesystem::ALL {
        slowdisk::require!(filesystem.available());
        as_nobody(filesystem, filesystem.name());
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
    each(|sample, open| {
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
    each(|sample, open| {
        let role = role();
        let in_memory = role.as_deref() == Some(Filesystem::Tmpfs.name());
        let Some(before) = read_bytes() else {
            return slowdisk::skip_or_fail("/proc/thread-self/io is missing");
        };
        for file in open(Mode::Strict) {
            sample.evict();
            for at in (0..SIZE).step_by(30_000) {
                let from = right(&file, sample, at, 10_000);
                if !in_memory {
                    // A fast device may deliver while the owner of the ring submits.
                    assert_ne!(from.served_by, ServedBy::Caller, "{at}: {from:?}");
                }
            }
            if !in_memory {
                // No page was reported as resident.
                let stats = file.engine().stats();
                assert_eq!((stats.hits, stats.races), (0, 0));
                assert!(stats.handoffs > 0);
            }
        }
        assert_eq!(read_bytes(), Some(before), "{role:?}");
    });
}

/// Eager mode needs no residency: cached data is served in the caller, also for the user nobody.
#[test]
fn eager_reads_of_a_warm_file_are_served_in_the_caller() {
    each(|sample, open| {
        sample.check();
        let role = role();
        // Residency is unknown on overlayfs, so the engine reads.
        let overlay = role.as_deref() == Some(Filesystem::Overlay.name());
        for file in open(Mode::Eager) {
            for (offset, len) in all_over(50) {
                // For a second after a try that took long, because the thread was preempted, no file whose
                // residency is unknown is tried.
                wait_until("a read in the caller", || {
                    let from = right(&file, sample, offset, len);
                    overlay || from.served_by == ServedBy::Caller
                });
            }
        }
    });
}

/// The residency of a half cached file: the count if the kernel reports it, else "unknown". It is never the
/// whole file, which mincore(2) reports.
#[test]
fn residency_is_unknown_and_not_full() {
    each(|sample, _| {
        let filesystem = role().expect("a role");
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

/// On an overlay with `metacopy=on` a file may get a new owner while its bytes stay in the lower layer,
/// where they belong to the old one. The kernel reports nothing to the new owner either.
#[test]
fn the_owner_of_a_file_whose_bytes_are_not_his() {
    if role().is_some() {
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
    as_nobody_on(&overlay, &sample, "owner");
}
