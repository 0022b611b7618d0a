//! `read::cached`: it returns cached bytes and the end of the file, and never a wrong byte.
//!
//! On kernels since about 6.12 a cached read starts readahead of the missing pages, and a fast device may
//! deliver them during the call. So no test expects `Nothing` for a cold file.
#![allow(unsafe_code, reason = "uninitialised memory to read into")]

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;

use nowait::read::{COPY_LIMIT, Cached, Plan, Reason, cached, cached_by_nowait, try_cached};
use nowait::{Engine, ErrorKind, File, Handle, Mode, buffer::UninitSlice};
use slowdisk::{Filesystem, TestMount};
use test_support::{Excuse, repeat};

use crate::common::mounts::{ON_DISK, mounted};
use crate::common::samples::Sample;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

#[test]
fn on_ext4() {
    a_filesystem_with_nowait(Filesystem::Ext4);
}

#[test]
fn on_xfs() {
    a_filesystem_with_nowait(Filesystem::Xfs);
}

#[test]
fn on_btrfs() {
    a_filesystem_with_nowait(Filesystem::Btrfs);
}

fn a_filesystem_with_nowait(filesystem: Filesystem) {
    assert!(ON_DISK.contains(&filesystem));
    let mount = mounted!(filesystem);
    let sample = Sample::new(mount.path(), "file", 3 * MIB + 123);
    warm_is_all(&sample);
    the_end_of_the_file(&sample);
    no_room(&sample);
    uninitialised_memory(&sample);
    the_first_pages_are_a_prefix(&sample);
    what_is_missing_in_the_middle_ends_a_prefix(&sample);
    cold_brings_nothing_wrong(&sample);
    without_an_engine(&sample);
    small_files(&mount);
    holes(&mount);
    a_file_that_grows_and_shrinks(&mount);
}

/// Makes one cached read and compares its bytes. Returns their number.
#[track_caller]
fn right(sample: &Sample, offset: u64, len: usize) -> Cached {
    let file = sample.open();
    let expected = sample.expected(offset, len);
    let mut buf = vec![0xa5; len];
    let said = cached(&file, &mut buf, offset).expect("a cached read");
    let n = match said {
        Cached::All(n) => {
            assert_eq!(n, expected.len(), "all of {len} from {offset}");
            n
        }
        Cached::Prefix(n) => {
            assert!(
                0 < n && n < expected.len(),
                "a prefix of {n} of {}",
                expected.len()
            );
            n
        }
        Cached::Nothing => {
            assert_ne!(expected.len(), 0, "there is nothing to wait for");
            0
        }
        Cached::Unsupported(ref why) => panic!("{}: {why}", sample.path.display()),
    };
    assert!(buf[..n] == expected[..n], "{said:?}: {len} from {offset}");
    assert!(
        buf[n..].iter().all(|&b| b == 0xa5),
        "{said:?} touched more than that"
    );
    said
}

#[track_caller]
fn all(sample: &Sample, offset: u64, len: usize) {
    let said = right(sample, offset, len);
    assert!(
        matches!(said, Cached::All(_)),
        "{said:?}: {len} from {offset}"
    );
}

/// Like `all`, of several ranges of a file, which is cached first. A kernel may take back pages without a shortage of
/// memory (DAMON): then the file is cached again.
#[track_caller]
fn all_warm(sample: &Sample, ranges: &[(u64, usize)]) {
    // The failed try has started to read the pages again.
    let excuses = [Excuse::Reclaimed(&[&sample.path]), Excuse::AnyReclaimed];
    repeat("a warm file", &excuses, || {
        sample.warm();
        for (offset, len) in ranges.iter().copied() {
            match right(sample, offset, len) {
                Cached::All(_) => {}
                other => return Err(format!("{other:?}: {len} from {offset}")),
            }
        }
        Ok(())
    });
}

/// Ranges that begin and end at different distances from page boundaries.
fn ranges() -> impl Iterator<Item = (u64, usize)> {
    let offsets = [0, 1, 4095, 4096, 4097, 123_456, MIB - 1, 2 * MIB];
    let lens = [1, 511, 4095, 4096, 4097, 70_000, MIB as usize];
    offsets
        .into_iter()
        .flat_map(move |offset| lens.map(|len| (offset, len)))
}

