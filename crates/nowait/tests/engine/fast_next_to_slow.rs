//! A slow or broken device does not affect other files. Reads of other files go on while one file stalls,
//! eager or strict. A strict caller never touches the device. A device error is reported with its errno.

use std::future::Future;
use std::path::Path;
use std::task::{Context, Poll, Waker};

use futures_util::future::join_all;
use nowait::engine::{Backend, Engine, Options};
use nowait::op::{Fsync, Op, Read};
use nowait::{ErrorKind, Handle, Mode, OpenOptions, ServedBy};
use slowdisk::{Fault, Filesystem, extents, require};

use crate::common::accounting::device_bytes;
use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, kind, one_in_batch};
use crate::common::rig::{PAGE, PAGES, Rig};
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

const MODES: [Mode; 2] = [Mode::Eager, Mode::Strict];

fn in_mode(path: &Path, mode: Mode) -> Handle {
    Handle::with_mode(std::fs::File::open(path).unwrap(), mode).unwrap()
}

/// A file without readahead: a read touches only its own pages.
fn random(path: &Path) -> Handle {
    in_mode(path, Mode::Strict)
}

fn page(handle: &Handle, i: u64) -> Op {
    let at = i * PAGE as u64;
    Op::from(Read::new(handle, Box::new(vec![0u8; PAGE]), at)).user_data(at)
}

#[test]
fn a_stalled_file_delays_no_other_files_operations() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each(Options::new().depth(128).workers(8), |engine| {
        for mode in MODES {
            operations_next_to_a_stalled_file(&rig, engine, mode);
        }
    });
}

fn operations_next_to_a_stalled_file(rig: &Rig, engine: &mut dyn Drive, mode: Mode) {
    let what = format!("{} {mode:?}", name(engine));
    let (bad, good) = (rig.cold("bad"), rig.cold("good"));
    let dir = scratch();
    let elsewhere = patterned(dir.path(), "elsewhere", PAGES as usize * PAGE);
    evict(&elsewhere);
    let stall = rig.fault(&bad, Fault::stall);
    let [bad, good, elsewhere] = [bad, good, elsewhere].map(|path| in_mode(&path, mode));

    // More reads than workers, one by one and as a batch.
    (0..10).for_each(|i| {
        queued(engine, page(&bad, i * 3));
    });
    let mut ops: Vec<Op> = (10..20).map(|i| page(&bad, i * 3)).collect();
    assert_eq!(engine.submit_batch(&mut ops), 10, "{what}");
    wait_until("the disk has some of them", || rig.disk.stalled() > 0);
    for round in 0..10 {
        for other in [&good, &elsewhere] {
            let mut ops: Vec<Op> = (0..4).map(|i| page(other, round * 4 + i)).collect();
            ops.push(Fsync::new(other).into());
            assert_eq!(engine.submit_batch(&mut ops), 5, "{what}");
            let mut done = finish(engine, 5);
            done.push(one(engine, page(other, 63 - round)));
            for done in done.into_iter().filter(|done| done.op.name() == "read") {
                let at = done.op.get_user_data();
                assert!(bytes_of(done) == pattern(at, PAGE), "{what}");
            }
        }
    }
    assert!(rig.disk.stalled() > 0, "{what}: they are still stalled");
    assert_eq!(engine.in_flight(), 20, "{what}");
    rig.release(stall);
    for done in finish(engine, 20) {
        let at = done.op.get_user_data();
        assert!(bytes_of(done) == pattern(at, PAGE), "{what}");
    }
}

#[test]
fn a_stalled_file_delays_no_other_files_futures() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each_shared(Options::new().depth(128).workers(8), |engine| {
        for mode in MODES {
            futures_next_to_a_stalled_file(&rig, engine, mode);
        }
    });
}

fn futures_next_to_a_stalled_file(rig: &Rig, engine: &Engine, mode: Mode) {
    let what = format!("{} {mode:?}", engine.backend());
    let (bad, good) = (rig.cold("bad"), rig.cold("good"));
    let stall = rig.fault(&bad, Fault::stall);
    let mut options = OpenOptions::new();
    options.read(true).engine(engine).cache_mode(mode);
    let [bad, good] = [bad, good].map(|path| options.blocking_open(path).unwrap());
    let read = async |file: &nowait::File, i: u64| {
        let at = i * PAGE as u64;
        let done = file.read_at(Vec::with_capacity(PAGE), at).await;
        assert_eq!(done.result.unwrap(), PAGE, "{what}");
        assert!(done.buf == pattern(at, PAGE), "{what}");
    };
    let mut stuck = Box::pin(join_all((0..20).map(|i| read(&bad, i * 2))));
    let waker = futures_util::task::noop_waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(stuck.as_mut().poll(&mut cx).is_pending());
    wait_until("the disk has some of them", || rig.disk.stalled() > 0);
    // One task, then many at once.
    pollster::block_on(async {
        for i in 0..PAGES / 2 {
            read(&good, i).await;
        }
        join_all((PAGES / 2..PAGES).map(|i| read(&good, i))).await;
    });
    assert!(stuck.as_mut().poll(&mut cx).is_pending(), "{what}");
    assert!(rig.disk.stalled() > 0, "{what}");
    rig.release(stall);
    pollster::block_on(stuck);
}

