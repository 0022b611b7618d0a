//! Residency, compared with pages that the test has cached itself: it evicts a file and reads chosen pages
//! without readahead. Every page, run, prefix and count must match.
#![allow(unsafe_code, reason = "fcntl(2)")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use nowait::Handle;
use nowait::residency::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::{Excuse, repeat};

use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;
use crate::common::mounts::ON_DISK;
use crate::common::samples::Sample;
use crate::common::wait::wait_until;
use crate::overlay::overlay_with;

const MIB: u64 = 1 << 20;

fn page() -> u64 {
    page_size()
}

/// A file on this filesystem; on overlayfs, of the lower layer.
fn sample(filesystem: Filesystem, size: u64) -> (TestMount, Sample) {
    if filesystem == Filesystem::Overlay {
        return overlay_with("file", size);
    }
    let mount = TestMount::new(filesystem).expect("a fresh filesystem");
    let sample = Sample::new(mount.path(), "file", size);
    (mount, sample)
}

/// Returns true if cachestat(2) works for an ordinary file of the process.
fn has_cachestat() -> bool {
    nowait::support::Kernel::get().cachestat.is_yes()
}

/// The sources that tell the truth on this filesystem.
fn sources(filesystem: Filesystem) -> Vec<Source> {
    if filesystem != Filesystem::Overlay && has_cachestat() {
        vec![Source::Cachestat, Source::Mincore]
    } else {
        vec![Source::Mincore]
    }
}

/// All probes of a file: the one that the library chooses, and each source by itself.
fn askers<'a>(filesystem: Filesystem, fd: &'a File) -> Vec<Probe<'a>> {
    let chosen = Probe::new(fd).expect("a choice");
    assert_eq!(chosen.source(), Ok(sources(filesystem)[0]), "{filesystem}");
    let alone = sources(filesystem).into_iter();
    let alone = alone.map(|source| Probe::only(source, fd).expect("that source"));
    [chosen].into_iter().chain(alone).collect()
}

/// The cached pages of a file, by a plain mincore(2) of all of it.
pub fn seen(path: &Path) -> BTreeSet<u64> {
    let pages = (0..).zip(test_support::pages::resident(path));
    pages.filter(|(_, is)| *is).map(|(page, _)| page).collect()
}

/// The runs of adjacent pages.
fn runs(pages: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(last) if last.end == *page => last.end += 1,
            _ => runs.push(*page..page + 1),
        }
    }
    runs
}

/// Makes exactly these pages of a file cached.
pub fn arrange(sample: &Sample, cached: &BTreeSet<u64>) {
    // A page in a per-processor queue is not evicted at the first try.
    test_support::wait_until("the pages are arranged", || {
        sample.evict();
        let file = sample.open();
        // A run takes one request of the device.
        for run in runs(cached) {
            let mut pages = vec![0; ((run.end - run.start) * page()) as usize];
            file.read_at(&mut pages, run.start * page()).expect("read");
        }
        seen(&sample.path) == *cached
    });
}

/// Runs a test while exactly these pages of a file are cached. The test runs again if the kernel has reclaimed some.
fn while_cached(sample: &Sample, cached: &BTreeSet<u64>, test: impl Fn()) {
    let gone = || {
        let gone = cached - &seen(&sample.path);
        (!gone.is_empty()).then(|| format!("pages are gone: {gone:?}"))
    };
    repeat("residency", &[Excuse::Other(&gone)], || {
        arrange(sample, cached);
        catch_unwind(AssertUnwindSafe(&test))
    });
}

#[track_caller]
fn known<T>(answer: nowait::residency::Result<Answer<T>>) -> T {
    match answer.expect("an answer") {
        Answer::Known { value, .. } => value,
        Answer::Unknown(reason) => panic!("unknown: {reason}"),
    }
}

#[track_caller]
fn unknown<T: std::fmt::Debug>(answer: nowait::residency::Result<Answer<T>>) -> Reason {
    match answer.expect("an answer") {
        Answer::Unknown(reason) => {
            assert!(reason.to_string().len() > 40, "{reason}");
            reason
        }
        known => panic!("{known:?}"),
    }
}

