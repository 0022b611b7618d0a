//! Buffers, wakers and closures of the program that panic, that return other memory at each call, or that
//! submit operations themselves. Nothing is undefined, and only their own operation fails.
#![allow(
    unsafe_code,
    reason = "buffers of their own kind: `IoBufMut::set_filled` is unsafe"
)]

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::task::noop_waker;
use nowait::buffer::{BufferPool, PoolBuffer, UninitSlice, downcast, downcast_source};
use nowait::engine::{Backend, Engine, Options, Submit, Wait};
use nowait::op::{Call, Kind, Nop, Op, Read, Readv, Write, Writev};
use nowait::read::NowaitPolicy;
use nowait::{Completion, File, Handle, IoBuf, IoBufMut, OpenOptions};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued};
use crate::common::drive::{Drive, each};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::hooked::{Event, hooked};
use crate::common::kinds::each_kind;
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, vector_of};
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

const PAGE: usize = 4096;

/// Panics without a message: the tests panic often.
fn panic_quietly() -> ! {
    resume_unwind(Box::new("a panic of the program's"))
}

fn panics<T>(code: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(code)).is_err()
}

/// Every operation goes to the engine.
fn untried() -> Options {
    Options::new()
        .depth(16)
        .workers(2)
        .nowait_policy(NowaitPolicy::Never)
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, &noop_waker())
}

/// Checks that the engine still works, with ring and workers, and that nothing is in flight.
fn works(engine: &mut dyn Drive, path: &Path) {
    for n in 0..8 {
        let read = Read::new(&handle(path), Box::new(vec![0; 64]), 64 * n);
        assert_eq!(bytes_of(one(engine, read)), pattern(64 * n, 64));
        assert_eq!(one(engine, Call::new(|| Ok(0))).result.unwrap(), 0);
    }
    wait_until("nothing is in flight", || engine.in_flight() == 0);
}

/// Opens a file to read and write by this engine.
fn open(engine: &Engine, path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .engine(engine)
        .blocking_open(path)
        .unwrap()
}

/// The same with futures.
fn futures_work(engine: &Engine, path: &Path) {
    let file = open(engine, path);
    for n in 0..8 {
        let read = pollster::block_on(file.read_at(vec![0; 64], 64 * n));
        assert_eq!(read.into_result().unwrap(), (64, pattern(64 * n, 64)));
    }
    wait_until("nothing is in flight", || engine.in_flight() == 0);
}

#[repr(align(4096))]
struct Page([u8; 2 * PAGE]);

impl Page {
    fn new() -> Box<Page> {
        Box::new(Page([0; 2 * PAGE]))
    }
}

/// Returns other memory at each call, and detects writes to the earlier memory.
struct Fickle {
    now: Box<Page>,
    /// Copies of the earlier memory.
    before: Vec<(Box<Page>, Vec<u8>)>,
    calls: usize,
}

impl Fickle {
    fn new() -> Fickle {
        Fickle {
            now: Page::new(),
            before: Vec::new(),
            calls: 0,
        }
    }

    fn check(&self, what: &str) {
        for (page, bytes) in &self.before {
            assert!(
                page.0 == **bytes,
                "{what}: written to after it was given up"
            );
        }
    }
}

impl IoBufMut for Fickle {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.calls += 1;
        let before = std::mem::replace(&mut self.now, Page::new());
        let bytes = before.0.to_vec();
        self.before.push((before, bytes));
        UninitSlice::Init(&mut self.now.0)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl IoBuf for Fickle {
    fn bytes(&self) -> &[u8] {
        &self.now.0
    }
}

#[test]
fn memory_that_a_buffer_named_before_is_not_written_to() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    for (direct, unaligned, at) in [
        (false, false, 0),
        (true, false, 0),
        (true, true, 0),
        (true, true, 77),
    ] {
        let what = format!("direct {direct}, unaligned {unaligned}, at {at}");
        each_shared(untried(), |engine| {
            let file = OpenOptions::new()
                .read(true)
                .direct(direct)
                .unaligned(unaligned)
                .engine(engine)
                .blocking_open(&path)
                .unwrap();
            let read = pollster::block_on(file.read_at(Fickle::new(), at));
            read.buf.check(&what);
            assert_eq!(read.result.unwrap(), 2 * PAGE, "{what}");
            assert!(read.buf.now.0 == *pattern(at, 2 * PAGE), "{what}");

            let op = Read::new(file.handle(), Box::new(Fickle::new()), at);
            let read = one(&mut engine.clone(), op);
            assert_eq!(read.result.as_ref().unwrap(), &(2 * PAGE), "{what}");
            let held = downcast::<Fickle>(read.op.into_buffer().unwrap());
            let held = held.unwrap_or_else(|_| unreachable!());
            held.check(&what);
            assert_eq!(held.calls, 1, "{what}");
            assert!(held.now.0 == *pattern(at, 2 * PAGE), "{what}");
        });
    }
}

