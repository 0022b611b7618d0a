//! Much of everything, for long: ten thousand operations in flight, cancels, drops, forks, files that
//! are cut off meanwhile. Bytes are checked; at the end descriptors, threads and memory are back to
//! where they began. `NOWAIT_SOAK_SECONDS` says for how long; 20 seconds if not set.
//!
//! Memory is counted in the allocator and by mappings. The resident size tells nothing: glibc keeps freed
//! memory in several arenas, and their fragments grow with each life while the bytes in use stay the same.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common {
    pub mod backends;
    pub mod files;
    pub mod forked;
    pub mod handles;
    pub mod truncation;
    pub mod wait;
}

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use nowait::buffer::Buffer;
use nowait::engine::{Backend, Engine, Options, Wait};
use nowait::op::{Fsync, Kind, Nop, Op, Openat2, Read, Readv, Write};
use nowait::{Completion, ErrorKind, File, Handle, RwFlags, Ticket};
use rustix::fs::OFlags;

use crate::common::backends::backends;
use crate::common::files::{byte_at, pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::truncation::cut_off_until;
use crate::common::wait::wait_until;

const DEPTH: usize = 10_000;
const LEN: u64 = 8 << 20;
/// The file that is cut off has so many bytes when it is whole.
const CUT: usize = 400_000;
/// Pieces of the file that is written to, each by one operation at a time and always with the same bytes.
const PIECES: u64 = 1_000;
const PIECE: u64 = 4096;

/// The bytes that later lives may leave behind beyond the first ones: less than two operations hold.
const SPARE_BYTES: isize = 4096;

/// The system's allocator, and how many bytes of its memory are in use.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let more = size.cast_signed() - layout.size().cast_signed();
        LIVE.fetch_add(more, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Numbers that look random: xorshift64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

struct Ground {
    _dir: tempfile::TempDir,
    whole: PathBuf,
    cut: PathBuf,
    written: PathBuf,
}

impl Ground {
    fn new() -> Ground {
        let dir = scratch();
        Ground {
            whole: patterned(dir.path(), "whole", LEN as usize),
            cut: patterned(dir.path(), "cut", CUT),
            written: patterned(dir.path(), "written", (PIECES * PIECE) as usize),
            _dir: dir,
        }
    }
}

/// The open files that operations work on.
struct Files {
    whole: Handle,
    direct: Option<Handle>,
    cut: Handle,
    written: Handle,
    pipe: Handle,
    path: std::ffi::CString,
}

impl Files {
    fn open(ground: &Ground, pipe: &Handle) -> Files {
        use std::os::unix::ffi::OsStrExt;
        let none = rustix::fs::Mode::empty();
        let direct = rustix::fs::open(&ground.whole, OFlags::RDONLY | OFlags::DIRECT, none);
        Files {
            whole: handle(&ground.whole),
            direct: direct.ok().map(|fd| Handle::new(fd).unwrap()),
            cut: handle(&ground.cut),
            written: handle_rw(&ground.written),
            pipe: pipe.clone(),
            path: std::ffi::CString::new(ground.whole.as_os_str().as_bytes()).unwrap(),
        }
    }

    /// Any operation. Its token says what it is to bring: the file in the upper bits, the offset below.
    fn draw(&self, draws: &mut Draws) -> Op {
        let at = draws.below(LEN);
        let len = 1 + draws.below(8_000) as usize;
        let buffer = || Box::new(Vec::<u8>::with_capacity(len));
        let op = match draws.below(20) {
            0..8 => Op::from(Read::new(&self.whole, buffer(), at)).user_data(WHOLE | at),
            8 => {
                let read = Read::new(&self.whole, buffer(), at).flags(RwFlags::HIPRI);
                Op::from(read).user_data(WHOLE | at)
            }
            9 => {
                let direct = self.direct.as_ref().unwrap_or(&self.whole);
                let pool = nowait::buffer::BufferPool::new(1, 4096).unwrap();
                let at = at / 4096 * 4096;
                let read = Read::new(direct, Box::new(pool.take().unwrap()), at);
                Op::from(read).user_data(DIRECT | at)
            }
            10..13 => {
                let at = draws.below(CUT as u64);
                Op::from(Read::new(&self.cut, buffer(), at)).user_data(CUT_OFF | at)
            }
            13 => {
                let two = vec![buffer() as nowait::buffer::Buffer, buffer()];
                Op::from(Readv::new(&self.whole, two, at)).user_data(PIECES_OF | at)
            }
            14 | 15 => {
                let at = draws.below(PIECES) * PIECE;
                let bytes = Box::new(pattern(at, PIECE as usize));
                Op::from(Write::new(&self.written, bytes, at).all()).user_data(WRITTEN)
            }
            16 if draws.below(50) == 0 => Fsync::new(&self.written).into(),
            17 if draws.below(20) == 0 => {
                Op::from(Read::stream(&self.pipe, Box::new(vec![0u8; 1]))).user_data(PIPE)
            }
            18 => Openat2::new(self.path.clone(), libc::O_RDONLY, 0).into(),
            _ => Op::from(Nop).user_data(NOP),
        };
        match draws.below(30) {
            0 => op.deadline(Instant::now() + Duration::from_micros(draws.below(20_000))),
            _ => op,
        }
    }
}

const WHOLE: u64 = 1 << 40;
const DIRECT: u64 = 2 << 40;
const CUT_OFF: u64 = 3 << 40;
const PIECES_OF: u64 = 4 << 40;
const WRITTEN: u64 = 5 << 40;
const PIPE: u64 = 6 << 40;
const NOP: u64 = 7 << 40;
const OFFSET: u64 = (1 << 40) - 1;

/// The buffer of a read: a vector.
fn bytes_of(done: Completion) -> Vec<u8> {
    vector(done.op.into_buffer().expect("a read"))
}

/// The buffers of a readv.
fn pieces_of(done: Completion) -> Vec<Vec<u8>> {
    let Kind::Readv(op) = done.op.into_kind() else {
        panic!("not a readv")
    };
    op.into_buffers().into_iter().map(vector).collect()
}

fn vector(buffer: Buffer) -> Vec<u8> {
    nowait::buffer::downcast(buffer).expect("a vector")
}

/// Checks that a completion has the expected result.
fn judge(done: Completion, stopped: &mut u64) {
    let token = done.op.get_user_data();
    let at = token & OFFSET;
    let n = match &done.result {
        Ok(n) => *n,
        Err(error) => {
            let ours = matches!(
                error.kind(),
                ErrorKind::Cancelled | ErrorKind::DeadlinePassed
            );
            assert!(ours, "{error}");
            *stopped += 1;
            return;
        }
    };
    match token & !OFFSET {
        WHOLE => {
            let bytes = bytes_of(done);
            assert_eq!(n, bytes.len());
            assert_eq!(
                n as u64,
                (bytes.capacity() as u64).min(LEN - at),
                "short at {at}"
            );
            assert!(bytes == pattern(at, n), "wrong bytes at {at}");
        }
        DIRECT => {
            assert_eq!(n, 4096);
            let pooled = done.op.into_buffer().unwrap();
            let Ok(pooled) = nowait::buffer::downcast::<nowait::buffer::PoolBuffer>(pooled) else {
                panic!("the buffer is not the one that it was");
            };
            assert!(pooled[..] == pattern(at, n), "wrong bytes at {at}");
        }
        CUT_OFF => {
            // It may end anywhere, and may have been empty for a moment; where it was made longer
            // again there are zeroes until it is written.
            let bytes = bytes_of(done);
            for (i, byte) in bytes.iter().enumerate() {
                assert!(
                    *byte == byte_at(at + i as u64) || *byte == 0,
                    "wrong byte at {at} + {i}"
                );
            }
        }
        PIECES_OF => {
            let bytes = pieces_of(done).concat();
            assert!(bytes[..n] == pattern(at, n), "wrong bytes at {at}");
        }
        WRITTEN => assert_eq!(n as u64, PIECE),
        PIPE => assert!(n <= 1),
        _ => {
            if let Kind::Openat2(op) = done.op.into_kind() {
                assert!(op.into_fd().is_some());
            }
        }
    }
}

/// Checks that an engine of the parent refuses to work in a forked child.
fn in_child(engine: &Engine, ground: &Ground) {
    assert!(engine.reap(&mut Vec::new(), Wait::For(1)).is_err());
    assert_eq!(engine.submit_batch(&mut vec![Nop.into()]), 0);
    let file = pollster::block_on(File::open(&ground.whole)).unwrap();
    let done = pollster::block_on(file.read_at(Vec::with_capacity(100_000), 5));
    assert!(done.buf == pattern(5, 100_000));
}

/// One engine's life. How many operations were done, and how many of all were stopped.
fn live(backend: Backend, ground: &Ground, draws: &mut Draws, until: Instant) -> [u64; 2] {
    let (pipe, writer) = pipe();
    // It may be full: few operations read from it.
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let files = Files::open(ground, &pipe);
    let options = Options::new().backend(backend).workers(32);
    let engine = options.clone().depth(DEPTH).build().unwrap();
    let over = AtomicBool::new(false);
    let (mut count, mut stopped) = (0, 0);
    std::thread::scope(|s| {
        s.spawn(|| cut_off_until(&ground.cut, CUT, &over));
        s.spawn(|| {
            // Reads that wait for the pipe receive a byte now and then.
            while !over.load(Ordering::Relaxed) {
                let _ = rustix::io::write(&writer, &[1; 64]);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut tickets: VecDeque<Ticket> = VecDeque::new();
        let mut next_fork = Instant::now();
        let mut done = Vec::new();
        while Instant::now() < until {
            let mut ops: Vec<Op> = (0..DEPTH - engine.in_flight())
                .map(|_| files.draw(draws))
                .collect();
            // Some one by one, whose tickets are told.
            for op in ops.split_off(ops.len() - ops.len() / 20) {
                match engine.submit(op) {
                    nowait::engine::Submit::Queued(ticket) => tickets.push_back(ticket),
                    nowait::engine::Submit::Done(completion) => judge(completion, &mut stopped),
                    nowait::engine::Submit::Full(_) => {}
                }
            }
            engine.submit_batch(&mut ops);
            while tickets.len() > 200 {
                let at = draws.below(tickets.len() as u64) as usize;
                engine.cancel(tickets.swap_remove_back(at).unwrap());
            }
            if draws.below(10) == 0 {
                // Futures that are dropped on their way.
                let file = File::from_handle(&files.whole, &engine);
                let mut read = file.read_at(Vec::with_capacity(5_000), draws.below(LEN));
                let waker = std::task::Waker::noop();
                let mut cx = std::task::Context::from_waker(waker);
                let _ = std::pin::Pin::new(&mut read).poll(&mut cx);
            }
            if draws.below(20) == 0 {
                // An engine that is dropped with what it has.
                let mut local = options.clone().depth(64).build_local().unwrap();
                let mut ops: Vec<Op> = (0..64).map(|_| files.draw(draws)).collect();
                local.submit_batch(&mut ops);
                let mut some = Vec::new();
                local.reap(&mut some, Wait::For(8)).unwrap();
                some.into_iter().for_each(|done| judge(done, &mut stopped));
            }
            if Instant::now() >= next_fork {
                next_fork = Instant::now() + Duration::from_millis(300);
                forked("a child", || in_child(&engine, ground));
            }
            let want = 1 + draws.below(DEPTH as u64 / 2) as usize;
            let within = Duration::from_millis(20);
            engine
                .reap(
                    &mut done,
                    Wait::Batch {
                        count: want,
                        within,
                    },
                )
                .unwrap();
            count += done.len() as u64;
            done.drain(..).for_each(|done| judge(done, &mut stopped));
        }
        over.store(true, Ordering::Relaxed);
        // Reads that still wait for the pipe return its end.
        drop(files);
        while engine.in_flight() > 0 {
            let _ = rustix::io::write(&writer, &[1; 64]);
            let wait = Wait::UpTo(Duration::from_millis(100));
            engine.reap(&mut done, wait).unwrap();
            done.drain(..).for_each(|done| judge(done, &mut stopped));
        }
    });
    [count, stopped]
}

fn numbers(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}"))
        .unwrap()
        .count()
}

/// The memory that a life left behind.
#[derive(Debug)]
struct Left {
    /// Bytes of the allocator's memory that are in use.
    bytes: isize,
    mappings: usize,
}

/// How many mappings the process has: rings, pools of buffers, stacks of threads.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// The only test of its program, for it forks: no other test's threads hold locks then.
#[test]
fn much_of_everything_for_long_leaves_nothing_behind() {
    let seconds = std::env::var("NOWAIT_SOAK_SECONDS").ok();
    let seconds: f64 = seconds.map_or(20.0, |s| s.parse().expect("a number of seconds"));
    let ground = Ground::new();
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()));
    let (descriptors, threads) = (numbers("fd"), numbers("task"));
    let backends = backends();
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    // Lives of a few seconds each. The first of each backend tells what is normal.
    let life = Duration::from_secs_f64((seconds / 8.0).clamp(1.0, 20.0));
    let mut lives: Vec<Left> = Vec::new();
    let (mut count, mut all_stopped) = (0, 0);
    while Instant::now() < end || lives.len() < backends.len() + 1 {
        let backend = backends[lives.len() % backends.len()];
        let [done, stopped] = live(backend, &ground, &mut draws, Instant::now() + life);
        count += done;
        all_stopped += stopped;
        wait_until("descriptors and threads are back", || {
            numbers("fd") == descriptors && numbers("task") == threads
        });
        let vector = lives.capacity() * size_of::<Left>();
        lives.push(Left {
            bytes: LIVE.load(Ordering::Relaxed) - vector.cast_signed(),
            mappings: mappings(),
        });
    }
    assert!(all_stopped > 0, "none of {count} was stopped");
    eprintln!("{count} operations, {all_stopped} stopped; after each life: {lives:?}");
    let (first, later) = lives.split_at(backends.len());
    let bytes = first.iter().map(|left| left.bytes).max().unwrap();
    let mappings = first.iter().map(|left| left.mappings).max().unwrap();
    for left in later {
        assert!(left.bytes <= bytes + SPARE_BYTES, "{left:?} in {lives:?}");
        // glibc may have made arenas, of one or two mappings each.
        assert!(left.mappings <= mappings + 32, "{left:?} in {lives:?}");
    }
    // Each piece was written whole, with the same bytes.
    let written = std::fs::read(&ground.written).unwrap();
    assert!(written == pattern(0, (PIECES * PIECE) as usize));
}
