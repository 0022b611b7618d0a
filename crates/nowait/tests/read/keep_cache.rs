//! Files that are opened with `keep_cache`: whatever is read and written, the page cache is
//! afterwards as it was before.

mod surveys;

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::ErrorKind;
use std::num::NonZero;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nowait::engine::{Engine, Options};
use nowait::residency::{Reason, Source};
use nowait::{File, Mode, OpenOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rustix::fs::{Advice, FlockOperation};
use slowdisk::{Filesystem, SlowDisk, TestMount};
use test_support::pages::{Locked, are_reclaimed};
use test_support::repeat::{Excuse, repeat};

use crate::common::backends::backends;
use crate::common::children::role;
use crate::common::limit::Limit;
use crate::common::mounts::{ON_DISK, mounted};
use crate::common::nobody::in_child_as_nobody;
use crate::common::samples::Sample;
use crate::common::wait::{LONG, wait_until};
use crate::other_uid::open_the_way;
use crate::overlay::overlay_with;
use crate::residency::{arrange, seen};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// The time for which a readahead is waited for if the kernel does not report it.
const READAHEAD: Duration = Duration::from_secs(1);

/// The filesystems that have a device, and overlayfs.
fn sample(filesystem: Filesystem, size: u64) -> Option<(TestMount, Sample)> {
    if let Err(missing) = filesystem.available() {
        slowdisk::skip_or_fail(missing);
        return None;
    }
    if filesystem == Filesystem::Overlay {
        return Some(overlay_with("file", size));
    }
    let mount = TestMount::new(filesystem).expect("a fresh filesystem");
    let sample = Sample::new(mount.path(), "file", size);
    Some((mount, sample))
}

fn filesystems() -> impl Iterator<Item = Filesystem> {
    ON_DISK.into_iter().chain([Filesystem::Overlay])
}

fn open(engine: &Engine, path: &Path, writes: bool) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(writes).engine(engine);
    let file = options.keep_cache(true).blocking_open(path).expect("open");
    assert_eq!(file.keeps_cache(), Ok(true));
    file
}

/// Reads, and compares the bytes.
fn check(file: &File, sample: &Sample, offset: u64, len: usize) {
    let mut buf = vec![0; len];
    let n = file.blocking_read_at(&mut buf[..], offset).expect("read");
    assert!(
        &buf[..n] == sample.expected(offset, len),
        "{len} from {offset}"
    );
}

async fn check_by_future(file: &File, sample: &Sample, offset: u64, len: usize) {
    let done = file.read_at(vec![0; len], offset).await;
    let n = done.result.expect("read");
    assert!(
        &done.buf[..n] == sample.expected(offset, len),
        "{len} from {offset}"
    );
}

