//! Engines with polled completions. `NOWAIT_POLLED_DEVICE` names a block device with poll queues, which the
//! tests overwrite. Without one, the engines report what is missing.
//!
//! `make test-iopoll` runs these tests in a guest that has such a device.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nowait::buffer::{BufferPool, PoolBuffer};
use nowait::engine::{Backend, Engine, Feature, LocalEngine, Options, Polled};
use nowait::op::{Call, Fsync, Nop, Op, Read, Write};
use nowait::support::Support;
use nowait::{AtomicWrites, ErrorKind, Handle, IoBuf, IoBufExt, RwFlags};
use rustix::fs::{Mode, OFlags};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::handle_rw;
use crate::common::limit::Limit;
use crate::common::results::{kind, nothing_for_a_while, one_in_batch, source_of};
use crate::common::wait::LONG;

const BLOCK: usize = 4096;

/// The device that can be polled, if there is one.
fn device() -> Option<PathBuf> {
    std::env::var_os("NOWAIT_POLLED_DEVICE").map(PathBuf::from)
}

fn direct(path: &Path) -> Handle {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    Handle::new(rustix::fs::open(path, flags, Mode::empty()).unwrap()).unwrap()
}

/// Returns true if a ring can be made.
fn ring() -> bool {
    backends()[0] == Backend::Uring
}

fn busy() -> Options {
    Options::new().backend(Backend::Uring).polled(Polled::Busy)
}

/// Runs a test on every kind of polled engine.
fn each_polled(options: Options, test: impl Fn(&mut dyn Drive)) {
    if !ring() {
        return;
    }
    for how in [Polled::Busy, Polled::Hybrid] {
        for sqpoll in [false, true] {
            let mut options = options.clone().backend(Backend::Uring).polled(how);
            if sqpoll {
                options = options.sqpoll(Duration::from_millis(10));
            }
            let what = format!("{how:?} sqpoll {sqpoll}");
            {
                let _limit = Limit::new(format!("shared {what}"));
                test(&mut options.build().unwrap());
            }
            let _limit = Limit::new(format!("local {what}"));
            test(&mut options.build_local().unwrap());
        }
    }
}

/// A patterned piece of the device, different for each seed.
fn bytes(seed: usize) -> Vec<u8> {
    pattern(seed as u64 * 7919, BLOCK)
}

#[test]
fn reads_and_writes_of_a_polled_device_bring_the_bytes() {
    let Some(path) = device() else { return };
    let pool = BufferPool::new(64, BLOCK).unwrap();
    each_polled(Options::new().depth(32).buffers(&pool), |engine| {
        let file = direct(&path);
        let write = |i: usize| {
            let mut buffer = pool.take().unwrap();
            buffer.copy_from_slice(&bytes(i));
            Op::from(Write::new(&file, Box::new(buffer), (i * BLOCK) as u64))
        };
        let mut ops: Vec<Op> = (0..32).map(write).collect();
        assert_eq!(engine.submit_batch(&mut ops), 32);
        for done in finish(engine, 32) {
            assert_eq!(done.result.unwrap(), BLOCK);
        }
        assert_eq!(one(engine, Fsync::new(&file)).result.unwrap(), 0);
        let read = |i: usize| {
            let buffer = pool.take().unwrap();
            let read = Read::new(&file, Box::new(buffer), (i * BLOCK) as u64);
            Op::from(read).user_data(i as u64)
        };
        let mut ops: Vec<Op> = (0..32).map(read).collect();
        assert_eq!(engine.submit_batch(&mut ops), 32);
        for done in finish(engine, 32) {
            assert_eq!(done.result.as_ref().unwrap(), &BLOCK);
            assert_eq!(done.provenance.device, BLOCK);
            let i = done.op.get_user_data() as usize;
            let buffer = done.op.into_buffer().unwrap();
            let buffer: nowait::buffer::PoolBuffer = nowait::buffer::downcast(buffer).unwrap();
            assert_eq!(buffer[..], bytes(i), "block {i}");
        }
    });
}

#[test]
fn polled_reads_and_what_workers_do_come_side_by_side() {
    let Some(path) = device() else { return };
    let pool = BufferPool::new(16, BLOCK).unwrap();
    each_polled(Options::new().depth(64), |engine| {
        let file = direct(&path);
        for _ in 0..20 {
            let mut ops: Vec<Op> = Vec::new();
            for i in 0..8 {
                let buffer = Box::new(pool.take().unwrap());
                ops.push(Read::new(&file, buffer, i * BLOCK as u64).into());
                ops.push(Nop.into());
                ops.push(Op::from(Call::new(|| Ok(0))));
            }
            assert_eq!(engine.submit_batch(&mut ops), 24);
            for done in finish(engine, 24) {
                assert!(done.result.is_ok(), "{done:?}");
            }
        }
    });
}