#[test]
fn cached_data_of_a_stalled_file_is_served() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each_shared(Options::new(), |engine| {
        for mode in MODES {
            cached_data_of_a_stalled_file(&rig, engine, mode);
        }
    });
}

fn cached_data_of_a_stalled_file(rig: &Rig, engine: &Engine, mode: Mode) {
    let what = format!("{} {mode:?}", engine.backend());
    let path = rig.cold("file");
    let mut options = OpenOptions::new();
    options.read(true).engine(engine).cache_mode(mode);
    let file = options.blocking_open(&path).unwrap();
    pollster::block_on(file.read_at(Vec::with_capacity(PAGE), 0))
        .result
        .unwrap();
    let stall = rig.fault(&path, Fault::stall);
    let mut cold = Box::pin(file.read_at(Vec::with_capacity(PAGE), 40 * PAGE as u64));
    let waker = futures_util::task::noop_waker();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(cold.as_mut().poll(&mut cx).is_pending(), "{what}");
    wait_until("the disk has it", || rig.disk.stalled() > 0);
    for _ in 0..100 {
        let done = pollster::block_on(file.read_at(Vec::with_capacity(PAGE), 0));
        assert!(done.buf == pattern(0, PAGE), "{what}");
        assert_eq!(done.provenance.served_by, ServedBy::Caller, "{what}");
    }
    assert!(cold.as_mut().poll(&mut cx).is_pending(), "{what}");
    rig.release(stall);
    let done = pollster::block_on(cold);
    assert!(done.buf == pattern(40 * PAGE as u64, PAGE), "{what}");
    assert_eq!(done.provenance.device, PAGE, "{what}");
}

/// Evicts a file from another thread, whose reads are not counted for this one.
fn cold_again(path: &Path) {
    std::thread::scope(|s| {
        s.spawn(|| evict(path));
    });
}

#[test]
fn a_strict_caller_never_touches_the_device() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    // A plain read of a cold file is counted: the counter works.
    let path = rig.cold("plain");
    let moved = device_bytes(|| drop(std::fs::read(&path).unwrap()));
    assert!(moved >= PAGES * PAGE as u64);

    each_shared(Options::new().mode(Mode::Strict), |engine| {
        let path = rig.cold("file");
        let by_path = OpenOptions::new()
            .read(true)
            .engine(engine)
            .blocking_open(&path)
            .unwrap();
        let by_fd = nowait::File::from_fd(std::fs::File::open(&path).unwrap(), engine).unwrap();
        let moved = device_bytes(|| {
            for file in [by_path, by_fd] {
                let read = |at: u64, len: usize| {
                    let done = pollster::block_on(file.read_at(Vec::with_capacity(len), at));
                    assert_eq!(done.result.unwrap(), len);
                    assert!(done.buf == pattern(at, len));
                };
                // In random order, then sequentially, then in one read.
                (0..PAGES).for_each(|i| read((i * 37 % PAGES) * PAGE as u64, PAGE));
                cold_again(&path);
                (0..PAGES / 4).for_each(|i| read(i * 4 * PAGE as u64, 4 * PAGE));
                cold_again(&path);
                read(0, PAGES as usize * PAGE);
                cold_again(&path);
            }
            let mut shared = engine.clone();
            let open = random(&path);
            for i in 0..PAGES {
                assert_eq!(
                    said(&one(&mut shared, page(&open, i * 11 % PAGES))),
                    Ok(PAGE)
                );
            }
        });
        assert_eq!(moved, 0, "{}: {:?}", engine.backend(), engine.stats());
        assert!(engine.stats().misses > 0);
    });
}