fn warm_is_all(sample: &Sample) {
    let whole = (0, sample.size() as usize);
    let ranges: Vec<_> = ranges().chain([whole]).collect();
    all_warm(sample, &ranges);
}

fn the_end_of_the_file(sample: &Sample) {
    let size = sample.size();
    let ranges = [
        (size - 1, 1),
        (size - 1, 2),
        (size - 5000, 10_000),
        (0, 2 * size as usize),
        (size, 1),
        (size + 1, 1),
        (size.next_multiple_of(PAGE), 4096),
        (1 << 40, 4096),
    ];
    all_warm(sample, &ranges);
    // The end of the file is known even if nothing is cached.
    sample.evict();
    all(sample, size, 100);
    all(sample, size + 100 * PAGE, 100);
    // An offset that no file can have is an error, not the end.
    let file = sample.open();
    for offset in [u64::MAX, i64::MAX as u64 + 1, i64::MAX as u64] {
        let said = cached(&file, &mut [0; 10], offset).expect_err("out of range");
        assert_eq!(said.kind(), ErrorKind::Io(std::io::ErrorKind::InvalidInput));
        assert_eq!(said.errno(), Some(libc::EINVAL));
    }
}

fn no_room(sample: &Sample) {
    for offset in [0, 1, 5000, sample.size(), sample.size() + 1] {
        sample.warm();
        all(sample, offset, 0);
        sample.evict();
        all(sample, offset, 0);
    }
}

fn uninitialised_memory(sample: &Sample) {
    sample.warm();
    for (offset, len) in [(0, 10_000), (4097, 1), (sample.size() - 10, 100)] {
        let mut memory = vec![MaybeUninit::<u8>::uninit(); len];
        let said = cached(sample.open(), &mut memory[..], offset).expect("a cached read");
        let Cached::All(n) = said else {
            panic!("{said:?}")
        };
        // SAFETY: the read says that it filled the first `n` bytes.
        let filled = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), n) };
        assert!(filled == sample.expected(offset, len));
    }
    // A part of a larger buffer.
    let mut memory = [0xa5; 100];
    let space = UninitSlice::from(&mut memory).first(10);
    let said = cached(sample.open(), space, 0).expect("a cached read");
    assert!(matches!(said, Cached::All(10)), "{said:?}");
    assert!(memory[..10] == sample.content[..10] && memory[10..] == [0xa5; 90]);
}

fn the_first_pages_are_a_prefix(sample: &Sample) {
    for pages in [1, 2, 7, 64] {
        for offset in [0, 1, 4095, 10 * PAGE] {
            sample.evict();
            // The pages that `offset` begins in.
            let start = offset & !(PAGE - 1);
            sample.touch(start..start + pages * PAGE);
            let cached = (start + pages * PAGE - offset) as usize;
            match right(sample, offset, cached + 100_000) {
                Cached::All(_) => {}
                // A cached page can't be left out.
                Cached::Prefix(n) => assert!(n >= cached, "{n} of {cached} cached bytes"),
                other => panic!("{pages} pages from {offset} are cached: {other:?}"),
            }
            // A request for only the cached bytes gets them.
            sample.evict();
            sample.touch(start..start + pages * PAGE);
            all(sample, offset, cached);
        }
    }
}

fn what_is_missing_in_the_middle_ends_a_prefix(sample: &Sample) {
    sample.evict();
    sample.touch(0..16 * PAGE);
    sample.touch(32 * PAGE..64 * PAGE);
    match right(sample, 100, 60 * PAGE as usize) {
        Cached::All(_) => {}
        Cached::Prefix(n) => assert!(n as u64 >= 16 * PAGE - 100, "{n}"),
        other => panic!("{other:?}"),
    }
    all(sample, 40 * PAGE + 1, 5000);
}

fn cold_brings_nothing_wrong(sample: &Sample) {
    for (offset, len) in ranges() {
        sample.evict();
        // Repeated while the readahead of the first read arrives.
        for _ in 0..4 {
            right(sample, offset, len);
        }
    }
}