#[test]
fn files_of_a_set_are_polled_too() {
    let Some(path) = device() else { return };
    let pool = BufferPool::new(4, BLOCK).unwrap();
    let mut engine = busy().buffers(&pool).build_local().unwrap();
    let set = engine.file_set(4).unwrap();
    let file = set.insert(&direct(&path)).unwrap();
    for _ in 0..3 {
        let read = Read::new(&file, Box::new(pool.take().unwrap()), 0);
        assert_eq!(one(&mut engine, read).result.unwrap(), BLOCK);
    }
}

#[test]
fn a_wait_with_a_limit_ends_in_time_though_polling_does_not() {
    let Some(path) = device() else { return };
    each_polled(Options::new(), |engine| {
        let file = direct(&path);
        // A worker sleeps while the ring is empty, and then not empty.
        let sleeper = Call::new(|| {
            std::thread::sleep(Duration::from_millis(200));
            Ok(0)
        });
        queued(engine, sleeper);
        let begun = Instant::now();
        nothing_for_a_while(engine);
        assert!(begun.elapsed() < LONG);
        let buffer = BufferPool::new(1, BLOCK).unwrap().take().unwrap();
        queued(engine, Read::new(&file, Box::new(buffer), 0));
        finish(engine, 2);
    });
}

#[test]
fn a_file_that_is_not_direct_is_refused_cached_or_not() {
    each_polled(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10_000);
        let file = handle_rw(&path);
        for cold in [false, true] {
            if cold {
                evict(&path);
            }
            let read = one(engine, Read::new(&file, Box::new(vec![0; 100]), 0));
            assert_eq!(kind(&read), ErrorKind::NeedsDirect, "{}", name(engine));
            let read = one_in_batch(engine, Read::new(&file, Box::new(vec![0; 100]), 0));
            assert_eq!(kind(&read), ErrorKind::NeedsDirect, "{}", name(engine));
            let said = read.result.unwrap_err().to_string();
            assert!(said.contains("O_DIRECT"), "{said}");
        }
        let write = one(engine, Write::new(&file, Box::new(vec![1; 100]), 0));
        assert_eq!(kind(&write), ErrorKind::NeedsDirect);
        assert_eq!(source_of(write), [1; 100], "it comes back");
        assert_eq!(std::fs::read(&path).unwrap(), pattern(0, 10_000));
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn a_file_of_a_polled_engine_is_refused_like_its_operations() {
    if !ring() {
        return;
    }
    let engine = busy().build().unwrap();
    let dir = scratch();
    let path = patterned(dir.path(), "file", 10_000);
    let open = std::fs::File::options().read(true).write(true).open(&path);
    let file = nowait::File::from_fd(open.unwrap(), &engine).unwrap();
    let read = pollster::block_on(file.read_at(vec![0; 100], 0));
    assert_eq!(read.result.unwrap_err().kind(), ErrorKind::NeedsDirect);
    let write = pollster::block_on(file.write_at(vec![1; 100], 0));
    assert_eq!(write.result.unwrap_err().kind(), ErrorKind::NeedsDirect);
    assert_eq!(std::fs::read(&path).unwrap(), pattern(0, 10_000));
}

#[test]
fn what_moves_no_data_is_done_by_workers() {
    each_polled(Options::new(), |engine| {
        let dir = scratch();
        let file = handle_rw(&patterned(dir.path(), "file", 100));
        assert_eq!(one(engine, Nop).result.unwrap(), 0);
        assert_eq!(one(engine, Fsync::new(&file)).result.unwrap(), 0);
        assert_eq!(engine.stats().workers, 2, "{}", name(engine));
    });
}

/// A device without poll queues: this machine's disk. Some kernels fail the operation, others wait for
/// the interrupt.
#[test]
fn a_device_that_can_not_be_polled_says_so_or_brings_the_bytes() {
    each_polled(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 4 * BLOCK);
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let file = direct(&path);
        let pool = BufferPool::new(1, BLOCK).unwrap();
        let buffer = pool.take().unwrap();
        let done = one(engine, Read::new(&file, Box::new(buffer), BLOCK as u64));
        match &done.result {
            Ok(n) => assert_eq!(*n, BLOCK),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NeedsPollQueues, "{e}");
                assert!(e.to_string().contains("poll_queues"), "{e}");
            }
        }
        eprintln!("{}: {:?}", name(engine), done.result);
        drop(done.op);
        assert_eq!(pool.free(), 1, "the buffer came back");
    });
}