#[test]
fn each_buffer_is_asked_once() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let fickle = || Box::new(Fickle::new());
    let calls = |buffer| match downcast::<Fickle>(buffer) {
        Ok(fickle) => {
            fickle.check("asked once");
            fickle.calls
        }
        Err(_) => unreachable!(),
    };
    each_kind(untried(), |engine| {
        let file = engine.file(&handle_rw(&path));
        let mut ops: Vec<Op> = vec![
            Read::new(&file, fickle(), 0).into(),
            Readv::new(&file, vec![fickle(), fickle()], 0).into(),
        ];
        while !ops.is_empty() {
            engine.submit_batch(&mut ops);
        }
        for done in finish(engine, 2) {
            assert!(done.result.is_ok(), "{done:?}");
            match done.op.into_kind() {
                Kind::Read(read) => assert_eq!(calls(read.into_buffer()), 1),
                Kind::Readv(read) => {
                    for buffer in read.into_buffers() {
                        assert_eq!(calls(buffer), 1);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        works(engine, &path);
    });
}

/// Returns more memory at each call, and notes the length that it is given.
struct Growing {
    memory: Vec<u8>,
    asked: usize,
    told: Arc<AtomicUsize>,
}

impl IoBufMut for Growing {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        let room = 32 * self.asked;
        self.asked += 1;
        UninitSlice::from(&mut self.memory[..room])
    }

    unsafe fn set_filled(&mut self, n: usize) {
        self.told.store(n, SeqCst);
    }
}

#[test]
fn a_buffer_is_told_of_no_byte_that_was_not_read() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", PAGE);
    each_kind(untried(), |engine| {
        let told = Arc::new(AtomicUsize::new(usize::MAX));
        let growing = Growing {
            memory: vec![0; PAGE],
            asked: 0,
            told: told.clone(),
        };
        let file = engine.file(&handle(&path));
        let op = Readv::new(&file, vec![Box::new(growing), Box::new(vec![0; 128])], 0);
        let done = one(engine, op);
        assert_eq!(done.result.unwrap(), 128);
        let Kind::Readv(op) = done.op.into_kind() else {
            panic!("another operation")
        };
        let mut buffers = op.into_buffers();
        assert_eq!(told.load(SeqCst), 0, "it had no room when it was asked");
        assert_eq!(vector_of(buffers.remove(1)), pattern(0, 128));
    });
}

/// Returns less memory at each call.
struct Shrinking {
    memory: Vec<u8>,
    asked: usize,
}

impl IoBufMut for Shrinking {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        let room = self.memory.len() >> (8 * self.asked).min(63);
        self.asked += 1;
        UninitSlice::from(&mut self.memory[..room])
    }

    unsafe fn set_filled(&mut self, n: usize) {
        assert!(n <= self.memory.len());
    }
}

#[test]
fn a_read_that_was_begun_goes_on_in_less_room() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 64 * PAGE);
    // The cached part is smaller than the first buffer and larger than the second.
    evict(&path);
    let std = std::fs::File::open(&path).unwrap();
    rustix::fs::fadvise(&std, 0, None, rustix::fs::Advice::Random).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&std, &mut [0; PAGE], 0).unwrap();
    each_shared(Options::new(), |engine| {
        let file = open(engine, &path);
        let shrinking = Shrinking {
            memory: vec![0; 32 * PAGE],
            asked: 0,
        };
        let read = pollster::block_on(file.read_at(shrinking, 0));
        let n = read.result.unwrap();
        assert!(read.buf.memory[..n] == *pattern(0, n));
        futures_work(engine, &path);
    });
}

