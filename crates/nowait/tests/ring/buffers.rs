//! Pools of buffers that are registered with a ring: the kernel uses the registered memory, and each buffer
//! comes back to its pool.
#![allow(unsafe_code, reason = "memory is exchanged under a pool")]

use nowait::buffer::{BufferPool, PoolBuffer, downcast};
use nowait::engine::{Backend, Feature, Options};
use nowait::op::{Op, Read, Write};
use nowait::read::NowaitPolicy;
use nowait::{Completion, IoBufExt};

use crate::common::backends::backends;
use crate::common::children::alone;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::wait::wait_until;

const PAGE: usize = 4096;

fn options() -> Options {
    Options::new().nowait_policy(NowaitPolicy::Never)
}

fn ring() -> bool {
    backends()[0] == Backend::Uring
}

/// Maps other memory at the addresses of a pool. The registered memory is pinned: a ring that uses the
/// registration does not access the new memory.
fn exchange(pool: &BufferPool) {
    let all: Vec<PoolBuffer> = std::iter::from_fn(|| pool.take()).collect();
    let start = all.iter().map(|b| b.as_ptr()).min().unwrap();
    let len = all.len() * PAGE;
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
    );
    // SAFETY: the range is the whole pool's, all of whose buffers are held here.
    let new = unsafe { libc::mmap(start.cast_mut().cast(), len, access, flags, -1, 0) };
    assert_eq!(new.cast_const().cast(), start);
}

fn pool_bytes(done: Completion) -> PoolBuffer {
    downcast(done.op.into_buffer().unwrap()).unwrap()
}

#[test]
fn reads_and_writes_in_a_pool_bring_the_bytes() {
    let pool = BufferPool::new(16, 2 * PAGE).unwrap();
    each(options().buffers(&pool), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 20 * PAGE);
        let file = handle_rw(&path);
        for offset in [0, 1, 5 * PAGE as u64, 20 * PAGE as u64 - 100] {
            let want = &pattern(0, 20 * PAGE)[offset as usize..];
            let want = &want[..want.len().min(2 * PAGE)];
            let done = one(
                engine,
                Read::new(&file, Box::new(pool.take().unwrap()), offset),
            );
            assert_eq!(said(&done), Ok(want.len()));
            assert_eq!(&pool_bytes(done)[..want.len()], want);
        }
        let mut buffer = pool.take().unwrap();
        buffer.fill(9);
        let write = Write::new(&file, Box::new(buffer.limit(5000)), 100);
        assert_eq!(one(engine, write).result.unwrap(), 5000);
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written[100..5100], [9; 5000]);
        assert_eq!(written[5100..], pattern(0, 20 * PAGE)[5100..]);
        assert_eq!(pool.free(), 16, "all came back");
    });
}

#[test]
fn a_ring_uses_the_memory_that_it_was_told_of() {
    if !ring() {
        return;
    }
    for limited in [false, true] {
        for local in [false, true] {
            let pool = BufferPool::new(4, PAGE).unwrap();
            let options = options().backend(Backend::Uring).buffers(&pool);
            let mut shared;
            let mut own;
            let engine: &mut dyn Drive = if local {
                own = options.build_local().unwrap();
                assert!(own.support(Feature::RegisteredBuffers).is_yes());
                &mut own
            } else {
                shared = options.build().unwrap();
                assert!(shared.support(Feature::RegisteredBuffers).is_yes());
                &mut shared
            };
            let dir = scratch();
            let path = patterned(dir.path(), "file", PAGE);
            let file = handle_rw(&path);
            exchange(&pool);
            let read = |engine: &mut dyn Drive| {
                let buffer = pool.take().unwrap();
                let at = buffer.as_ptr();
                let read = if limited {
                    Read::new(&file, Box::new(buffer.limit(1000)), 0)
                } else {
                    Read::new(&file, Box::new(buffer), 0)
                };
                let done = one(engine, read);
                let n = *done.result.as_ref().unwrap();
                // SAFETY: the memory belongs to the pool, and nothing else uses it. (The first byte of a
                // pattern is 0.)
                (n, unsafe { at.add(1).read() }, done)
            };
            let (n, byte, done) = read(engine);
            assert_eq!(n, if limited { 1000 } else { PAGE });
            assert_eq!(byte, 0, "{}: the new memory was used", name(engine));
            drop(done);
            // The bytes went to the old memory, and are written from there.
            std::fs::write(&path, []).unwrap();
            let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            for buffer in all {
                one(engine, Write::new(&file, Box::new(buffer), 0));
                if std::fs::read(&path).unwrap()[..1000] == pattern(0, 1000) {
                    break;
                }
            }
            assert_eq!(std::fs::read(&path).unwrap()[..1000], pattern(0, 1000));
            // Another engine has no registration of it.
            let mut other = Options::new().build().unwrap();
            std::fs::write(&path, [5; PAGE]).unwrap();
            let (_, byte, _done) = read(&mut other);
            assert_eq!(byte, 5);
        }
    }
}