/// Compares all answers about a range with the known state of each page.
fn compare(probe: &Probe<'_>, size: u64, cached: impl Fn(u64) -> bool, range: Range<u64>) {
    let who = format!("{:?} {range:?} of {size}", probe.source());
    let within = |size: u64| range.start..range.end.min(size).max(range.start);
    let pages_of = |range: &Range<u64>| match range.is_empty() {
        true => 0..0,
        false => range.start / page()..range.end.div_ceil(page()),
    };
    let in_file = within(size);
    // A range that begins after the end of the file touches the file's last page, or none.
    let clipped = match range.start < size {
        true => in_file.clone(),
        false => within(size.next_multiple_of(page())),
    };
    let pages = pages_of(&clipped);
    let count = pages.clone().filter(|p| cached(*p)).count() as u64;

    let sum = known(probe.residency(range.clone()));
    assert_eq!(
        (sum.pages, sum.cached),
        (pages.end - pages.start, count),
        "{who}"
    );
    assert_eq!(sum.dirty.is_some(), probe.source() == Ok(Source::Cachestat));

    let gap = pages_of(&in_file).find(|p| !cached(*p));
    let prefix = gap
        .map_or(in_file.end, |gap| gap * page())
        .max(in_file.start)
        - in_file.start;
    let len = range.end - range.start;
    assert_eq!(
        known(probe.resident_prefix(range.start, len)),
        prefix,
        "{who}"
    );

    let whole = probe.is_resident(range.start, len);
    assert_eq!(known(whole), gap.is_none(), "{who}");

    let map = known(probe.page_map(range.clone()));
    assert_eq!(map.range(), clipped, "{who}");
    assert_eq!(map.resident_prefix(), prefix, "{who}");
    assert_eq!(
        (map.pages(), map.cached()),
        (pages.end - pages.start, count),
        "{who}"
    );
    for p in pages.start.saturating_sub(3)..pages.end + 3 {
        let want = pages.contains(&p) && cached(p);
        for offset in [p * page(), p * page() + page() - 1] {
            assert_eq!(map.is_resident(offset), want, "{who}: page {p}");
        }
    }
    let mut next = clipped.start;
    let mut last = None;
    for run in map.runs() {
        assert_eq!(run.range.start, next, "{who}");
        assert!(
            run.range.end > next && last != Some(run.resident),
            "{who}: {run:?}"
        );
        for p in run.range.start / page()..run.range.end.div_ceil(page()) {
            assert_eq!(cached(p), run.resident, "{who}: page {p} in {run:?}");
        }
        (next, last) = (run.range.end, Some(run.resident));
    }
    assert_eq!(next, clipped.end, "{who}");
    let resident: u64 = map.resident().map(|r| r.end - r.start).sum();
    let runs = map.runs().filter(|run| run.resident);
    assert_eq!(
        resident,
        runs.map(|r| r.range.end - r.range.start).sum::<u64>()
    );
}

/// A file of 70 pages and a part of one, with several patterns of cached pages and all questions.
#[test]
fn every_page_is_told_as_it_is() {
    for filesystem in Filesystem::ALL {
        slowdisk::require!(filesystem.available());
        let size = 70 * page() + 123;
        let (_mount, sample) = sample(filesystem, size);
        let file = sample.open();
        let patterns: [Box<dyn Fn(u64) -> bool>; 7] = [
            Box::new(|_| true),
            Box::new(|_| false),
            Box::new(|p| p % 2 == 0),
            Box::new(|p| p % 2 == 1),
            Box::new(|p| p < 37),
            Box::new(|p| p > 37),
            Box::new(|p| p == 70),
        ];
        for pattern in patterns {
            // A tmpfs keeps its pages.
            let cached = |p: u64| filesystem == Filesystem::Tmpfs || pattern(p);
            let pages = (0..71).filter(|p| cached(*p)).collect();
            while_cached(&sample, &pages, || {
                for probe in askers(filesystem, &file) {
                    for range in [
                        0..u64::MAX,
                        0..size,
                        0..0,
                        0..1,
                        page() - 1..page() + 1,
                        page() / 2..10 * page() + page() / 2,
                        3 * page()..40 * page(),
                        36 * page() + 1..39 * page() - 1,
                        69 * page() + 5..size,
                        size - 1..size,
                        size - 1..u64::MAX,
                        size..size + 1,
                        size + 7..size + 7,
                        size + 7..u64::MAX,
                        71 * page() - 1..72 * page(),
                        71 * page()..72 * page(),
                        size + 1000 * page()..u64::MAX,
                        u64::MAX..u64::MAX,
                    ] {
                        compare(&probe, size, cached, range);
                    }
                }
            });
        }
    }
}