/// The memory is part of the buffer and moves with it.
struct Inline([u8; PAGE]);

impl IoBufMut for Inline {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        UninitSlice::Init(&mut self.0)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

#[test]
fn memory_within_a_buffer_stays_where_it_is_while_it_is_filled() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    each_shared(untried(), |engine| {
        let file = open(engine, &path);
        let reads = (0..16).map(|n| file.read_at(Inline([0; PAGE]), n * PAGE as u64));
        let reads = pollster::block_on(futures_util::future::join_all(reads));
        for (n, read) in (0..).zip(reads) {
            assert_eq!(read.result.unwrap(), PAGE);
            assert!(read.buf.0 == *pattern(n * PAGE as u64, PAGE));
        }
    });
}

/// The call at which a buffer panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The n-th call for its memory.
    Asked(usize),
    Told,
    Dropped,
}

struct Panicking {
    memory: Vec<u8>,
    asked: std::cell::Cell<usize>,
    when: When,
}

impl Panicking {
    fn new(when: When) -> Panicking {
        Panicking {
            memory: vec![0; 100],
            asked: 0.into(),
            when,
        }
    }

    fn boxed(when: When) -> Box<Panicking> {
        Box::new(Panicking::new(when))
    }

    fn ask(&self) {
        self.asked.set(self.asked.get() + 1);
        if self.when == When::Asked(self.asked.get()) {
            panic_quietly();
        }
    }
}

impl IoBufMut for Panicking {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.ask();
        UninitSlice::from(&mut self.memory)
    }

    unsafe fn set_filled(&mut self, _: usize) {
        if self.when == When::Told {
            panic_quietly();
        }
    }
}

impl IoBuf for Panicking {
    fn bytes(&self) -> &[u8] {
        self.ask();
        &self.memory
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        // A second panic during the first would abort the process.
        if self.when == When::Dropped && !std::thread::panicking() {
            panic_quietly();
        }
    }
}

#[test]
fn a_buffer_that_panics_when_asked_panics_in_its_own_thread() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let first = When::Asked(1);
    let open_rw = handle_rw(&path);
    assert!(panics(|| Read::new(&open_rw, Panicking::boxed(first), 0)));
    assert!(panics(|| Write::new(&open_rw, Panicking::boxed(first), 0)));
    assert!(panics(|| Readv::new(
        &open_rw,
        vec![Panicking::boxed(first)],
        0
    )));
    assert!(panics(|| Writev::new(
        &open_rw,
        vec![Panicking::boxed(first)],
        0
    )));
    for n in 1..4 {
        each_shared(untried(), |engine| {
            let file = open(engine, &path);
            for _ in 0..20 {
                let panicking = || Panicking::new(When::Asked(n));
                // A future asks at most twice: before the try, and when it submits to the engine.
                let read = panics(|| pollster::block_on(file.read_at(panicking(), 0)));
                assert_eq!(read, n < 3, "read {n}");
                let _ = panics(|| pollster::block_on(file.write_at(panicking(), PAGE as u64 * 8)));
                let all = vec![panicking(), panicking()];
                let _ = panics(|| pollster::block_on(file.read_vectored_at(all, 0)));
                let all = vec![panicking(), panicking()];
                let _ = panics(|| pollster::block_on(file.write_vectored_at(all, PAGE as u64 * 8)));
            }
            futures_work(engine, &path);
            works(&mut engine.clone(), &path);
        });
        each_kind(untried(), |engine| {
            let file = engine.file(&open_rw);
            for _ in 0..20 {
                let asked = catch_unwind(AssertUnwindSafe(|| {
                    Op::from(Read::new(&file, Panicking::boxed(When::Asked(n)), 0))
                }));
                assert_eq!(asked.is_err(), n == 1);
                if let Ok(op) = asked {
                    assert_eq!(one(engine, op).result.unwrap(), 100);
                }
            }
            works(engine, &path);
        });
    }
}