#[test]
fn a_strict_callers_hits_start_no_readahead() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    // After an ordinary read from the start of a file, a later hit can reach the readahead mark. The
    // kernel then starts the next readahead in the calling thread.
    let meets_a_mark = |file: &nowait::File, path: &Path| {
        cold_again(path);
        std::thread::scope(|s| {
            s.spawn(|| file.blocking_read_at(&mut [0; PAGE], 0).unwrap());
        });
        device_bytes(|| {
            for i in 0..PAGES {
                // No read of the disk is under way any more.
                while rig.disk.counters().reads != settle(&rig) {}
                let read = file.read_at(Vec::with_capacity(PAGE), i * PAGE as u64);
                assert!(pollster::block_on(read).buf == pattern(i * PAGE as u64, PAGE));
            }
        })
    };
    each_shared(Options::new().mode(Mode::Strict), |engine| {
        let path = rig.cold("marks");
        let mut eager = OpenOptions::new();
        eager.read(true).engine(engine).cache_mode(Mode::Eager);
        let eager = eager.blocking_open(&path).unwrap();
        if meets_a_mark(&eager, &path) == 0 {
            // On 6.1 a NOWAIT read starts no readahead.
            slowdisk::skip_or_fail("eager callers pay nothing either on this kernel");
        }
        let by_path = OpenOptions::new()
            .read(true)
            .engine(engine)
            .blocking_open(&path)
            .unwrap();
        assert_eq!(meets_a_mark(&by_path, &path), 0);
        let by_fd = nowait::File::from_fd(std::fs::File::open(&path).unwrap(), engine).unwrap();
        assert_eq!(meets_a_mark(&by_fd, &path), 0);
    });
}

/// The number of reads of the disk after a moment without new ones.
fn settle(rig: &Rig) -> u64 {
    std::thread::sleep(std::time::Duration::from_millis(2));
    rig.disk.counters().reads
}

#[test]
fn a_bad_block_is_a_typed_error() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each(Options::new(), |engine| {
        let what = name(engine);
        let path = rig.cold("bad");
        let fault = rig.fault(&path, Fault::eio);
        let open = random(&path);
        for i in [0, 5, 17] {
            let done = one(engine, page(&open, i));
            assert_eq!(said(&done), Err(libc::EIO), "{what}");
            assert!(matches!(kind(&done), ErrorKind::Io(_)), "{what}");
            let p = done.provenance;
            assert_eq!(p.cached + p.device + p.unknown, 0, "{what}");
            assert!(
                bytes_of(done).capacity() >= PAGE,
                "{what}: the buffer is back"
            );
        }
        let done = one_in_batch(engine, page(&open, 20));
        assert_eq!(said(&done), Err(libc::EIO), "{what}");
        rig.release(fault);
        assert!(
            bytes_of(one(engine, page(&open, 5))) == pattern(5 * PAGE as u64, PAGE),
            "{what}"
        );
    });
    each_shared(Options::new(), |engine| {
        for mode in [Mode::Eager, Mode::Strict] {
            let path = rig.cold("bad");
            let fault = rig.fault(&path, Fault::eio);
            let mut options = OpenOptions::new();
            options.read(true).engine(engine).cache_mode(mode);
            let file = options.blocking_open(&path).unwrap();
            let done = pollster::block_on(file.read_at(Vec::with_capacity(PAGE), 0));
            let error = done.result.unwrap_err();
            assert_eq!(
                (error.operation(), error.errno()),
                ("read_at", Some(libc::EIO))
            );
            let want = format!(
                "read_at {}: Input/output error (os error 5)",
                path.display()
            );
            assert_eq!(error.to_string(), want);
            assert!(done.buf.is_empty(), "nothing that looks like data");
            rig.release(fault);
            // The kernel reads the pages again that readahead failed to read.
            let done =
                pollster::block_on(file.read_at(Vec::with_capacity(PAGES as usize * PAGE), 0));
            assert!(done.buf == pattern(0, PAGES as usize * PAGE), "{mode:?}");
        }
    });
}

#[test]
fn a_read_that_meets_a_bad_block_midway_is_an_error_and_not_short() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each(Options::new(), |engine| {
        let what = name(engine);
        let path = rig.cold("bad");
        let file = std::fs::File::open(&path).unwrap();
        let start = extents(&file).unwrap()[0].start;
        let fault = rig
            .disk
            .inject(Fault::eio(start + 8 * 4096..start + 9 * 4096).reads_only());
        let open = random(&path);
        for len in [16 * PAGE, PAGES as usize * PAGE] {
            let op = || Read::new(&open, Box::new(vec![0u8; len]), 0);
            for done in [one(engine, op()), one_in_batch(engine, op())] {
                // A short count would say "end of file".
                assert_eq!(said(&done), Err(libc::EIO), "{what}");
                assert!(bytes_of(done).is_empty(), "{what}");
            }
        }
        let done = one(engine, Read::new(&open, Box::new(vec![0u8; 8 * PAGE]), 0));
        assert!(
            bytes_of(done) == pattern(0, 8 * PAGE),
            "{what}: up to there it is good"
        );
        rig.disk.release(fault);
    });
}