#[test]
fn random_patterns() {
    let size = 300 * page() - 77;
    for filesystem in ON_DISK.into_iter().chain([Filesystem::Overlay]) {
        slowdisk::require!(filesystem.available());
        let (_mount, sample) = sample(filesystem, size);
        let file = sample.open();
        let mut runner = TestRunner::new(Config {
            failure_persistence: None,
            cases: Config::default().cases.min(60),
            ..Config::default()
        });
        // Runs of every length, from single pages to most of the file.
        let runs = prop::collection::vec((0..300u64, 1..6u32), 0..40);
        let ranges = prop::collection::vec((0..size + 9000, 0..size + 9000), 1..6);
        runner
            .run(&(runs, ranges), |(runs, ranges)| {
                let run = |(start, log): (u64, u32)| start..(start + (1 << (log - 1))).min(300);
                let cached: BTreeSet<u64> = runs.into_iter().flat_map(run).collect();
                while_cached(&sample, &cached, || {
                    for probe in askers(filesystem, &file) {
                        for (a, b) in &ranges {
                            let range = *a.min(b)..*a.max(b);
                            compare(&probe, size, |p| cached.contains(&p), range);
                        }
                    }
                });
                Ok(())
            })
            .expect("a property");
    }
}

/// The cache is so fragmented that mincore(2) is used besides cachestat(2), and the file so large that bits
/// replace runs.
#[test]
fn every_other_page_of_a_large_file() {
    let pages = 20_000;
    let size = pages * page() - 5;
    for filesystem in [Filesystem::Ext4, Filesystem::Overlay] {
        slowdisk::require!(filesystem.available());
        let (_mount, sample) = sample(filesystem, size);
        let file = sample.open();
        // In the middle, a range that is cached and one that is not.
        let cached = |p: u64| match p {
            9_000..10_000 => true,
            10_000..11_000 => false,
            p => p % 2 == 1,
        };
        let arranged = (0..pages).filter(|p| cached(*p)).collect();
        while_cached(&sample, &arranged, || {
            for probe in askers(filesystem, &file) {
                compare(&probe, size, cached, 0..u64::MAX);
                compare(&probe, size, cached, 8_000 * page() + 1..10_500 * page());
                compare(&probe, size, cached, 9_100 * page()..size);
            }
        });
    }
}

#[test]
fn a_file_that_shrinks_and_grows() {
    for filesystem in Filesystem::ALL {
        slowdisk::require!(filesystem.available());
        let (_mount, sample) = sample(filesystem, 40 * page());
        let writer = File::options()
            .write(true)
            .open(&sample.path)
            .expect("open");
        // On overlayfs, a file of the upper layer.
        writer.write_all_at(b"x", 0).expect("write");
        let file = sample.open();
        // The probe was made before: it uses the present size of the file.
        let askers = askers(filesystem, &file);
        let handle = nowait::File::from_fd(
            file.try_clone().expect("dup"),
            &nowait::Engine::new().expect("an engine"),
        )
        .expect("a file");
        let all = |size: u64, cached: &dyn Fn(u64) -> bool| {
            for probe in &askers {
                compare(probe, size, cached, 0..u64::MAX);
            }
            let pages = size.div_ceil(page());
            let count = (0..pages).filter(|p| cached(*p)).count() as u64;
            assert_eq!(
                known(handle.residency().residency(0..u64::MAX)).cached,
                count
            );
            let gap = (0..pages)
                .find(|p| !cached(*p))
                .map_or(size, |p| p * page());
            assert_eq!(known(handle.residency().resident_prefix(0, u64::MAX)), gap);
        };
        sample.warm();
        all(40 * page(), &|_| true);
        for size in [30 * page() + 1, 30 * page(), 1, 0] {
            writer.set_len(size).expect("truncate");
            all(size, &|_| true);
        }
        // The new part is a hole that was never read.
        writer.set_len(20 * page()).expect("grow");
        all(20 * page(), &|_| false);
        writer
            .write_all_at(&vec![1; 5 * page() as usize], 10 * page())
            .expect("write");
        all(20 * page(), &|p| (10..15).contains(&p));
        // Beyond the end of the mapping.
        let far = 40 * MIB;
        writer.write_all_at(&[1], far).expect("write");
        all(far + 1, &|p| (10..15).contains(&p) || p == far / page());
    }
}