#[test]
fn a_buffer_that_panics_when_told_panics_where_it_is_taken_back() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    each_kind(untried(), |engine| {
        let file = engine.file(&handle(&path));
        for _ in 0..20 {
            let done = one(engine, Read::new(&file, Panicking::boxed(When::Told), 0));
            assert_eq!(done.result.as_ref().unwrap(), &100);
            assert!(panics(|| done.op.into_buffer()));
        }
        works(engine, &path);
    });
    for trying in [NowaitPolicy::Never, NowaitPolicy::Always] {
        each_shared(untried().nowait_policy(trying), |engine| {
            let file = open(engine, &path);
            for _ in 0..20 {
                let read = || pollster::block_on(file.read_at(Panicking::new(When::Told), 0));
                assert!(panics(read));
            }
            futures_work(engine, &path);
        });
    }
}

#[test]
fn a_destructor_that_panics_ends_its_own_operation_alone() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let bad = || Panicking::boxed(When::Dropped);
    let two = || vec![Panicking::new(When::Dropped), Panicking::new(When::Dropped)];
    // Futures that are dropped after their first poll.
    each_shared(untried().workers(1), |engine| {
        let file = open(engine, &path);
        for _ in 0..20 {
            let mut read = file.read_at(Panicking::new(When::Dropped), 0);
            if let Poll::Ready(done) = poll_once(&mut read) {
                std::mem::forget(done.buf);
            }
            let mut write = Box::pin(file.write_vectored_at(two(), 8 * PAGE as u64));
            if let Poll::Ready(done) = poll_once(&mut write) {
                std::mem::forget(done.buf);
            }
        }
        futures_work(engine, &path);
        works(&mut engine.clone(), &path);
    });
    // Operations: dropped when done, stopped, or refused.
    each_kind(untried().workers(1), |engine| {
        let file = engine.file(&handle_rw(&path));
        let (empty, _writer) = pipe();
        for _ in 0..20 {
            drop(one(engine, Read::new(&file, bad(), 0)));
            drop(one(engine, Readv::new(&file, vec![bad(), bad()], 0)));
            drop(one(engine, Write::new(&file, bad(), 8 * PAGE as u64)));
            drop(one(
                engine,
                Writev::new(&file, vec![bad(), bad()], 8 * PAGE as u64),
            ));
            let ticket = queued(engine, Read::stream(&empty, bad()));
            engine.cancel(ticket);
            drop(finish(engine, 1));
            let bomb = bad();
            drop(one(
                engine,
                Call::new(move || {
                    drop(bomb);
                    Ok(0)
                }),
            ));
        }
        let mut ops: Vec<Op> = (0..64).map(|_| Read::new(&file, bad(), 0).into()).collect();
        let taken = engine.submit_batch(&mut ops);
        drop(ops);
        drop(finish(engine, taken));
        works(engine, &path);
    });
}

#[test]
fn a_destructor_may_panic_while_its_engine_ends() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let file = handle(&path);
    for backend in backends() {
        let options = untried().backend(backend);
        for _ in 0..20 {
            let shared = options.build().unwrap();
            let local = options.build_local().unwrap();
            submit_bad(shared.clone(), &file);
            drop(shared);
            submit_bad(local, &file);
        }
        let shared = options.build().unwrap();
        futures_work(&shared, &path);
    }
}

fn submit_bad(mut engine: impl Drive, file: &Handle) {
    let bad = || Panicking::boxed(When::Dropped);
    let mut ops: Vec<Op> = (0..8).map(|_| Read::new(file, bad(), 0).into()).collect();
    ops.push(
        Call::new(|| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(0)
        })
        .into(),
    );
    let bomb = bad();
    ops.push(
        Call::new(move || {
            drop(bomb);
            Ok(0)
        })
        .into(),
    );
    assert_eq!(engine.submit_batch(&mut ops), 10);
}

