//! Strict mode: the caller never touches the device.
//!
//! The kernel counts for each thread the bytes that were read from block devices on its behalf
//! (`read_bytes` in /proc/thread-self/io, proc(5)). That count must not change while the caller polls strict
//! reads of a cold file: neither for missing pages nor for readahead.

use std::fs;
use std::future::Future;
use std::iter::once;
use std::task::{Context, Waker};

use futures_util::future::join_all;
use nowait::engine::{Options, Submit, Wait};
use nowait::op::{Op, Read, Readv};
use nowait::{Engine, File, Handle, Mode, OpenOptions, ServedBy};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::pages::Locked;

use crate::common::accounting::{device_bytes, read_bytes};
use crate::common::backends::backends;
use crate::common::limit::Limit;
use crate::common::mounts::{ON_DISK, mounted};
use crate::common::samples::Sample;
use crate::common::wait::wait_until;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB + 321;

/// Runs a test on every filesystem with a device and on both backends.
fn each(test: impl Fn(Filesystem, &Sample, &Engine)) {
    if read_bytes().is_none() {
        slowdisk::skip_or_fail("/proc/thread-self/io is missing (CONFIG_TASK_IO_ACCOUNTING)");
        return;
    }
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let sample = Sample::new(mount.path(), "file", SIZE);
        // Blocks that the first read after mounting needs are not counted for a later read.
        sample.warm();
        for backend in backends() {
            let _limit = Limit::new(format!("{filesystem}, {backend}"));
            let engine = Options::new().backend(backend).build().expect("an engine");
            test(filesystem, &sample, &engine);
        }
    }
}

fn open(sample: &Sample, engine: &Engine, mode: Mode) -> File {
    OpenOptions::new()
        .read(true)
        .cache_mode(mode)
        .engine(engine)
        .blocking_open(&sample.path)
        .expect("open")
}

/// Offsets in the whole file, in random order, each once.
fn all_over() -> impl Iterator<Item = u64> {
    (0..200).map(|i| (i * 7919 % 2048) * 4096 + i % 4096)
}

#[track_caller]
fn right(file: &File, sample: &Sample, offset: u64, len: usize) -> nowait::Provenance {
    let done = pollster::block_on(file.read_at(Vec::with_capacity(len), offset));
    let expected = sample.expected(offset, len);
    assert_eq!(done.result.expect("read"), expected.len());
    assert!(done.buf == expected, "{len} from {offset}");
    done.provenance
}

#[test]
fn the_count_does_move_for_an_ordinary_read() {
    each(|filesystem, sample, engine| {
        let file = open(sample, engine, Mode::Strict);
        sample.evict();
        let moved = device_bytes(|| {
            file.blocking_read_at(&mut vec![0; 4096], MIB)
                .expect("pread");
        });
        assert!(moved >= 4096, "{filesystem}: {moved}");
    });
}

#[test]
fn random_reads() {
    each(|filesystem, sample, engine| {
        for len in [1, 4096, 300_000] {
            let file = open(sample, engine, Mode::Strict);
            sample.evict();
            let moved = device_bytes(|| {
                for offset in all_over() {
                    right(&file, sample, offset, len);
                }
            });
            assert_eq!(moved, 0, "{filesystem}: {len} bytes each");
        }
        let stats = engine.stats();
        assert!(stats.handoffs > 0 && stats.races <= stats.misses);
    });
}

#[test]
fn many_reads_in_flight() {
    each(|filesystem, sample, engine| {
        let file = open(sample, engine, Mode::Strict);
        sample.evict();
        let moved = device_bytes(|| {
            let offsets: Vec<u64> = all_over().take(128).collect();
            let all = offsets
                .iter()
                .map(|&offset| file.read_at(Vec::with_capacity(10_000), offset));
            let done = pollster::block_on(join_all(all));
            for (offset, done) in offsets.into_iter().zip(done) {
                assert!(done.buf == sample.expected(offset, 10_000), "{offset}");
            }
        });
        assert_eq!(moved, 0, "{filesystem}");
    });
}

