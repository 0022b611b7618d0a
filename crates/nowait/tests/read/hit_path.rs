//! A cache hit is ready at the first poll, in the calling thread, and allocates no memory. Through `submit` it
//! allocates its operation.
//!
//! The allocator counts for each thread: other tests of this program do not change a test's count.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use nowait::engine::{Options, Submit};
use nowait::op::{Op, Read};
use nowait::read::{Cached, cached};
use nowait::{Mode, OpenOptions, ServedBy};

use crate::common::drive::{each, name};
use crate::common::files::{byte_at, pattern, patterned, scratch};
use crate::common::handles::handle;
use crate::common::shared_engine::each_shared;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

fn note() {
    // A thread that ends still frees and allocates.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: all is the system's; this counts beside it, without allocating.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZE: usize = 256 << 10;

#[test]
fn a_thousand_hits_allocate_nothing() {
    each_shared(Options::new(), |engine| {
        for mode in [Mode::Eager, Mode::Strict] {
            let dir = scratch();
            let path = patterned(dir.path(), "file", SIZE);
            let mut file = OpenOptions::new();
            file.read(true).engine(engine).cache_mode(mode);
            let file = file.blocking_open(&path).unwrap();
            std::fs::read(&path).unwrap();
            let mut slice = [0; 16];
            if !matches!(cached(&file, &mut slice, 0), Ok(Cached::All(16))) {
                return slowdisk::skip_or_fail("no cached reads on the build's filesystem");
            }
            let waker = futures_util::task::noop_waker();
            let mut cx = Context::from_waker(&waker);
            let mut buffer = Some(Vec::<u8>::with_capacity(4096));
            let mut read = |at: u64| {
                let mut read = pin!(file.read_at(buffer.take().unwrap(), at));
                let Poll::Ready(done) = read.as_mut().poll(&mut cx) else {
                    panic!("{mode:?}: not ready at once");
                };
                assert!(matches!(done.result, Ok(4096)), "{mode:?}");
                let p = done.provenance;
                assert_eq!((p.cached, p.device, p.unknown), (4096, 0, 0), "{mode:?}");
                assert_eq!(p.served_by, ServedBy::Caller, "{mode:?}");
                assert_eq!(done.buf[0], byte_at(at), "{mode:?}");
                buffer = Some(done.buf);
            };
            (0..100).for_each(|_| read(0));
            let (before, stats) = (allocations(), engine.stats());
            (0..1000u64).for_each(|i| read(i * 1237 % (SIZE as u64 - 4096)));
            assert_eq!(allocations() - before, 0, "{mode:?}");
            let now = engine.stats();
            assert_eq!(now.hits - stats.hits, 1000, "{mode:?}");
            assert_eq!(now.hit_bytes - stats.hit_bytes, 4_096_000, "{mode:?}");
            assert_eq!(
                (now.misses, now.handoffs),
                (stats.misses, stats.handoffs),
                "{mode:?}"
            );
            assert_eq!(file.history().hit_rate, 1.0, "{mode:?}");
        }
    });
}

#[test]
fn a_hit_through_submit_allocates_nothing() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let open = handle(&path);
        std::fs::read(&path).unwrap();
        let mut slice = [0; 16];
        if !matches!(cached(&open, &mut slice, 0), Ok(Cached::All(16))) {
            return slowdisk::skip_or_fail("no cached reads on the build's filesystem");
        }
        let mut buffer: Option<nowait::buffer::Buffer> = Some(Box::new(vec![0u8; 4096]));
        let mut read = |at: u64| {
            let op = Op::from(Read::new(&open, buffer.take().unwrap(), at));
            let Submit::Done(done) = engine.submit(op) else {
                panic!("not done at once");
            };
            assert!(matches!(done.result, Ok(4096)));
            assert_eq!(
                (done.provenance.cached, done.provenance.served_by),
                (4096, ServedBy::Caller)
            );
            buffer = done.op.into_buffer();
        };
        (0..100).for_each(|_| read(0));
        let before = allocations();
        (0..1000u64).for_each(|i| read(i * 1237 % (SIZE as u64 - 4096)));
        // The memory of an operation is used again.
        assert_eq!(allocations() - before, 0, "{}", name(engine));
        assert_eq!(engine.stats().hits, 1100, "{}", name(engine));
    });
}

#[test]
fn nothing_but_an_open_file_is_needed() {
    // `read::cached` of any descriptor, without an engine.
    let dir = scratch();
    let path = patterned(dir.path(), "file", SIZE);
    let file = std::fs::File::open(&path).unwrap();
    std::fs::read(&path).unwrap();
    let mut buffer = [0u8; 4096];
    let before = allocations();
    let got = cached(&file, &mut buffer, 8192).unwrap();
    match got {
        Cached::All(n) => {
            assert_eq!(allocations() - before, 0);
            assert_eq!(buffer[..n], pattern(8192, 4096));
        }
        other => slowdisk::skip_or_fail(format!("no cached reads here: {other:?}")),
    }
}