#[test]
fn a_call_that_is_never_made_may_panic_when_it_is_dropped() {
    each(untried().workers(1), |engine| {
        let go_on = Arc::new(AtomicBool::new(false));
        let hold = go_on.clone();
        let held = move || {
            while !hold.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(0)
        };
        queued(engine, Call::new(held));
        let tickets: Vec<_> = (0..4)
            .map(|_| {
                let bomb = Panicking::boxed(When::Dropped);
                queued(
                    engine,
                    Call::new(move || {
                        drop(bomb);
                        Ok(0)
                    }),
                )
            })
            .collect();
        tickets.into_iter().for_each(|ticket| engine.cancel(ticket));
        drop(finish(engine, 4));
        go_on.store(true, SeqCst);
        assert_eq!(finish(engine, 1).remove(0).result.unwrap(), 0);
        assert_eq!(one(engine, Call::new(|| Ok(0))).result.unwrap(), 0);
    });
}

/// Calls the engine at each of its own calls.
struct Busy {
    memory: Vec<u8>,
    engine: Engine,
    dropped: Arc<AtomicUsize>,
}

impl Busy {
    fn use_engine(&self) {
        let _ = (
            self.engine.stats(),
            self.engine.costs(),
            self.engine.in_flight(),
        );
        if let Submit::Queued(ticket) = self.engine.submit(Op::from(Nop)) {
            self.engine.cancel(ticket);
        }
        let _ = self.engine.reap(&mut Vec::new(), Wait::No);
    }
}

impl IoBufMut for Busy {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.use_engine();
        UninitSlice::from(&mut self.memory)
    }

    unsafe fn set_filled(&mut self, _: usize) {
        self.use_engine();
    }
}

impl IoBuf for Busy {
    fn bytes(&self) -> &[u8] {
        self.use_engine();
        &self.memory
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.use_engine();
        self.dropped.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_buffer_may_use_the_engine_that_it_is_given_to() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    each_shared(untried(), |engine| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let busy = || Busy {
            memory: vec![0; 100],
            engine: engine.clone(),
            dropped: dropped.clone(),
        };
        let file = open(engine, &path);
        for _ in 0..50 {
            let read = pollster::block_on(file.read_at(busy(), 0));
            assert_eq!(read.result.unwrap(), 100);
            drop(read.buf);
            let written = pollster::block_on(file.write_at(busy(), 8 * PAGE as u64));
            assert_eq!(written.result.unwrap(), 100);
            drop(written.buf);
            let mut ops = vec![Op::from(Read::new(file.handle(), Box::new(busy()), 0))];
            engine.submit_batch(&mut ops);
            // Its buffer is dropped by the engine.
            let _ = poll_once(&mut file.read_at(busy(), 0));
        }
        // The last of them may have submitted an operation that is not done yet.
        wait_until("each buffer is dropped once", || {
            let _ = engine.reap(&mut Vec::new(), Wait::No);
            dropped.load(SeqCst) == 200 && engine.in_flight() == 0
        });
        futures_work(engine, &path);
    });
}

/// At each call, gives its memory back to a pool and takes memory of the pool again.
struct Returning {
    pool: BufferPool,
    now: Option<PoolBuffer>,
}

impl IoBufMut for Returning {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.now = None;
        self.now = self.pool.take();
        match &mut self.now {
            Some(memory) => UninitSlice::Init(memory),
            None => UninitSlice::Init(&mut []),
        }
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

#[test]
fn memory_of_a_pool_is_not_given_back_while_it_is_filled() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let pool = BufferPool::new(8, PAGE).unwrap();
    each(untried().buffers(&pool), |engine| {
        let file = handle(&path);
        let returning = || {
            let pool = pool.clone();
            Box::new(Returning { pool, now: None })
        };
        let mut ops: Vec<Op> = (0..8)
            .map(|n| Op::from(Read::new(&file, returning(), n * PAGE as u64)).user_data(n))
            .collect();
        assert_eq!(engine.submit_batch(&mut ops), 8);
        assert_eq!(pool.free(), 0);
        for done in finish(engine, 8) {
            let at = done.op.get_user_data() * PAGE as u64;
            assert_eq!(done.result.as_ref().unwrap(), &PAGE);
            let held = downcast::<Returning>(done.op.into_buffer().unwrap());
            let held = held.unwrap_or_else(|_| unreachable!());
            assert!(**held.now.as_ref().unwrap() == *pattern(at, PAGE));
        }
        assert_eq!(pool.free(), 8);
    });
}