/// Waits until all other pages than those of `cached` are evicted, and returns those of these that are, and were not
/// reclaimed. A worker evicts pages that the kernel still reads. Some machines reclaim pages without a shortage of memory
/// (DAMON). On overlayfs, pages of a readahead that takes more than [`READAHEAD`] may stay.
#[track_caller]
fn gone(sample: &Sample, cached: &BTreeSet<u64>) -> BTreeSet<u64> {
    let begun = Instant::now();
    let (mut last, mut late) = (seen(&sample.path), BTreeSet::new());
    loop {
        let after = seen(&sample.path);
        if begun.elapsed() > READAHEAD && is_by_mincore(&sample.path) {
            late.extend(&after - &last);
        }
        last = after.clone();
        let stayed: Vec<u64> = (&(&after - cached) - &late).into_iter().take(20).collect();
        if stayed.is_empty() {
            let gone = cached - &after;
            let is_reclaimed = |page: &u64| are_reclaimed(&sample.path, [*page], u64::MAX);
            return gone
                .into_iter()
                .filter(|page| !is_reclaimed(page))
                .collect();
        }
        let path = sample.path.display();
        assert!(begun.elapsed() < LONG, "{path}: pages stayed: {stayed:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if the kernel reports no pages of a file that are being read.
fn is_by_mincore(path: &Path) -> bool {
    let file = fs::File::open(path).expect("open");
    let probe = nowait::residency::Probe::new(&file).expect("a probe");
    probe.source() == Ok(Source::Mincore)
}

/// Checks that all pages of `cached` are cached, and no others.
#[track_caller]
fn assert_kept(sample: &Sample, cached: &BTreeSet<u64>) {
    let gone = gone(sample, cached);
    assert!(gone.is_empty(), "pages are gone: {gone:?}");
}

/// Makes exactly these pages cached, and checks that they are after `test`, and no others.
#[track_caller]
fn keeps(sample: &Sample, cached: &BTreeSet<u64>, test: impl Fn()) {
    // A page that is reclaimed before the file is surveyed is read, and evicted.
    repeat("the cache is as before", &[Excuse::AnyReclaimed], || {
        // On overlayfs, pages that are read now could be those of a readahead for the use before.
        wait_until("no eviction is left to do", || !is_held(&sample.path));
        arrange(sample, cached);
        test();
        match gone(sample, cached) {
            gone if gone.is_empty() => Ok(()),
            gone => Err(format!("pages are gone: {gone:?}")),
        }
    });
}

/// Calls a test with a file on each filesystem, and an engine of each backend.
fn each(size: u64, test: impl Fn(&Sample, &Engine, Filesystem)) {
    for filesystem in filesystems() {
        let Some((_mount, sample)) = sample(filesystem, size) else {
            continue;
        };
        for backend in backends() {
            let _limit = Limit::new(format!("{filesystem} {backend}"));
            let engine = Options::new().backend(backend).build().expect("an engine");
            // A file of a lower layer is copied up when it is opened for writing. That caches it.
            drop(open(&engine, &sample.path, true));
            wait_until("no eviction is left to do", || !is_held(&sample.path));
            test(&sample, &engine, filesystem);
        }
    }
}

/// Runs of pages of each length, from single pages to much of the file.
fn runs(pages: u64) -> impl Strategy<Value = BTreeSet<u64>> {
    let runs = prop::collection::vec((0..pages, 0..11u32), 0..12);
    runs.prop_map(move |runs| {
        let run = |(start, log): (u64, u32)| start..(start + (1 << log)).min(pages);
        runs.into_iter().flat_map(run).collect()
    })
}

#[test]
fn the_cache_is_as_before_after_random_reads_of_several_threads_and_handles() {
    let size = 20 * MIB + 99;
    each(size, |sample, engine, _| {
        let mut runner = TestRunner::new(Config {
            failure_persistence: None,
            cases: Config::default().cases.min(5),
            // A failed case waits for some seconds.
            max_shrink_iters: 2,
            ..Config::default()
        });
        let read = (0..size + 9000, prop_oneof![1..9000usize, 1..2_000_000usize]);
        let reads = prop::collection::vec(read, 1..30);
        runner
            .run(&(runs(size.div_ceil(PAGE)), reads), |(cached, reads)| {
                keeps(sample, &cached, || {
                    let files = [false, true].map(|writes| open(engine, &sample.path, writes));
                    let (one, others) = reads.split_at(reads.len() / 2);
                    std::thread::scope(|scope| {
                        for file in &files {
                            scope.spawn(move || {
                                for (offset, len) in one {
                                    check(file, sample, *offset, *len);
                                }
                            });
                        }
                        let futures = others
                            .iter()
                            .map(|(at, len)| check_by_future(&files[0], sample, *at, *len));
                        pollster::block_on(join_all(futures));
                    });
                });
                Ok::<(), TestCaseError>(())
            })
            .unwrap();
    });
}

#[test]
fn pages_behind_the_reader_are_evicted_while_the_file_is_open() {
    let size = 160 * MIB;
    for filesystem in filesystems() {
        let Some((_mount, sample)) = sample(filesystem, size) else {
            continue;
        };
        let engine = Engine::new().expect("an engine");
        let cached: BTreeSet<u64> = (0..100).chain(5000..5003).collect();
        for by_futures in [false, true] {
            keeps(&sample, &cached, || {
                let file = open(&engine, &sample.path, false);
                for at in (0..size).step_by(1 << 20) {
                    match by_futures {
                        true => pollster::block_on(check_by_future(&file, &sample, at, 1 << 20)),
                        false => check(&file, &sample, at, 1 << 20),
                    }
                }
                // Eight windows of 8 MiB are not evicted yet.
                wait_until("the windows behind the reader are evicted", || {
                    seen(&sample.path).len() as u64 <= 64 * MIB / PAGE + 103
                });
            });
        }
    }
}

/// Closing any descriptor of a file drops the locks of fcntl(2) that a process has on it.
#[test]
fn the_program_keeps_its_locks_while_pages_are_evicted() {
    let size = 120 * MIB;
    for filesystem in ON_DISK {
        let Some((_mount, sample)) = sample(filesystem, size) else {
            continue;
        };
        let engine = Engine::new().expect("an engine");
        keeps(&sample, &BTreeSet::new(), || {
            let file = open(&engine, &sample.path, true);
            rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("lock");
            for at in (0..size).step_by(1 << 20) {
                pollster::block_on(check_by_future(&file, &sample, at, 1 << 20));
            }
            wait_until("the windows behind the reader are evicted", || {
                let pages = nowait::residency::residency(&file, 0..u64::MAX).expect("an answer");
                pages.known().expect("a count").cached <= 64 * MIB / PAGE
            });
            wait_until("no eviction is left to do", || !is_held(&sample.path));
            assert!(is_locked(&sample.path), "{filesystem}: after an eviction");
            // The last window is evicted again after it is written.
            let bytes = sample.expected(MIB, 5_000).to_vec();
            let written = pollster::block_on(file.write_all_at(bytes, MIB));
            written.result.expect("write");
            drop(file);
            let again = fs::File::open(&sample.path).expect("open");
            rustix::fs::fcntl_lock(&again, FlockOperation::NonBlockingLockShared).expect("lock");
            wait_until("no eviction is left to do", || !is_held(&sample.path));
            assert!(
                is_locked(&sample.path),
                "{filesystem}: after the file was closed"
            );
        });
    }
}

/// True if this process has a lock of fcntl(2) on the file.
fn is_locked(path: &Path) -> bool {
    let inode = fs::metadata(path).expect("metadata").ino();
    let end = format!(":{inode} 0 EOF");
    let locks = fs::read_to_string("/proc/locks").expect("locks");
    let process = format!(" {} ", std::process::id());
    let mut of_file = locks.lines().filter(|lock| lock.ends_with(&end));
    of_file.any(|lock| lock.contains("POSIX") && lock.contains(&process))
}

/// True if this process has a descriptor of O_PATH of the file.
fn is_held(path: &Path) -> bool {
    flags_of(path).any(|flags| flags & libc::O_PATH as u32 != 0)
}

#[test]
fn written_pages_are_evicted_when_they_are_written_back_and_resident_ones_stay() {
    let size = 20 * MIB + 99;
    each(size, |sample, engine, _| {
        let cached: BTreeSet<u64> = (7..20).chain(3000..3500).collect();
        keeps(sample, &cached, || {
            let file = open(engine, &sample.path, true);
            for (at, len) in [(3 * PAGE, 30 * PAGE), (2_999 * PAGE + 7, 9 * MIB), (0, 1)] {
                let bytes = sample.expected(at, len as usize).to_vec();
                file.blocking_write_all_at(&bytes, at).expect("write");
                let written = pollster::block_on(file.write_all_at(bytes, at));
                written.result.expect("write");
            }
            pollster::block_on(file.sync_data()).expect("sync");
        });
        // Without a call of fsync(2), a worker waits until they are written.
        keeps(sample, &cached, || {
            let file = open(engine, &sample.path, true);
            let bytes = sample.expected(MIB, 5_000).to_vec();
            file.blocking_write_all_at(&bytes, MIB).expect("write");
        });
        sample.check();
    });
}

#[test]
fn a_file_that_grows_and_shrinks_leaves_no_pages_of_this_process() {
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let engine = Engine::new().expect("an engine");
        let path = mount.path().join("grows");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).keep_cache(true);
        let file = options.engine(&engine).blocking_open(&path).expect("open");
        for at in 0..40 {
            file.blocking_write_all_at(&vec![7; 300_001], at * 300_001)
                .expect("write");
            let mut buf = vec![0; 400_000];
            file.blocking_read_at(&mut buf[..], at * 300_001)
                .expect("read");
        }
        file.blocking_sync_all().expect("sync");
        fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(5 * MIB + 1))
            .expect("truncate");
        let mut buf = vec![0; 400_000];
        file.blocking_read_at(&mut buf[..], 5 * MIB - 5)
            .expect("read");
        let past = file.blocking_read_at(&mut vec![0; 2 << 20][..], 11 * MIB);
        assert_eq!(past.expect("read"), 0);
        // Pages that another process appends are resident before they are read.
        let other = fs::File::options().write(true).open(&path).expect("open");
        other.write_all_at(&[8; 100_000], 12 * MIB).expect("append");
        other.sync_all().expect("sync");
        file.blocking_read_at(&mut buf[..], 12 * MIB).expect("read");
        drop(file);
        let appended: BTreeSet<u64> =
            (12 * MIB / PAGE..(12 * MIB + 100_000).div_ceil(PAGE)).collect();
        let sample = Sample {
            path,
            content: Vec::new(),
        };
        wait_until("all other pages are evicted", || {
            let after = seen(&sample.path);
            after.is_superset(&appended) && after.len() < appended.len() + 2
        });
    }
}