#[test]
fn an_engine_with_stalled_operations_is_dropped_without_waiting() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    for backend in backends() {
        let _limit = Limit::new(format!("{backend}"));
        let path = rig.cold("bad");
        let stall = rig.fault(&path, Fault::stall);
        let open = random(&path);
        let mut shared = Options::new().backend(backend).build().unwrap();
        let mut local = Options::new().backend(backend).build_local().unwrap();
        for i in 0..8 {
            queued(&mut shared, page(&open, i * 2));
            queued(&mut local, page(&open, i * 2 + 1));
        }
        wait_until("the disk has some of them", || rig.disk.stalled() > 0);
        drop((shared, local, open));
        assert!(
            rig.disk.stalled() > 0,
            "{backend}: both drops returned before"
        );
        rig.release(stall);
    }
}

#[test]
fn what_waits_for_a_stalled_device_behind_others_can_be_cancelled() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each(Options::new().workers(2), |engine| {
        let what = name(engine);
        let path = rig.cold("bad");
        let stall = rig.fault(&path, Fault::stall);
        let open = random(&path);
        let tickets: Vec<_> = (0..8).map(|i| queued(engine, page(&open, i * 3))).collect();
        wait_until("the disk has some of them", || rig.disk.stalled() > 0);
        tickets.iter().for_each(|ticket| engine.cancel(*ticket));
        if engine.backend() == Backend::Threads {
            // One worker holds one of them; the others were never begun.
            for done in finish(engine, 7) {
                assert_eq!(kind(&done), ErrorKind::Cancelled, "{what}");
            }
        }
        let left = engine.in_flight();
        rig.release(stall);
        for done in finish(engine, left) {
            // A read that the device has begun completes. On a ring the wait for it may be cancelled.
            match done.result {
                Ok(n) => assert_eq!(n, PAGE, "{what}"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Cancelled, "{what}"),
            }
        }
    });
}

/// A failed try starts a readahead, which waits until the device's queue has a place.
#[test]
fn a_device_with_a_full_queue_delays_no_caller() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    rig.mount.device().unwrap().set_nr_requests(4).unwrap();
    each_shared(Options::new().depth(128).workers(64), |engine| {
        let (bad, warm) = (
            ["bad0", "bad1"].map(|name| rig.cold(name)),
            rig.cold("warm"),
        );
        let good: Vec<_> = (0..8).map(|i| rig.cold(&format!("good{i}"))).collect();
        std::fs::read(&warm).unwrap();
        let open = |path: &Path| {
            let handle = in_mode(path, Mode::Eager);
            nowait::File::from_handle(&handle, engine)
        };
        let warm = open(&warm);
        let good: Vec<_> = good
            .iter()
            .chain([&bad[0]])
            .map(|path| open(path))
            .collect();
        let stalls = bad.each_ref().map(|path| rig.fault(path, Fault::stall));
        let mut shared = engine.clone();
        for bad in bad.map(|path| random(&path)) {
            // Not adjacent: these would be one request.
            (0..20).for_each(|i| {
                queued(&mut shared, page(&bad, i * 3));
            });
        }
        wait_until("the disk has some of them", || rig.disk.stalled() > 0);

        let mut cx = Context::from_waker(Waker::noop());
        let mut cold: Vec<_> = good
            .iter()
            .map(|file| Box::pin(file.read_at(vec![0; 16 * PAGE], 0)))
            .collect();
        for read in &mut cold {
            assert!(read.as_mut().poll(&mut cx).is_pending());
        }
        let mut read = Box::pin(warm.read_at(vec![0; 16 * PAGE], 0));
        let Poll::Ready(read) = read.as_mut().poll(&mut cx) else {
            panic!("a hit waits");
        };
        assert_eq!(read.buf, pattern(0, 16 * PAGE));
        assert!(rig.disk.stalled() > 0);

        stalls.into_iter().for_each(|stall| rig.release(stall));
        for read in pollster::block_on(join_all(cold)) {
            read.result.unwrap();
            assert_eq!(read.buf, pattern(0, 16 * PAGE));
        }
        for done in finish(&mut shared, 40) {
            assert_eq!(done.result.unwrap(), PAGE);
        }
    });
}