/// A hole that was read is cached like other pages.
#[test]
fn holes() {
    for filesystem in ON_DISK {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::new(filesystem).expect("a fresh filesystem");
        let size = 100 * page();
        let data = [10 * page()..20 * page(), 90 * page()..size];
        let sample = Sample::sparse(mount.path(), "holes", size, &data);
        let file = sample.open();
        let cached: BTreeSet<u64> = [3, 4, 9, 10, 19, 20, 50, 89, 95].into();
        while_cached(&sample, &cached, || {
            for probe in askers(filesystem, &file) {
                compare(&probe, size, |p| cached.contains(&p), 0..u64::MAX);
            }
        });
    }
}

/// A file of two tebibytes that is nearly all hole. It must not be scanned page by page, which would take
/// minutes.
#[test]
fn a_survey_does_not_break_the_lease_of_its_own_descriptor() {
    let dir = scratch();
    let path = dir.path().join("leased");
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path);
    let file = file.expect("open");
    file.set_len(1 << 30).expect("set_len");
    file.write_all_at(&vec![7; page() as usize], 0)
        .expect("write");
    let lease = |command, kind: libc::c_int| {
        // SAFETY: F_SETSIG, F_SETLEASE and F_GETLEASE take an int.
        unsafe { libc::fcntl(file.as_raw_fd(), command, kind) }
    };
    // F_SETSIG of fcntl(2): a signal that is ignored without a handler reports a break.
    assert_eq!(lease(10, libc::SIGURG), 0);
    let write = libc::c_int::from(libc::F_WRLCK);
    if lease(libc::F_SETLEASE, write) != 0 {
        return slowdisk::skip_or_fail("leases");
    }
    let probe = Probe::only(Source::Mincore, &file).expect("a mapping");
    assert_eq!(known(probe.page_map(0..u64::MAX)).cached(), 1);
    assert_eq!(lease(libc::F_GETLEASE, 0), write);
}

#[test]
fn a_giant_hole() {
    const TIB: u64 = 1 << 40;
    for filesystem in [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
    ] {
        slowdisk::require!(filesystem.available());
        let _limit = Limit::new(filesystem.to_string());
        let mount = TestMount::new(filesystem).expect("a fresh filesystem");
        let path = mount.path().join("giant");
        let file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path);
        let file = file.expect("open");
        file.set_len(2 * TIB + 5).expect("set_len");
        file.write_all_at(&vec![7; 10 * page() as usize], TIB)
            .expect("write");
        file.write_all_at(b"end", 2 * TIB).expect("write");
        for probe in askers(filesystem, &file) {
            let sum = known(probe.residency(0..u64::MAX));
            assert_eq!((sum.pages, sum.cached), (2 * TIB / page() + 1, 11));
            // Only mincore(2) reports a range that was not looked at.
            let skips = probe.source() == Ok(Source::Mincore);
            assert_eq!(sum.unasked > 0, skips);
            assert_eq!(known(probe.resident_prefix(0, u64::MAX)), 0);
            assert_eq!(
                known(probe.resident_prefix(TIB + 1, u64::MAX - 2 * TIB)),
                10 * page() - 1
            );
            let map = known(probe.page_map(0..u64::MAX));
            let runs: Vec<Run> = map.runs().collect();
            assert_eq!(
                (runs.len(), map.cached()),
                (4, 11),
                "{filesystem}: {runs:?}"
            );
            assert_eq!(runs[1].range, TIB..TIB + 10 * page());
            assert_eq!(runs[3].range, 2 * TIB..2 * TIB + 5);
            assert_eq!(map.unasked() > 0, skips);
        }
    }
}

#[test]
fn the_position_of_the_callers_file_stays() {
    let filesystem = Filesystem::Ext4;
    slowdisk::require!(filesystem.available());
    let mount = TestMount::new(filesystem).expect("a fresh filesystem");
    let mut file = File::create_new(mount.path().join("file")).expect("a file");
    file.write_all(b"0123456789").expect("write");
    file.set_len(1 << 40).expect("set_len");
    for source in sources(filesystem) {
        let file = File::options()
            .read(true)
            .open(mount.path().join("file"))
            .expect("open");
        let probe = Probe::only(source, &file).expect("an probe");
        known(probe.page_map(0..u64::MAX));
        assert_eq!(rustix::fs::tell(&file), Ok(0));
    }
}