#[test]
fn pages_that_others_read_between_two_uses_stay() {
    each(3 * MIB, |sample, engine, _| {
        arrange(sample, &BTreeSet::new());
        // After a read of the whole file, no readahead is in progress, which mincore(2) would not report.
        check(&open(engine, &sample.path, false), sample, 0, 3 << 20);
        assert_kept(sample, &BTreeSet::new());
        wait_until("no eviction is left to do", || !is_held(&sample.path));
        sample.touch(700 * PAGE..701 * PAGE);
        let cached = seen(&sample.path);
        check(&open(engine, &sample.path, false), sample, 0, 3 << 20);
        assert_kept(sample, &cached);
        wait_until("no eviction is left to do", || !is_held(&sample.path));
        assert_kept(sample, &cached);
    });
}

/// A locked page is not evicted when the file is closed, and again and again later.
#[test]
fn pages_that_others_read_stay_while_a_page_that_stayed_is_evicted_again() {
    each(20 * MIB, |sample, engine, _| {
        let stays = 5 * PAGE..6 * PAGE;
        // Another program's read between an eviction and the question which pages stayed counts as a page that stayed.
        let excuses = [Excuse::Reclaimed(&[&sample.path]), Excuse::AnyPreempted];
        repeat("the page of another", &excuses, || {
            wait_until("no eviction is left to do", || !is_held(&sample.path));
            arrange(sample, &BTreeSet::new());
            let file = open(engine, &sample.path, false);
            check(&file, sample, 0, 3 << 20);
            let locked = Locked::new(&sample.path, std::iter::once(stays.clone()));
            drop(file);
            wait_until("all other pages are evicted", || {
                seen(&sample.path) == BTreeSet::from([5])
            });
            sample.touch(700 * PAGE..701 * PAGE);
            drop(locked);
            wait_until("the page is evicted", || !seen(&sample.path).contains(&5));
            wait_until("no eviction is left to do", || !is_held(&sample.path));
            let after = seen(&sample.path);
            (after == BTreeSet::from([700])).then_some(()).ok_or(after)
        });
    });
}