#[test]
fn a_whole_file_in_sequence() {
    each(|filesystem, sample, engine| {
        for len in [4096, 100_000, 1 << 20] {
            let file = open(sample, engine, Mode::Strict);
            sample.evict();
            let moved = device_bytes(|| {
                let mut at = 0;
                while at < SIZE {
                    right(&file, sample, at, len);
                    at += len as u64;
                }
                right(&file, sample, at, len);
            });
            assert_eq!(moved, 0, "{filesystem}: {len} bytes each");
        }
    });
}

/// Readahead in windows of 2 MiB: each is requested once, before the reads reach the end of the last one.
/// The engine counts them, for single reads and for operations.
#[test]
fn a_sequence_is_read_ahead_window_by_window() {
    each(|filesystem, sample, engine| {
        let windows = SIZE / (2 * MIB);
        let file = open(sample, engine, Mode::Strict);
        let ahead = || engine.stats().aheads;
        let begun = || {
            let before = ahead();
            for at in (0..SIZE).step_by(16 << 10) {
                right(&file, sample, at, 16 << 10);
            }
            ahead() - before
        };
        sample.evict();
        let cold = begun();
        assert!(
            (windows..=windows + 1).contains(&cold),
            "{filesystem}, cold: {cold} of {windows}"
        );
        // A kernel may take back pages without a shortage of memory (DAMON), which would be read ahead again.
        sample.warm();
        let locked = Locked::new(&sample.path, once(0..SIZE));
        assert_eq!(begun(), 0, "{filesystem}, cached");
        drop(locked);
        let before = ahead();
        sample.evict();
        for offset in all_over() {
            right(&file, sample, offset, 4096);
        }
        assert_eq!(ahead(), before, "{filesystem}: nothing follows");
        let eager = open(sample, engine, Mode::Eager);
        sample.evict();
        for at in (0..SIZE).step_by(64 << 10) {
            right(&eager, sample, at, 64 << 10);
        }
        assert_eq!(ahead(), before, "{filesystem}: eager is the kernel's");

        let mut local = Options::new()
            .backend(engine.backend())
            .mode(Mode::Strict)
            .depth(4)
            .build_local()
            .expect("an engine");
        let handle = Handle::new(sample.open()).expect("a handle");
        sample.evict();
        let mut done = Vec::new();
        for at in (0..SIZE).step_by(64 << 10) {
            let mut ops = vec![Op::from(Read::new(&handle, buffer(16 << 10), at))];
            ops.extend((1..4).map(|i| {
                let offset = at + i * (16 << 10);
                Op::from(Read::new(&handle, buffer(16 << 10), offset))
            }));
            assert_eq!(local.submit_batch(&mut ops), 4, "no place is taken");
            assert_eq!(local.reap(&mut done, Wait::For(4)).expect("reap"), 4);
        }
        assert!(done.iter().all(|done| done.result.is_ok()));
        let begun = local.stats().aheads;
        assert!(
            (windows..=windows + 1).contains(&begun),
            "{filesystem}: {begun}"
        );
    });
}

/// The file is half cached: reads of cached pages must not read other pages.
#[test]
fn hits_beside_what_is_missing() {
    each(|filesystem, sample, engine| {
        let file = open(sample, engine, Mode::Strict);
        sample.evict();
        let cached = || {
            let numbers = (0..SIZE / MIB).step_by(2);
            numbers.map(|i| i * MIB..(i + 1) * MIB)
        };
        cached().for_each(|range| sample.touch(range));
        // A kernel may take back pages without a shortage of memory (DAMON).
        let _locked = Locked::new(&sample.path, cached());
        let moved = device_bytes(|| {
            for at in cached().flat_map(|range| range.step_by(16 << 10)) {
                let from = right(&file, sample, at, 16 << 10);
                let is_hit = from.cached == 16 << 10 && from.served_by == ServedBy::Caller;
                assert!(is_hit, "{filesystem}: {at}: {from:?}");
            }
        });
        assert_eq!(moved, 0, "{filesystem}");
        assert!(engine.stats().hits > 0);
    });
}