#[test]
fn what_can_not_be_asked_is_an_error() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 10_000);
    let file = File::open(&path).expect("open");
    let backwards = std::ops::Range { start: 2, end: 1 };
    for error in [
        page_map(&file, backwards.clone()).expect_err("backwards"),
        residency(&file, backwards).expect_err("backwards"),
        resident_prefix(&file, 1, u64::MAX).expect_err("beyond u64"),
        resident_prefix(&file, u64::MAX, 1).expect_err("beyond u64"),
        Probe::new(&file)
            .expect("an probe")
            .is_resident(2, u64::MAX)
            .expect_err("beyond u64"),
    ] {
        assert!(error.is_invalid_range(), "{error}");
    }
    // An O_PATH descriptor.
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let named = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).expect("open");
    let error = residency(&named, 0..10).expect_err("O_PATH");
    assert_eq!(error.errno(), Some(libc::EBADF));
    let io: std::io::Error = error.into();
    assert!(io.to_string().contains("residency"), "{io}");
    // The error of a file that was opened by path names it.
    let file = nowait::File::blocking_open(&path).expect("open");
    let error = file
        .residency()
        .resident_prefix(1, u64::MAX)
        .expect_err("beyond u64");
    assert_eq!(error.path().map(|it| &**it), Some(path.as_path()));
}

#[test]
fn what_has_no_pages_is_unknown() {
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let fds: [OwnedFd; 4] = [
        reader.into(),
        socket.into(),
        File::open("/").expect("a directory").into(),
        File::open("/dev/null").expect("/dev/null").into(),
    ];
    for fd in fds {
        assert_eq!(unknown(resident_prefix(&fd, 0, 10)), Reason::NotAFile);
        assert_eq!(unknown(page_map(&fd, 0..10)), Reason::NotAFile);
        assert_eq!(unknown(residency(&fd, 0..10)), Reason::NotAFile);
        assert_eq!(
            Probe::new(&fd).expect("an probe").source(),
            Err(Reason::NotAFile)
        );
        let file = nowait::File::from_fd(fd, &nowait::Engine::new().expect("an engine"));
        assert_eq!(
            unknown(file.expect("a file").residency().residency(0..u64::MAX)),
            Reason::NotAFile
        );
    }
}

/// Huge pages are always resident. cachestat(2) refuses them; mincore(2) reports pages as missing that this
/// process has not touched.
#[test]
fn huge_pages_are_unknown() {
    let Ok(fd) = memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::CLOEXEC) else {
        return slowdisk::skip_or_fail("this kernel has no hugetlbfs");
    };
    // Its pages need not exist.
    rustix::fs::ftruncate(&fd, 4 * MIB).expect("ftruncate");
    assert_eq!(unknown(residency(&fd, 0..u64::MAX)), Reason::HugePages);
}

#[test]
fn files_of_the_kernels_own() {
    // The file has bytes and size 0: nothing of it is cached.
    let file = File::open("/proc/self/maps").expect("open");
    match residency(&file, 0..u64::MAX).expect("an answer") {
        Answer::Known { value, .. } => assert_eq!((value.pages, value.cached), (0, 0)),
        Answer::Unknown(reason) => assert!(matches!(reason, Reason::NoMapping(_)), "{reason}"),
    }
}

/// A file that is open for writing only can't be mapped, and need not be where cachestat works.
#[test]
fn a_file_that_is_open_for_writing_only() {
    for filesystem in [Filesystem::Ext4, Filesystem::Overlay] {
        slowdisk::require!(filesystem.available());
        let (mount, _) = sample(filesystem, 1);
        let path = mount.path().join("new");
        let file = File::create(&path).expect("create");
        // So fragmented that mincore(2) would be used.
        let pages = 4096;
        for p in (0..pages).step_by(2) {
            file.write_all_at(&vec![1; page() as usize], p * page())
                .expect("write");
        }
        file.set_len(pages * page()).expect("set_len");
        if filesystem == Filesystem::Ext4 && has_cachestat() {
            let probe = Probe::new(&file).expect("an probe");
            assert_eq!(probe.source(), Ok(Source::Cachestat));
            compare(&probe, pages * page(), |p| p % 2 == 0, 0..u64::MAX);
        } else if filesystem == Filesystem::Ext4 {
            assert_eq!(unknown(residency(&file, 0..1)), Reason::NotReadable);
        } else {
            // On overlayfs the library opens it again, for files that are copied up.
            let probe = Probe::new(&file).expect("an probe");
            compare(&probe, pages * page(), |p| p % 2 == 0, 0..u64::MAX);
        }
    }
}