/// A page that stayed when the file was closed was not resident before the next use.
#[test]
fn pages_that_stayed_are_evicted_after_the_next_use() {
    each(20 * MIB, |sample, engine, _| {
        arrange(sample, &BTreeSet::new());
        let file = open(engine, &sample.path, false);
        check(&file, sample, 0, 3 << 20);
        let locked = Locked::new(&sample.path, std::iter::once(5 * PAGE..6 * PAGE));
        drop(file);
        wait_until("all other pages are evicted", || {
            seen(&sample.path) == BTreeSet::from([5])
        });
        let file = open(engine, &sample.path, false);
        check(&file, sample, 0, 3 << 20);
        drop(locked);
        drop(file);
        assert_kept(sample, &BTreeSet::new());
    });
}

/// A cached page may be the mark at which the kernel continues a readahead.
#[test]
fn a_readahead_that_a_cached_read_continues_leaves_no_pages() {
    for filesystem in filesystems() {
        if let Some((_mount, sample)) = sample(filesystem, 20 * MIB) {
            read_to_the_mark(&Engine::new().expect("an engine"), &sample);
        }
    }
}

/// Reads the pages that another reader has made resident.
fn read_to_the_mark(engine: &Engine, sample: &Sample) {
    wait_until("no eviction is left to do", || !is_held(&sample.path));
    sample.evict();
    let other = fs::File::open(&sample.path).expect("open");
    other
        .read_exact_at(&mut [0; 4 * PAGE as usize], 0)
        .expect("read");
    // The disk has read ahead.
    let pause = || std::thread::sleep(Duration::from_millis(50));
    pause();
    let cached = seen(&sample.path);
    let file = open(engine, &sample.path, false);
    for page in &cached {
        check(&file, sample, page * PAGE, PAGE as usize);
    }
    drop(file);
    pause();
    assert_kept(sample, &cached);
}