#[test]
fn an_operation_can_be_shown_without_asking_its_buffer() {
    let dir = scratch();
    let open = handle_rw(&patterned(dir.path(), "file", PAGE));
    let second = || Panicking::boxed(When::Asked(2));
    let ops: [Op; 4] = [
        Read::new(&open, second(), 0).into(),
        Readv::new(&open, vec![second()], 0).into(),
        Write::new(&open, second(), 0).into(),
        Writev::new(&open, vec![second()], 0).into(),
    ];
    for op in ops {
        assert!(format!("{op:?}").contains("100 bytes"), "{op:?}");
        if let Some(source) = op.into_source() {
            assert!(downcast_source::<Panicking>(source).is_ok());
        }
    }
}

#[test]
fn a_waker_that_panics_ends_nothing() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    for when in [Event::Clone, Event::Wake, Event::Drop] {
        each_shared(untried().workers(1), |engine| {
            let file = open(engine, &path);
            let mut results = Vec::new();
            for _ in 0..50 {
                let armed = Arc::new(AtomicBool::new(true));
                let is_armed = armed.clone();
                let waker = hooked(move |event| {
                    if event == when && is_armed.load(SeqCst) && !std::thread::panicking() {
                        panic_quietly();
                    }
                });
                let mut read = file.read_at(vec![0; 64], 0);
                results.push(panics(|| poll_with(&mut read, &waker)));
                // Another waker replaces it, or the future is dropped.
                let _ = panics(|| poll_once(&mut read));
                let _ = panics(|| poll_with(&mut read, &waker));
                drop(read);
                armed.store(false, SeqCst);
                drop(waker);
            }
            if when != Event::Clone {
                assert!(results.iter().all(|panicked| !panicked), "{when:?}");
            }
            futures_work(engine, &path);
        });
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_waker_that_panics_when_it_is_cloned_costs_a_tokio_file_no_permit() {
    use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    use std::io::SeekFrom;
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let armed = Arc::new(AtomicBool::new(true));
    let is_armed = armed.clone();
    let waker = hooked(move |event| {
        if event == Event::Clone && is_armed.load(SeqCst) {
            panic_quietly();
        }
    });
    each_shared(untried().depth(1), |engine| {
        armed.store(true, SeqCst);
        let (reader, writer) = pipe();
        let file = |handle| nowait::tokio::File::from(File::from_handle(handle, engine));
        let writer = Handle::new(writer).unwrap();
        let (mut reader, mut writer) = (file(&reader), file(&writer));
        let mut buf = [0; 5];
        for _ in 0..3 {
            assert!(panics(|| poll_with(
                &mut pin!(reader.read(&mut buf)),
                &waker
            )));
            assert!(panics(|| poll_with(
                &mut pin!(writer.write(b"lost")),
                &waker
            )));
            assert_eq!(engine.in_flight(), 0);
        }
        // Calls at the position of a file with another holder.
        let mut of_file = nowait::tokio::File::from(open(engine, &path));
        let other = pollster::block_on(of_file.try_clone()).unwrap();
        for _ in 0..3 {
            evict(&path);
            let _ = panics(|| poll_with(&mut pin!(of_file.read(&mut buf)), &waker));
            let end = SeekFrom::End(0);
            let _ = panics(|| poll_with(&mut pin!(of_file.seek(end)), &waker));
            wait_until("each permit is back", || engine.in_flight() == 0);
        }
        armed.store(false, SeqCst);
        drop(other);
        assert_eq!(pollster::block_on(writer.write(b"bytes")).unwrap(), 5);
        assert_eq!(pollster::block_on(reader.read(&mut buf)).unwrap(), 5);
        assert_eq!(&buf, b"bytes");
        futures_work(engine, &path);
    });
    drop(waker);
}

/// The future takes its permit of the engine in the poll that drops its waker.
#[test]
fn a_waker_that_panics_when_it_is_dropped_loses_no_permit() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    each_shared(untried().depth(1), |engine| {
        for _ in 0..3 {
            let file = open(engine, &path);
            let mut read = file.read_at(vec![0; 64], 0);
            // A completion that is not reaped keeps its permit.
            assert!(matches!(engine.submit(Nop.into()), Submit::Queued(_)));
            assert!(poll_once(&mut read).is_pending());
            assert_eq!(engine.reap(&mut Vec::new(), Wait::For(1)).unwrap(), 1);

            let armed = Arc::new(AtomicBool::new(true));
            let is_armed = armed.clone();
            let waker = hooked(move |event| {
                if event == Event::Drop && is_armed.load(SeqCst) && !std::thread::panicking() {
                    panic_quietly();
                }
            });
            assert!(!panics(|| poll_with(&mut read, &waker)));
            armed.store(false, SeqCst);
            let done = pollster::block_on(read);
            assert_eq!(done.into_result().unwrap(), (64, pattern(0, 64)));
        }
        futures_work(engine, &path);
    });
}