#[test]
fn dirty_pages_and_pages_on_their_way() {
    if !has_cachestat() {
        return slowdisk::skip_or_fail("cachestat(2) is missing (Linux 6.5)");
    }
    for filesystem in ON_DISK {
        slowdisk::require!(slowdisk::available());
        slowdisk::require!(filesystem.available());
        let disk = SlowDisk::builder().size(512 * MIB).build().expect("a disk");
        let mount = TestMount::on(&disk, filesystem).expect("a filesystem");
        let sample = Sample::new(mount.path(), "file", 64 * page());
        // Single pages: a large folio is dirty as a whole.
        arrange(&sample, &(0..64).collect());
        let file = File::options()
            .write(true)
            .open(&sample.path)
            .expect("open");
        let count = || known(residency(&file, 0..u64::MAX));
        assert_eq!(
            (count().cached, count().dirty, count().writeback),
            (64, Some(0), Some(0))
        );
        file.write_all_at(&vec![2; 7 * page() as usize + 1], 3 * page())
            .expect("write");
        assert_eq!(
            (count().cached, count().dirty, count().writeback),
            (64, Some(8), Some(0))
        );
        let half = known(residency(&file, 0..5 * page()));
        assert_eq!((half.pages, half.dirty), (5, Some(2)));
        // While the disk is stalled, the pages are under writeback.
        let stall = disk.inject(Fault::stall(0..disk.size()).writes_only());
        std::thread::scope(|scope| {
            scope.spawn(|| file.sync_all().expect("sync"));
            wait_until("writeback", || count().writeback == Some(8));
            let meanwhile = count();
            disk.release(stall);
            assert_eq!(
                (meanwhile.cached, meanwhile.dirty),
                (64, Some(0)),
                "{filesystem}"
            );
        });
        assert_eq!(
            (count().cached, count().dirty, count().writeback),
            (64, Some(0), Some(0))
        );
    }
}

/// A page whose read is in flight is cached for cachestat(2), and not yet for mincore(2).
#[test]
fn a_page_that_is_being_read() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Ext4.available());
    let disk = SlowDisk::builder().size(512 * MIB).build().expect("a disk");
    let mount = TestMount::on(&disk, Filesystem::Ext4).expect("a filesystem");
    let sample = Sample::new(mount.path(), "file", 10 * page());
    let file = sample.open();
    arrange(&sample, &BTreeSet::new());
    let stall = disk.inject(Fault::stall(0..disk.size()).reads_only());
    std::thread::scope(|scope| {
        scope.spawn(|| sample.touch(3 * page()..4 * page()));
        wait_until("a stalled read", || disk.stalled() > 0);
        let asked = askers(Filesystem::Ext4, &file).into_iter().map(|probe| {
            let there = known(probe.residency(0..u64::MAX)).cached;
            (probe.source(), there)
        });
        let told: Vec<_> = asked.collect();
        disk.release(stall);
        for (source, there) in told {
            let counted = source == Ok(Source::Cachestat);
            assert_eq!(there, u64::from(counted), "{source:?}");
        }
    });
}

/// The page cache of a device differs from that of the files on it.
#[test]
fn a_block_device() {
    slowdisk::require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).expect("a fresh filesystem");
    let device = mount.device().expect("its device").path().to_owned();
    let file = File::open(device).expect("open");
    fadvise(&file, 0, None, Advice::Random).expect("fadvise");
    let at = 300 * MIB;
    let range = at..at + 100 * page();
    let cached = |p: u64| p % 3 == 1;
    let first = at / page();
    fadvise(
        &file,
        at,
        std::num::NonZeroU64::new(100 * page()),
        Advice::DontNeed,
    )
    .expect("evict");
    for p in (first..first + 100).filter(|p| cached(*p)) {
        file.read_exact_at(&mut [0; 1], p * page()).expect("read");
    }
    for probe in askers(Filesystem::Ext4, &file) {
        compare(&probe, 512 * MIB, cached, range.clone());
        // To the end, which fstat(2) does not know.
        assert_eq!(
            known(probe.residency(0..u64::MAX)).pages,
            512 * MIB / page()
        );
        assert_eq!(known(probe.resident_prefix(512 * MIB, 10)), 0);
    }
}