/// A file on an engine gives the same.
fn without_an_engine(sample: &Sample) {
    sample.warm();
    let engine = Engine::new().expect("an engine");
    let file = File::from_fd(sample.open(), &engine).expect("a file");
    let mut buf = [0; 5000];
    let said = nowait::read::cached(&file, &mut buf, 77).expect("a cached read");
    assert!(matches!(said, Cached::All(5000)), "{said:?}");
    assert!(buf == sample.content[77..5077]);
    assert_eq!(engine.stats().handoffs, 0);
}

fn small_files(mount: &TestMount) {
    for size in [0, 1, 4095, 4096, 4097] {
        let sample = Sample::new(mount.path(), &format!("small-{size}"), size);
        let ways = [0, 1, 10, size.saturating_sub(1), size, size + 1];
        for offset in ways {
            for len in [0, 1, 4096, 10_000] {
                sample.warm();
                all(&sample, offset, len);
                sample.evict();
                right(&sample, offset, len);
            }
        }
    }
}

fn holes(mount: &TestMount) {
    let data = [PAGE..3 * PAGE + 1, 100 * PAGE + 5..110 * PAGE];
    let sample = Sample::sparse(mount.path(), "holes", MIB, &data);
    for warm in [true, false] {
        for (offset, len) in [
            (0, 8 * PAGE as usize),
            (50 * PAGE, 4096),
            (100 * PAGE, 40_000),
            (0, MIB as usize),
            (MIB - 10, 100),
        ] {
            if warm {
                sample.warm();
                all(&sample, offset, len);
            } else {
                sample.evict();
                right(&sample, offset, len);
            }
        }
    }
}

fn a_file_that_grows_and_shrinks(mount: &TestMount) {
    let mut sample = Sample::new(mount.path(), "changing", 5000);
    let file = fs::File::options()
        .write(true)
        .open(&sample.path)
        .expect("open");
    for size in [5000, 12_288, 12_289, 100, 4096, 0, 70_000] {
        file.set_len(size).expect("set_len");
        sample.content.resize(size as usize, 0);
        sample.warm();
        all(&sample, 0, 100_000);
        all(&sample, size.saturating_sub(10), 100);
        all(&sample, size, 100);
    }
}

/// The three calls, and the results that they may have for `range` of a sample.
fn by_each_call(sample: &Sample, offset: u64, len: usize, check: impl Fn(&str, &Cached, &[u8])) {
    let file = sample.open();
    let handle = Handle::new(sample.open()).expect("a handle");
    for round in 0..3 {
        let mut buf = vec![0; len];
        let said = cached(&file, &mut buf[..], offset).expect("cached");
        check(&format!("cached, round {round}"), &said, &buf);
        let mut buf = vec![0; len];
        let said = try_cached(&handle, &mut buf[..], offset).expect("try_cached");
        check(
            &format!("try_cached, round {round}"),
            &said.expect("a try"),
            &buf,
        );
    }
}

#[test]
fn where_nowait_is_refused() {
    for filesystem in [Filesystem::Tmpfs, Filesystem::Overlay] {
        let mount = mounted!(filesystem);
        let sample = Sample::new(mount.path(), "file", 20_000);
        sample.warm();
        let mut buf = [0; 100];
        match cached_by_nowait(sample.open(), &mut buf, 0).expect("a cached read") {
            Cached::Unsupported(why) => {
                assert_eq!(why.kind(), ErrorKind::Unsupported, "{why}");
                assert_eq!(why.errno(), Some(libc::EOPNOTSUPP), "{why}");
                assert_eq!(buf, [0; 100]);
            }
            // Once the kernel is known to lack it, that must be right.
            Cached::All(n) | Cached::Prefix(n) => assert!(buf[..n] == sample.content[..n]),
            Cached::Nothing => panic!("{filesystem}: it is warm"),
        }
        for (offset, len) in [
            (0, 100),
            (4095, 8193),
            (19_990, 100),
            (20_000, 10),
            (30_000, 10),
        ] {
            sample.warm();
            by_each_call(&sample, offset, len, |call, said, buf| {
                let expected = sample.expected(offset, len);
                assert!(
                    matches!(said, Cached::All(n) if *n == expected.len()),
                    "{filesystem}, {call}: {said:?} for {len} from {offset}"
                );
                assert!(buf[..expected.len()] == *expected, "{filesystem}, {call}");
            });
        }
    }
}