#[test]
fn buffers_come_back_with_engines_and_futures_that_are_dropped() {
    let pool = BufferPool::new(4, PAGE).unwrap();
    each(options().buffers(&pool), |engine| {
        wait_until("that of the engine before", || pool.free() == 4);
        let (reader, writer) = pipe();
        let ticket = queued(
            engine,
            Read::stream(&reader, Box::new(pool.take().unwrap())),
        );
        assert_eq!(pool.free(), 3);
        engine.cancel(ticket);
        // A worker's read ends when data comes, a ring's read when it is cancelled.
        rustix::io::write(&writer, b"x").unwrap();
        drop(finish(engine, 1));
        assert_eq!(pool.free(), 4);
        queued(
            engine,
            Read::stream(&reader, Box::new(pool.take().unwrap())),
        );
        rustix::io::write(&writer, b"x").unwrap();
    });
    wait_until("those of dropped engines", || pool.free() == 4);
    for backend in backends() {
        let engine = options().buffers(&pool).backend(backend).build().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let file = nowait::File::from_fd(reader, &engine).unwrap();
        let mut read = Box::pin(file.read_at(pool.take().unwrap(), 0));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = std::future::Future::poll(read.as_mut(), &mut cx);
        drop(read);
        rustix::io::write(&writer, b"x").unwrap();
        wait_until("that of a dropped future", || pool.free() == 4);
    }
}

#[test]
fn memory_outlives_pool_and_engine_as_long_as_a_buffer_is_there() {
    each(options(), |_| ());
    let pool = BufferPool::new(2, PAGE).unwrap();
    eprintln!("{pool:?}");
    let engine = options().buffers(&pool).build().unwrap();
    let mut buffer = pool.take().unwrap();
    drop(pool);
    drop(engine);
    buffer.fill(3);
    assert!(buffer.iter().all(|b| *b == 3));
}

/// If no memory may be locked, operations use the buffers without registration.
#[test]
fn a_refused_registration_leaves_plain_operations() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::getuid().is_root() {
        return slowdisk::skip_or_fail("not root: can't become another user");
    }
    alone(|| {
        let pool = BufferPool::new(4096, PAGE).unwrap();
        let dir = scratch();
        let path = patterned(dir.path(), "file", PAGE);
        let file = handle(&path);
        // Enough for the ring itself.
        let most = Some(4 << 20);
        let few = rustix::process::Rlimit {
            current: most,
            maximum: most,
        };
        rustix::process::setrlimit(rustix::process::Resource::Memlock, few).unwrap();
        // SAFETY: no other thread of this process runs anything that minds.
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
        let options = options().depth(4).buffers(&pool).backend(Backend::Uring);
        let mut engine = options.build_local().unwrap();
        let why = engine.support(Feature::RegisteredBuffers).to_string();
        assert!(why.contains("memory"), "{why}");
        let done = one(
            &mut engine,
            Read::new(&file, Box::new(pool.take().unwrap()), 0),
        );
        assert_eq!(said(&done), Ok(PAGE));
        assert_eq!(pool_bytes(done)[..], pattern(0, PAGE));
    });
}

#[test]
fn a_pool_without_an_engine_is_a_pool() {
    let pool = BufferPool::new(2, 100).unwrap();
    let one = pool.take().unwrap();
    let two = pool.clone().take().unwrap();
    assert!(pool.take().is_none());
    assert_ne!(one.as_ptr(), two.as_ptr());
    drop(two);
    assert!(pool.take().is_some());
    let _: Op = Op::from(Write::new(
        &nowait::Handle::new(std::fs::File::open("/dev/null").unwrap()).unwrap(),
        Box::new(one),
        0,
    ));
}