/// A page with a readahead mark starts the next readahead in the thread that reads it, also in strict mode:
/// no kernel call prevents that. Readahead by nowait leaves no marks.
#[test]
fn readahead_for_a_strict_file_leaves_no_marks() {
    each(|filesystem, sample, engine| {
        sample.evict();
        let first = open(sample, engine, Mode::Strict);
        for at in (0..4 * MIB).step_by(16 << 10) {
            right(&first, sample, at, 16 << 10);
        }
        let second = open(sample, engine, Mode::Strict);
        let moved = device_bytes(|| {
            for at in (0..4 * MIB).step_by(4096) {
                let from = right(&second, sample, at, 4096);
                assert_eq!(from.served_by, ServedBy::Caller, "{filesystem}: {at}");
            }
        });
        assert_eq!(moved, 0, "{filesystem}");
    });
}

/// The mode may be set for the engine, and the file may be a descriptor.
#[test]
fn a_strict_engine() {
    each(|filesystem, sample, engine| {
        let strict = Options::new()
            .backend(engine.backend())
            .mode(Mode::Strict)
            .build()
            .expect("an engine");
        let given = File::from_fd(fs::File::open(&sample.path).expect("open"), &strict);
        let opened = OpenOptions::new()
            .read(true)
            .engine(&strict)
            .blocking_open(&sample.path);
        for file in [given, opened] {
            let file = file.expect("a file");
            sample.evict();
            let moved = device_bytes(|| {
                for i in 0..512 {
                    right(&file, sample, i * 16_384, 16_384);
                }
            });
            assert_eq!(moved, 0, "{filesystem}: in sequence");
            sample.evict();
            let moved = device_bytes(|| {
                for offset in all_over() {
                    right(&file, sample, offset, 5_000);
                }
            });
            assert_eq!(moved, 0, "{filesystem}: at random");
        }
    });
}

/// Operations, one by one and as a batch.
#[test]
fn operations() {
    each(|filesystem, sample, engine| {
        let fd = || fs::File::open(&sample.path).expect("open");
        let handle = Handle::with_mode(fd(), Mode::Strict).expect("a handle");
        let strict = Options::new()
            .backend(engine.backend())
            .mode(Mode::Strict)
            .build()
            .expect("an engine");
        operations_on(filesystem, sample, engine, &handle);
        // A handle that has the mode of the engine.
        let handle = Handle::new(fd()).expect("a handle");
        operations_on(filesystem, sample, &strict, &handle);
    });
}

fn operations_on(filesystem: Filesystem, sample: &Sample, engine: &Engine, handle: &Handle) {
    {
        sample.evict();
        let moved = device_bytes(|| {
            let read = |offset| -> Op { Read::new(handle, buffer(5_000), offset).into() };
            let mut done = Vec::new();
            let mut waiting = 0;
            for offset in all_over().take(100) {
                match engine.submit(read(offset).user_data(offset)) {
                    Submit::Done(completion) => done.push(completion),
                    Submit::Queued(_) => waiting += 1,
                    Submit::Full(_) => panic!("full"),
                }
            }
            let mut batch: Vec<Op> = all_over()
                .skip(100)
                .take(50)
                .map(|offset| read(offset).user_data(offset))
                .collect();
            for offset in all_over().skip(150).take(50) {
                let pieces = vec![buffer(1_000), buffer(4_000)];
                batch.push(Op::from(Readv::new(handle, pieces, offset)).user_data(offset));
            }
            waiting += engine.submit_batch(&mut batch);
            assert!(batch.is_empty());
            engine.reap(&mut done, Wait::For(waiting)).expect("reap");
            assert_eq!(done.len(), 200);
            for done in done {
                assert_eq!(done.result.expect("read"), 5_000);
            }
        });
        assert_eq!(moved, 0, "{filesystem}: at random");
        sample.evict();
        let moved = device_bytes(|| {
            for at in (0..MIB).step_by(4096) {
                let mut done = Vec::new();
                match engine.submit(Read::new(handle, buffer(4096), at).into()) {
                    Submit::Done(completion) => done.push(completion),
                    Submit::Queued(_) => {
                        engine.reap(&mut done, Wait::For(1)).expect("reap");
                    }
                    Submit::Full(_) => panic!("full"),
                }
                assert_eq!(done.remove(0).result.expect("read"), 4096);
            }
        });
        assert_eq!(moved, 0, "{filesystem}: in sequence");
    }
}