#[test]
fn where_nowait_is_refused_nothing_is_read_from_the_device() {
    let mount = mounted!(Filesystem::Overlay);
    let sample = Sample::new(mount.path(), "file", 20_000);
    sample.evict();
    by_each_call(&sample, 4096, 100, |call, said, buf| {
        assert!(matches!(said, Cached::Nothing), "{call}: {said:?}");
        assert!(buf.iter().all(|b| *b == 0), "{call}");
    });
    let resident = nowait::residency::resident_prefix(sample.open(), 4096, 100);
    assert_eq!(resident.expect("residency").known(), Some(0));
}

/// Reads of a program's own pool are tried by the rules of an engine's reads.
#[test]
fn reads_without_an_engine_follow_the_rules() {
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", COPY_LIMIT as u64 + 4096);
    sample.warm();
    let handle = Handle::new(sample.open()).expect("a handle");
    let mut buf = vec![0; COPY_LIMIT + 1];
    let said = try_cached(&handle, &mut buf[..], 0).expect("try_cached");
    assert!(said.is_none(), "{said:?}: a worker copies so much");
    let said = try_cached(&handle, &mut buf[..COPY_LIMIT], 0).expect("try_cached");
    assert!(matches!(said, Some(Cached::All(COPY_LIMIT))), "{said:?}");
    assert!(buf[..COPY_LIMIT] == sample.content[..COPY_LIMIT]);

    let mut options = fs::File::options();
    options.read(true).custom_flags(libc::O_DIRECT);
    let direct = options.open(&sample.path).expect("O_DIRECT");
    let direct = Handle::new(direct).expect("a handle");
    let said = try_cached(&direct, &mut buf[..4096], 0).expect("try_cached");
    assert!(said.is_none(), "{said:?}: it waits for the device");

    sample.evict();
    let strict = Handle::with_mode(sample.open(), Mode::Strict).expect("a handle");
    let said = try_cached(&strict, &mut buf[..100], 8192).expect("try_cached");
    assert!(matches!(said, Some(Cached::Nothing)), "{said:?}");
    let resident = nowait::residency::resident_prefix(sample.open(), 8192, 100);
    let resident = resident.expect("residency").known();
    assert_eq!(resident, Some(0), "the try has started a readahead");
}

/// The kernel's own files have no page cache, and some of them wait without limit.
#[test]
fn files_of_the_kernel_are_not_read() {
    let file = fs::File::open("/proc/self/status").expect("open");
    let handle = Handle::new(file.try_clone().expect("a clone")).expect("a handle");
    let mut buf = [0; 100];
    let said = cached(&file, &mut buf, 0).expect("cached");
    assert!(matches!(said, Cached::Unsupported(_)), "{said:?}");
    let said = try_cached(&handle, &mut buf, 0).expect("try_cached");
    assert!(matches!(said, Some(Cached::Unsupported(_))), "{said:?}");
    assert_eq!(buf, [0; 100]);
    // A read of /proc/kmsg in the calling thread would wait for a message of the kernel.
    let engine = Engine::process().expect("an engine");
    let file = File::from_handle(&handle, &engine);
    for _ in 0..3 {
        let read = pollster::block_on(file.read_at(vec![0; 100], 0));
        assert!(read.result.is_ok_and(|n| n > 0));
        assert_eq!(read.provenance.cached, 0);
        assert_eq!(file.plan(100), Plan::Queue(Reason::CannotTell));
    }
    // A file of another pseudo filesystem, with a size of 0.
    let groups = ["memory/cgroup.procs", "cgroup.procs"].map(|it| format!("/sys/fs/cgroup/{it}"));
    let Some(group) = groups.iter().find_map(|path| fs::File::open(path).ok()) else {
        return slowdisk::skip_or_fail("/sys/fs/cgroup");
    };
    let file = File::from_fd(group, &engine).expect("a file");
    for _ in 0..3 {
        let read = pollster::block_on(file.read_at(vec![0; 100], 0));
        assert!(read.result.is_ok());
        assert_eq!(read.provenance.cached, 0);
    }
}

#[test]
fn what_can_not_be_read_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    fs::write(&path, b"bytes").expect("write");
    let writable = fs::File::options().write(true).open(&path).expect("open");
    let said = cached(&writable, &mut [0; 5], 0).expect_err("not open for reading");
    assert_eq!(said.errno(), Some(libc::EBADF));
}