#[test]
fn it_says_whether_it_polls_and_how() {
    for (how, hybrid) in [(Polled::Busy, false), (Polled::Hybrid, true)] {
        let options = Options::new().backend(Backend::Uring).polled(how);
        if !ring() {
            return;
        }
        let engine = options.build_local().unwrap();
        assert!(engine.support(Feature::Polled).is_yes());
        let support = engine.support(Feature::HybridPolled);
        let said = support.is_yes();
        assert!(said == hybrid || matches!(support, Support::No(_)));
        assert!(!said || hybrid, "it was not requested");
    }
}

#[test]
fn threads_can_not_poll() {
    for options in [
        Options::new().polled(Polled::Busy),
        Options::new().sqpoll(Duration::from_millis(1)),
    ] {
        let options = options.backend(Backend::Threads);
        let refused: [nowait::Result<()>; 2] = [
            options.build().map(|_: Engine| ()),
            options.build_local().map(|_: LocalEngine| ()),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::NeedsRing);
        }
    }
}

#[test]
fn a_local_one_has_no_eventfd() {
    if !ring() {
        return;
    }
    let mut engine = busy().build_local().unwrap();
    assert_eq!(
        engine.event_fd().unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    // The eventfd of a shared engine is the one of its completion queue.
    let mut engine = busy().build().unwrap();
    queued(&mut engine, Nop);
    let event = Engine::event_fd(&engine).unwrap();
    let mut poll = [rustix::event::PollFd::new(
        &event,
        rustix::event::PollFlags::IN,
    )];
    assert_eq!(rustix::event::poll(&mut poll, None), Ok(1));
}

/// A dropped engine ends its operations, also those that were not polled for.
#[test]
fn a_polled_engine_that_is_dropped_gives_buffers_back() {
    if !ring() {
        return;
    }
    let dir = scratch();
    let path = device().unwrap_or_else(|| {
        let path = patterned(dir.path(), "file", 64 * BLOCK);
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        path
    });
    let pool = BufferPool::new(16, BLOCK).unwrap();
    let mut engine = busy().buffers(&pool).build_local().unwrap();
    let file = direct(&path);
    let read = |i: u64| {
        let buffer = pool.take().unwrap().limit(BLOCK);
        Op::from(Read::new(&file, Box::new(buffer), i * BLOCK as u64))
    };
    let mut ops: Vec<Op> = (0..16).map(read).collect();
    engine.submit_batch(&mut ops);
    drop(engine);
    assert_eq!(pool.free(), 16);
}

/// The drive of `make test-iopoll` writes its blocks atomically, as every NVMe drive does.
#[test]
fn an_atomic_write_is_taken_where_the_device_takes_some() {
    let Some(path) = device() else { return };
    let Some(takes) = AtomicWrites::of(direct(&path)).unwrap() else {
        // Kernels before 6.11 do not report it.
        return slowdisk::skip_or_fail("a kernel that knows STATX_WRITE_ATOMIC");
    };
    let pool = BufferPool::new(2, takes.max as usize * 2).unwrap();
    each(Options::new(), |engine| {
        let file = direct(&path);
        let offset = u64::from(takes.max) * 8;
        let write = |len: u32| {
            let mut buffer = pool.take().unwrap();
            buffer.fill(len as u8 ^ 0x5a);
            let limited = Box::new(buffer.limit(len as usize));
            Op::from(Write::new(&file, limited, offset).flags(RwFlags::ATOMIC))
        };
        let done = one(engine, write(takes.min));
        assert_eq!(said(&done), Ok(takes.min as usize), "{takes:?}");
        drop(done);
        let buffer = pool.take().unwrap().limit(takes.min as usize);
        let read = one(engine, Read::new(&file, Box::new(buffer), offset));
        let bytes = read.op.into_buffer().unwrap();
        let bytes = nowait::buffer::downcast::<nowait::buffer::Limit<PoolBuffer>>(bytes).unwrap();
        assert!(bytes.bytes().iter().all(|b| *b == takes.min as u8 ^ 0x5a));
        drop(bytes);
        // A write that is larger than the limit is refused, not split.
        let done = one(engine, write(takes.max * 2));
        assert_eq!(said(&done), Err(libc::EINVAL), "{takes:?}");
    });
}