/// A FUSE file may be served from the pages of another file (passthrough) and has none of its own then:
/// cachestat(2) is not believed there. A FUSE file with direct I/O can't be mapped either.
#[test]
fn a_file_that_is_not_mapped_is_unknown() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(MIB).build().expect("a disk");
    let file = File::open(disk.path()).expect("open");
    file.read_exact_at(&mut [0; 100], 0).expect("read");
    let reason = unknown(residency(&file, 0..u64::MAX));
    assert!(matches!(reason, Reason::NoMapping(_)), "{reason}");
}

#[test]
fn a_handles_answers_are_those_of_its_descriptor() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 100_000);
    let handle = Handle::new(File::open(&path).expect("open")).expect("a handle");
    let by_handle = known(residency(&handle, 0..u64::MAX));
    let file = nowait::File::blocking_open(&path).expect("open");
    let by_file = known(file.residency().residency(0..u64::MAX));
    assert_eq!(
        (by_handle.pages, by_handle.cached),
        (by_file.pages, by_file.cached)
    );
}

/// A file of the lower layer, its copy, and its copy through an earlier descriptor.
#[test]
fn an_overlay_before_and_after_copy_up() {
    slowdisk::require!(Filesystem::Overlay.available());
    let size = 50 * page();
    let (mount, sample) = overlay_with("file", size);
    let lower = mount.lower().expect("a lower directory").join("file");
    let old = sample.open();
    let probe = Probe::new(&old).expect("an probe");
    let handle = nowait::File::from_fd(
        old.try_clone().expect("dup"),
        &nowait::Engine::new().expect("an engine"),
    )
    .expect("a file");
    let in_lower: BTreeSet<u64> = (0..50).filter(|p| p % 3 == 0).collect();
    let all = |cached: &BTreeSet<u64>| {
        while_cached(&sample, cached, || {
            let fresh = sample.open();
            for probe in [
                &probe,
                &Probe::new(&old).expect("again"),
                &Probe::new(&fresh).expect("new"),
            ] {
                compare(probe, size, |p| cached.contains(&p), 0..u64::MAX);
            }
            assert_eq!(
                known(handle.residency().residency(0..u64::MAX)).cached,
                cached.len() as u64
            );
        });
    };
    all(&in_lower);
    let writer = File::options()
        .write(true)
        .open(&sample.path)
        .expect("open");
    writer.write_all_at(&[sample.content[0]], 0).expect("write");
    writer.sync_all().expect("sync");
    // The lower file is fully cached, its copy is not. All descriptors read the copy.
    fs::read(&lower).expect("read");
    let in_upper: BTreeSet<u64> = (0..50).filter(|p| p % 5 == 0).collect();
    all(&in_upper);
    // A second write changes the file in place.
    writer.write_all_at(&[sample.content[0]], 0).expect("write");
    all(&in_lower);
}

#[test]
fn a_page_map_takes_a_bit_for_a_page_and_little_for_a_run() {
    let dir = scratch();
    let path = dir.path().join("file");
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path);
    let file = file.expect("a file");
    file.set_len(1 << 40).expect("set_len");
    let map = known(page_map(&file, 0..u64::MAX));
    assert_eq!(map.runs().count(), 1);
    assert!(format!("{map:?}").len() < 400, "{map:?}");
}

/// The kernel limits the mappings of a process (`vm.max_map_count`).
#[test]
fn many_probes_keep_few_mappings() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "mapped-by-many", 5 << 12);
    sample.warm();
    let file = File::open(&sample.path).expect("open");
    let only = |_| Probe::only(Source::Mincore, &file).expect("a mapping");
    let probes: Vec<Probe<'_>> = (0..3000).map(only).collect();
    let maps = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let of_file = maps
            .lines()
            .filter(|line| line.ends_with("/mapped-by-many"));
        of_file.count()
    };
    assert!((1..=1024).contains(&maps()), "{}", maps());
    for probe in probes.iter().chain(probes.iter().rev()) {
        let answer = probe.resident_prefix(0, 5 << 12).expect("mincore");
        assert_eq!(answer.known(), Some(5 << 12));
        assert!(!probe.is_untrustworthy().expect("mincore"));
    }
    assert!((1..=1024).contains(&maps()), "{}", maps());
    drop(probes);
    assert_eq!(maps(), 0);
}