/// The kernel reads further ahead on a disk whose readahead is longer (`read_ahead_kb`), and twice
/// as far after POSIX_FADV_SEQUENTIAL.
#[test]
fn a_long_readahead_leaves_no_pages() {
    for filesystem in [Filesystem::Ext4, Filesystem::Overlay] {
        let Some((mount, sample)) = sample(filesystem, 128 * MIB) else {
            continue;
        };
        let device = mount.device().expect("a device");
        device
            .set_read_ahead_kb(16 << 10)
            .expect("set the readahead");
        let engine = Engine::new().expect("an engine");
        keeps(&sample, &BTreeSet::new(), || {
            let file = open(&engine, &sample.path, false);
            rustix::fs::fadvise(&file, 0, None, Advice::Sequential).expect("fadvise");
            let mut farthest = 0;
            for at in (0..80 * MIB).step_by(1 << 20) {
                check(&file, &sample, at, 1 << 20);
                let end = seen(&sample.path)
                    .last()
                    .map_or(0, |page| (page + 1) * PAGE);
                farthest = farthest.max(end - at);
            }
            assert!(
                farthest > 34 * MIB,
                "the kernel reads far ahead: {farthest}"
            );
        });
    }
}

/// On overlayfs, no call reports a page that is being read. The file is closed, or closed and opened again, before the
/// disk has read what the kernel reads ahead.
#[test]
fn a_readahead_of_a_slow_disk_leaves_no_pages() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Overlay.available());
    let disk = SlowDisk::builder().latency(Duration::from_millis(20));
    let disk = disk.size(256 * MIB).build().expect("a slow disk");
    let base = TestMount::on(&disk, Filesystem::Ext4).expect("a fresh filesystem");
    fs::create_dir(base.path().join("lower")).expect("mkdir");
    let Sample { content, .. } = Sample::new(&base.path().join("lower"), "file", 20 * MIB);
    let mount = TestMount::overlay(base).expect("an overlay");
    let path = mount.path().join("file");
    let sample = Sample { path, content };
    for backend in backends() {
        let engine = Options::new().backend(backend).build().expect("an engine");
        let read = || {
            let file = open(&engine, &sample.path, false);
            check(&file, &sample, 0, 300_000);
            file
        };
        // The readahead is complete, or nearly.
        let pause = || std::thread::sleep(Duration::from_millis(25));
        keeps(&sample, &BTreeSet::new(), || drop(read()));
        keeps(&sample, &BTreeSet::new(), || {
            drop(read());
            pause();
            drop(read());
        });
        read_to_the_mark(&engine, &sample);
        // A page that stays is none that another program has read. The disk is slow enough for the lock.
        disk.set_latency(Duration::from_millis(60));
        keeps(&sample, &BTreeSet::new(), || {
            let first = read();
            let end = (seen(&sample.path).last().expect("pages") + 1) * PAGE;
            rustix::fs::fadvise(&first, end, NonZero::new(64 * PAGE), Advice::WillNeed)
                .expect("fadvise");
            let locked = Locked::new(&sample.path, std::iter::once(5 * PAGE..6 * PAGE));
            drop(first);
            std::thread::sleep(Duration::from_millis(100));
            let second = read();
            drop(locked);
            drop(second);
        });
        disk.set_latency(Duration::from_millis(20));
    }
}