fn buffer(len: usize) -> nowait::buffer::Buffer {
    Box::new(vec![0u8; len].into_boxed_slice())
}

/// Another thread evicts the file, so a page may be reported as cached and be gone at the read. Such races
/// are counted, and the bytes are right. The caller may touch the device only in such a race.
#[test]
fn pages_that_disappear() {
    each(|filesystem, sample, engine| {
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    sample.warm();
                    sample.evict();
                }
            });
            let file = open(sample, engine, Mode::Strict);
            for _ in 0..5 {
                for offset in all_over() {
                    right(&file, sample, offset, 20_000);
                }
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let stats = engine.stats();
        assert!(stats.races <= stats.misses + stats.prefixes, "{filesystem}");
        println!("{filesystem}: {} races in {} hits", stats.races, stats.hits);
    });
}

/// ```text
///   another reader:  read of a page ........ the disk stalls ............ done
///   strict reader:              asks: there ─ NOWAIT: not yet ─► engine ─ done
/// ```
///
/// cachestat(2) counts a page whose read is in flight. The NOWAIT read then finds nothing: this race is
/// counted once, and once more for a read that also has cached bytes before that page.
#[test]
fn a_page_that_is_on_its_way() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Ext4.available());
    if !nowait::support::Kernel::get().cachestat.is_yes() {
        return slowdisk::skip_or_fail("cachestat(2) is missing (Linux 6.5)");
    }
    for backend in backends() {
        let _limit = Limit::new(backend.to_string());
        let disk = SlowDisk::builder().size(512 * MIB).build().expect("a disk");
        let mount = TestMount::on(&disk, Filesystem::Ext4).expect("a filesystem");
        let sample = Sample::new(mount.path(), "file", MIB);
        let engine = Options::new().backend(backend).build().expect("an engine");
        let file = open(&sample, &engine, Mode::Strict);
        right(&file, &sample, 0, 1);
        for (offset, prefix) in [(40_960, 0), (36_864, 4096)] {
            sample.evict();
            sample.touch(36_864..40_960);
            let before = engine.stats();
            let stall = disk.inject(Fault::stall(0..disk.size()).reads_only());
            std::thread::scope(|scope| {
                scope.spawn(|| sample.touch(40_960..45_056));
                wait_until("a stalled read", || disk.stalled() > 0);
                let len = 45_056 - offset as usize;
                let mut read = std::pin::pin!(file.read_at(Vec::with_capacity(len), offset));
                let mut context = Context::from_waker(Waker::noop());
                let polled = read.as_mut().poll(&mut context);
                let stats = engine.stats();
                disk.release(stall);
                assert!(polled.is_pending());
                assert_eq!(stats.races, before.races + 1);
                assert_eq!(stats.handoffs, before.handoffs + 1);
                assert_eq!(stats.prefix_bytes, before.prefix_bytes + prefix);
                assert_eq!(stats.hits, before.hits);
                let done = pollster::block_on(read);
                assert_eq!(done.result.expect("read"), len);
                assert!(done.buf == sample.expected(offset, len));
                assert_eq!(done.provenance.cached, prefix as usize);
            });
        }
    }
}