/// Blocks the worker that drops it, until the test lets it go on.
struct Holding {
    memory: Vec<u8>,
    holds: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
    /// Another thread has dropped it.
    is_gone: Arc<AtomicBool>,
}

impl IoBufMut for Holding {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        UninitSlice::from(&mut self.memory)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Not with the standard library, which knows only the names of its own threads.
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        if name.trim() == "nowait-worker" {
            self.holds.store(true, SeqCst);
            wait_until("the worker is let go", || self.go_on.load(SeqCst));
        } else {
            self.is_gone.store(true, SeqCst);
        }
    }
}

/// The destructor of a waker may wait: here for the worker that is about to deliver the completion that
/// the waker waits for.
#[test]
fn no_waker_is_dropped_under_a_lock_that_a_worker_takes() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 16 * PAGE);
    let options = untried().workers(1).backend(Backend::Threads);
    let _limit = Limit::new("a waker's destructor".into());
    let engine = options.build().unwrap();
    let file = open(&engine, &path);
    let mut held = 0;
    for _ in 0..200 {
        let flag = || Arc::new(AtomicBool::new(false));
        let (holds, go_on, is_gone, armed) = (flag(), flag(), flag(), flag());
        // The future is dropped before the worker has finished: the worker drops the buffer, after the read was counted as done.
        let mut given_up = file.read_at(
            Holding {
                memory: vec![0; 64],
                holds: holds.clone(),
                go_on: go_on.clone(),
                is_gone: is_gone.clone(),
            },
            0,
        );
        let _ = poll_once(&mut given_up);
        drop(given_up);
        wait_until("the buffer is dropped", || {
            holds.load(SeqCst) || is_gone.load(SeqCst)
        });
        if !holds.load(SeqCst) {
            continue;
        }
        held += 1;
        let waker = {
            let (engine, armed) = (engine.clone(), armed.clone());
            let file = file.handle().clone();
            hooked(move |event| {
                if event == Event::Drop && armed.swap(false, SeqCst) {
                    go_on.store(true, SeqCst);
                    let next = Read::new(&file, Box::new(vec![0; 64]), 0);
                    queued(&mut engine.clone(), next);
                    drop(finish(&mut engine.clone(), 1));
                }
            })
        };
        let mut read = file.read_at(vec![0; 64], 0);
        // Once to get a permit, once to wait for the result.
        assert!(poll_with(&mut read, &waker).is_pending());
        assert!(poll_with(&mut read, &waker).is_pending());
        armed.store(true, SeqCst);
        let done = match poll_once(&mut read) {
            Poll::Ready(done) => done,
            Poll::Pending => pollster::block_on(read),
        };
        assert!(!armed.load(SeqCst), "the first waker was dropped");
        assert_eq!(done.result.unwrap(), 64);
    }
    assert!(held > 0, "no worker came back after its read was given up");
    futures_work(&engine, &path);
}

/// An operation is `Send` and `Sync` for every buffer: a shared reference gives no access to the buffer.
#[test]
fn operations_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Op>();
    shared::<Completion>();
    shared::<nowait::ReadAt<'static, Vec<u8>>>();
    shared::<nowait::WriteAt<'static, Vec<u8>>>();
}