#[test]
fn a_future_that_is_dropped_leaves_no_pages() {
    each(20 * MIB, |sample, engine, _| {
        keeps(sample, &BTreeSet::new(), || {
            let file = open(engine, &sample.path, true);
            for at in (0..18 * MIB).step_by(3 << 20) {
                let mut read = pin!(file.read_at(vec![0; 1 << 20], at));
                let mut context = Context::from_waker(Waker::noop());
                let _ = read.as_mut().poll(&mut context);
            }
        });
    });
}

#[test]
fn a_file_that_is_opened_again_while_its_pages_are_written_leaves_none() {
    each(20 * MIB, |sample, engine, _| {
        keeps(sample, &BTreeSet::new(), || {
            for at in [0, 9 * MIB, 17 * MIB] {
                let file = open(engine, &sample.path, true);
                let bytes = sample.expected(at, 1 << 20);
                file.blocking_write_all_at(bytes, at).expect("write");
                drop(file);
                let file = open(engine, &sample.path, false);
                check(&file, sample, at, 2 << 20);
            }
        });
    });
}

/// A window is evicted after eight others were used, and not earlier.
#[test]
fn random_reads_of_few_windows_read_each_page_once() {
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", 160 * MIB);
    sample.evict();
    let engine = Engine::new().expect("an engine");
    let file = open(&engine, &sample.path, false);
    let places = [150, 10, 110, 60].map(|mib| mib * MIB);
    let read = |at| pollster::block_on(file.read_at(vec![0; PAGE as usize], at));
    places.into_iter().for_each(|at| drop(read(at)));
    for _ in 0..10 {
        for at in places {
            let done = read(at);
            assert_eq!(done.provenance.cached, PAGE as usize, "{at}");
            assert!(done.buf == sample.expected(at, PAGE as usize));
        }
    }
}

#[test]
fn appended_pages_are_evicted() {
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", 9 * MIB + 1);
    let engine = Engine::new().expect("an engine");
    keeps(&sample, &BTreeSet::new(), || {
        let file = open(&engine, &sample.path, true);
        let append = file.write_at(vec![1; 3 * PAGE as usize], 0);
        let append = append.flags(nowait::RwFlags::APPEND);
        pollster::block_on(append).result.expect("append");
        file.blocking_sync_all().expect("sync");
    });
}

#[test]
fn a_program_that_was_just_written_can_be_executed() {
    let mount = mounted!(Filesystem::Ext4);
    let engine = Engine::new().expect("an engine");
    let Ok(program) = fs::read("/bin/true") else {
        return slowdisk::skip_or_fail("/bin/true is missing");
    };
    for number in 0..20 {
        let path = mount.path().join(format!("{number}"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o755).engine(&engine);
        let file = options.keep_cache(true).blocking_open(&path).expect("open");
        file.blocking_write_all_at(&program, 0).expect("write");
        drop(file);
        assert!(!is_open_for_writing(&path), "{}", path.display());
        // A child that another test starts has a copy of the descriptor until its execve(2).
        wait_until("the program can be executed", || {
            let status = std::process::Command::new(&path).status();
            match status {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => false,
                status => status.expect("executed").success(),
            }
        });
    }
}

/// True if this process has a descriptor of the file that it may write with.
fn is_open_for_writing(path: &Path) -> bool {
    flags_of(path).any(|flags| flags & 3 != 0)
}

/// The flags of the descriptors of a file that this process has.
fn flags_of(path: &Path) -> impl Iterator<Item = u32> {
    let descriptors = fs::read_dir("/proc/self/fd").expect("descriptors");
    let of_file = |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|to| to == path);
    let descriptors: Vec<_> = descriptors.flatten().filter(of_file).collect();
    descriptors.into_iter().filter_map(|fd| {
        let name = fd.file_name().into_string().expect("a number");
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{name}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    })
}

#[test]
fn holes_leave_no_pages() {
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let data = MIB..2 * MIB;
        let sample = Sample::sparse(mount.path(), "sparse", 70 * MIB, &[data]);
        let engine = Engine::new().expect("an engine");
        keeps(&sample, &BTreeSet::new(), || {
            check(&open(&engine, &sample.path, false), &sample, 0, 70 << 20);
        });
    }
}

#[test]
fn the_last_block_leaves_no_pages_if_blocks_are_larger_than_pages() {
    slowdisk::require!(Filesystem::Xfs.available());
    let mount = TestMount::builder(Filesystem::Xfs).mkfs_arg("-bsize=16384");
    let mount = slowdisk::require!(mount.build());
    let sample = Sample::new(mount.path(), "file", MIB + 1);
    let engine = Engine::new().expect("an engine");
    keeps(&sample, &BTreeSet::new(), || {
        check(&open(&engine, &sample.path, false), &sample, 0, 2 << 20);
    });
}

#[test]
fn another_users_file_is_read_and_nothing_is_evicted() {
    const NAME: &str = "NOWAIT_TEST_FILE";
    if role().is_some() {
        let path = PathBuf::from(std::env::var_os(NAME).expect("a file"));
        for mode in [Mode::Eager, Mode::Strict] {
            let mut options = OpenOptions::new();
            options.read(true).keep_cache(true).cache_mode(mode);
            let file = options.blocking_open(&path).expect("open");
            assert_eq!(file.keeps_cache(), Err(Reason::NotOurs));
            let mut buf = vec![0; 1 << 20];
            file.blocking_read_exact_at(&mut buf[..], 0).expect("read");
        }
        return;
    }
    for filesystem in filesystems() {
        let Some((mount, sample)) = sample(filesystem, 2 * MIB) else {
            continue;
        };
        fs::set_permissions(&sample.path, fs::Permissions::from_mode(0o644)).expect("chmod");
        let cached: BTreeSet<u64> = (100..200).collect();
        arrange(&sample, &cached);
        open_the_way(mount.path());
        in_child_as_nobody(filesystem.name(), |command| {
            command.env(NAME, &sample.path);
        });
        let after = seen(&sample.path);
        assert!(after.is_superset(&cached), "{filesystem}");
        assert!(
            after.is_superset(&(0..MIB / PAGE).collect()),
            "{filesystem}"
        );
    }
}

#[test]
fn files_in_memory_and_devices_are_read_as_usual() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory on tmpfs");
    let path = dir.path().join("file");
    fs::write(&path, b"bytes").expect("write");
    for path in [path.as_path(), Path::new("/dev/zero")] {
        let file = OpenOptions::new()
            .read(true)
            .keep_cache(true)
            .blocking_open(path)
            .expect("open");
        assert_eq!(file.keeps_cache(), Ok(false));
        assert_eq!(file.blocking_read_at(&mut [0; 4], 0).expect("read"), 4);
    }
}

#[test]
fn many_files_are_read_and_the_cache_is_as_before() {
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let samples: Vec<Sample> = (0..60u64)
            .map(|i| Sample::new(mount.path(), &format!("{i}"), i * 7_001))
            .collect();
        let cached = |i: u64| -> BTreeSet<u64> {
            let pages = (i * 7_001).div_ceil(PAGE);
            (0..pages)
                .filter(|page| match i % 3 {
                    0 => true,
                    1 => page % 4 == 1,
                    _ => false,
                })
                .collect()
        };
        let numbered = || (0..).zip(&samples).skip(1);
        // A page that is reclaimed before its file is surveyed is read, and evicted.
        repeat("the cache is as before", &[Excuse::AnyReclaimed], || {
            for (i, sample) in numbered() {
                arrange(sample, &cached(i));
            }
            let paths = samples.iter().map(|sample| sample.path.clone());
            let files = nowait::read_files::Options::new()
                .in_order(true)
                .keep_cache(true);
            for (file, sample) in files.read(paths).zip(&samples) {
                assert!(file.expect("read").bytes() == sample.content);
            }
            let gone = |(i, sample): (u64, &Sample)| gone(sample, &cached(i));
            let gone: Vec<_> = numbered().map(gone).filter(|it| !it.is_empty()).collect();
            gone.is_empty().then_some(()).ok_or(gone)
        });
    }
}
