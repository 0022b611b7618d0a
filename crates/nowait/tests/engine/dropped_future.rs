//! Dropping a future, a file or an engine frees nothing that the kernel may still access. When the kernel
//! has finished, everything is freed once.
#![allow(
    unsafe_code,
    reason = "a buffer of its own kind: `IoBufMut::set_filled` is unsafe"
)]

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::noop_waker;
use nowait::buffer::UninitSlice;
use nowait::engine::{Backend, Engine, Options, Submit};
use nowait::op::{Nop, Op, Read, Write};
use nowait::{IoBuf, IoBufMut, Mode, OpenOptions};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, require};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::completions::{finish, one, queued};
use crate::common::drive::each;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::limit::Limit;
use crate::common::results::one_in_batch;
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

const ALIVE: u64 = 0x6e6f_7761_6974_2121;
const PAGE: usize = 4096;

/// A page-aligned buffer that counts its frees and detects use after them.
struct Watched {
    alive: u64,
    memory: Box<[u8]>,
    start: usize,
    freed: Arc<AtomicUsize>,
}

impl Watched {
    fn new() -> (Watched, Arc<AtomicUsize>) {
        let memory = vec![0; 2 * PAGE].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE);
        let freed = Arc::new(AtomicUsize::new(0));
        let watched = Watched {
            alive: ALIVE,
            memory,
            start,
            freed: freed.clone(),
        };
        (watched, freed)
    }

    fn check(&self) {
        assert_eq!(self.alive, ALIVE, "used after it was freed");
    }
}

impl IoBuf for Watched {
    fn bytes(&self) -> &[u8] {
        self.check();
        &self.memory[self.start..self.start + PAGE]
    }
}

impl IoBufMut for Watched {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.check();
        UninitSlice::Init(&mut self.memory[self.start..self.start + PAGE])
    }

    unsafe fn set_filled(&mut self, _: usize) {
        self.check();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.check();
        self.alive = 0;
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

fn count(freed: &AtomicUsize) -> usize {
    freed.load(Ordering::SeqCst)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let waker = noop_waker();
    pin!(future).poll(&mut Context::from_waker(&waker))
}

fn options(engine: &Engine) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).engine(engine);
    options
}

#[test]
fn never_polled_it_is_freed_at_once() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let file = options(engine)
            .blocking_open(patterned(dir.path(), "file", 100))
            .unwrap();
        let (buffer, freed) = Watched::new();
        drop(file.read_at(buffer, 0));
        assert_eq!(count(&freed), 1);
        let (buffer, freed) = Watched::new();
        drop(file.write_at(buffer, 0));
        assert_eq!(count(&freed), 1);
        drop(file.sync_all());
        assert_eq!((engine.in_flight(), engine.stats().handoffs), (0, 0));
    });
}

#[test]
fn while_it_waits_for_its_turn_it_is_freed_at_once() {
    each_shared(Options::new().depth(1), |engine| {
        let mut shared = engine.clone();
        // A completion that is not reaped keeps its place.
        queued(&mut shared, Nop);
        let dir = scratch();
        let path = patterned(dir.path(), "file", 2 * PAGE);
        let file = options(engine).direct(true).blocking_open(&path).unwrap();
        for _ in 0..3 {
            let (buffer, freed) = Watched::new();
            let mut read = file.read_at(buffer, 0);
            assert!(poll_once(&mut read).is_pending());
            assert!(poll_once(&mut read).is_pending());
            assert_eq!(count(&freed), 0);
            drop(read);
            assert_eq!(count(&freed), 1);
            let (buffer, freed) = Watched::new();
            let mut write = file.write_at(buffer, 0);
            assert!(poll_once(&mut write).is_pending());
            drop(write);
            assert_eq!(count(&freed), 1);
        }
        assert_eq!(
            std::fs::read(&path).unwrap(),
            pattern(0, 2 * PAGE),
            "nothing was written"
        );
        finish(&mut shared, 1);
        // The file can be read again.
        let (buffer, freed) = Watched::new();
        let done = pollster::block_on(file.read_at(buffer, PAGE as u64));
        assert_eq!(done.result.unwrap(), PAGE);
        assert_eq!(done.buf.bytes(), pattern(PAGE as u64, PAGE));
        drop(done.buf);
        assert_eq!(count(&freed), 1);
    });
}

/// A disk whose requests can be stalled, and its mounted filesystem.
struct Slow {
    disk: SlowDisk,
    mount: TestMount,
}

impl Slow {
    fn new() -> Slow {
        let disk = SlowDisk::builder().size(64 << 20).build().unwrap();
        let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
        Slow { disk, mount }
    }

    /// A file that is not cached.
    fn file(&self, name: &str) -> std::path::PathBuf {
        let path = patterned(self.mount.path(), name, 8 * PAGE);
        evict(&path);
        path
    }

    fn stall(&self) -> slowdisk::FaultId {
        self.disk.inject(Fault::stall(0..self.disk.size()))
    }
}

#[test]
fn in_flight_it_is_freed_after_the_completion_and_once() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let slow = Slow::new();
    each_shared(Options::new(), |engine| {
        let path = slow.file("file");
        let cached = options(engine)
            .cache_mode(Mode::Strict)
            .blocking_open(&path)
            .unwrap();
        let direct = options(engine).direct(true).blocking_open(&path).unwrap();
        let stall = slow.stall();

        let (buffer, read_freed) = Watched::new();
        let mut read = cached.read_at(buffer, 2 * PAGE as u64);
        assert!(poll_once(&mut read).is_pending());
        let (buffer, write_freed) = Watched::new();
        let mut write = direct.write_at(buffer, 0);
        assert!(poll_once(&mut write).is_pending());
        let (buffer, kept_freed) = Watched::new();
        let mut kept = direct.read_at(buffer, PAGE as u64);
        assert!(poll_once(&mut kept).is_pending());
        let mut sync = direct.sync_all();
        assert!(poll_once(&mut sync).is_pending());
        wait_until("the disk has them", || slow.disk.stalled() >= 3);

        // Drops everything that a caller has, while the device works.
        drop((read, write, sync));
        assert_eq!((count(&read_freed), count(&write_freed)), (0, 0));
        assert!(engine.in_flight() >= 3);
        assert!(poll_once(&mut kept).is_pending());
        slow.disk.release(stall);
        wait_until("their completions free them", || {
            count(&read_freed) == 1 && count(&write_freed) == 1
        });
        let done = pollster::block_on(kept);
        assert_eq!(done.buf.bytes(), pattern(PAGE as u64, PAGE));
        drop(done);
        wait_until("all is over", || engine.in_flight() == 0);
        let counts = [read_freed, write_freed, kept_freed].map(|freed| count(&freed));
        assert_eq!(counts, [1, 1, 1]);
        assert_eq!(
            std::fs::read(&path).unwrap()[..PAGE],
            [0; PAGE],
            "the write was made"
        );
    });
}

#[test]
fn file_and_engine_dropped_in_flight_free_after_the_completion() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let slow = Slow::new();
    for backend in backends() {
        let _limit = Limit::new(format!("{backend}"));
        let engine = Options::new().backend(backend).build().unwrap();
        let path = slow.file("file");
        let file = options(&engine).direct(true).blocking_open(&path).unwrap();
        let stall = slow.stall();
        let mut freed = Vec::new();
        for i in 0..4 {
            let (buffer, count) = Watched::new();
            freed.push(count);
            let mut read = file.read_at(buffer, i * PAGE as u64);
            assert!(poll_once(&mut read).is_pending());
        }
        wait_until("the disk has them", || slow.disk.stalled() > 0);
        // Neither drop waits for the disk.
        drop(file);
        drop(engine);
        assert!(freed.iter().all(|freed| count(freed) == 0), "{backend}");
        slow.disk.release(stall);
        wait_until("their completions free them", || {
            freed.iter().all(|freed| count(freed) == 1)
        });
    }
}

#[test]
fn after_completion_it_is_freed_with_the_future() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 2 * PAGE);
        let file = options(engine).direct(true).blocking_open(&path).unwrap();
        for _ in 0..20 {
            let (buffer, freed) = Watched::new();
            let mut read = file.read_at(buffer, 0);
            assert!(poll_once(&mut read).is_pending());
            wait_until("it is done", || engine.in_flight() == 0);
            // The completion is there and was not taken.
            std::thread::yield_now();
            drop(read);
            wait_until("it is freed", || count(&freed) == 1);

            let (buffer, freed) = Watched::new();
            let done = pollster::block_on(file.write_at(buffer, PAGE as u64));
            assert_eq!((done.result.unwrap(), count(&freed)), (PAGE, 0));
            drop(done.buf);
            assert_eq!(count(&freed), 1);
        }
    });
}

#[test]
fn a_future_polled_after_it_was_ready_stays_pending() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let file = options(engine)
            .blocking_open(patterned(dir.path(), "file", PAGE))
            .unwrap();
        let (buffer, freed) = Watched::new();
        let mut read = file.read_at(buffer, 0);
        drop(pollster::block_on(&mut read));
        assert!(poll_once(&mut read).is_pending());
        let (buffer, _) = Watched::new();
        let mut write = file.write_at(buffer, 0);
        drop(pollster::block_on(&mut write));
        assert!(poll_once(&mut write).is_pending());
        let mut sync = file.sync_all();
        pollster::block_on(&mut sync).unwrap();
        assert!(poll_once(&mut sync).is_pending());
        assert_eq!((count(&freed), engine.in_flight()), (1, 0));
    });
}

#[test]
fn cold_reads_dropped_at_every_moment() {
    each_shared(Options::new().depth(4), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 64 * PAGE);
        let file = options(engine)
            .cache_mode(Mode::Strict)
            .blocking_open(&path)
            .unwrap();
        let mut all = Vec::new();
        for round in 0..20u64 {
            evict(&path);
            let mut flying = Vec::new();
            for i in 0..16 {
                let (buffer, freed) = Watched::new();
                all.push(freed);
                let mut read = Box::pin(file.read_at(buffer, ((round + i * 7) % 64) * PAGE as u64));
                for _ in 0..i % 4 {
                    if poll_once(&mut read).is_ready() {
                        break;
                    }
                }
                flying.push(read);
            }
            // In no particular order.
            while !flying.is_empty() {
                let at = (round as usize * 5 + flying.len() * 3) % flying.len();
                drop(flying.swap_remove(at));
            }
        }
        wait_until("all is over", || engine.in_flight() == 0);
        wait_until("all is freed", || all.iter().all(|freed| count(freed) == 1));
    });
}

#[test]
fn a_dropped_engine_goes_on_to_the_end_of_what_it_has() {
    for backend in backends() {
        let _limit = Limit::new(format!("{backend}"));
        let engine = Options::new().backend(backend).build().unwrap();
        let (reader, writer) = pipe();
        let mut freed = Vec::new();
        for _ in 0..3 {
            let (buffer, count) = Watched::new();
            freed.push(count);
            assert!(matches!(
                engine.submit(Read::stream(&reader, Box::new(buffer)).into()),
                Submit::Queued(_)
            ));
        }
        drop((engine, reader));
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(freed.iter().all(|freed| count(freed) == 0), "{backend}");
        for left in (0..3).rev() {
            rustix::io::write(&writer, &[1; 10]).unwrap();
            wait_until("one completes and is freed", || {
                freed.iter().filter(|freed| count(freed) == 0).count() == left
            });
        }
        assert!(freed.iter().all(|freed| count(freed) == 1), "{backend}");
    }
}

#[test]
fn a_dropped_local_engine_frees_nothing_under_the_kernels_hands() {
    for backend in backends() {
        let _limit = Limit::new(format!("{backend}"));
        let mut engine = Options::new().backend(backend).build_local().unwrap();
        let (reader, writer) = pipe();
        let (buffer, freed) = Watched::new();
        queued(&mut engine, Read::stream(&reader, Box::new(buffer)));
        drop((engine, reader));
        if backend == Backend::Uring {
            // It was stopped.
            assert_eq!(count(&freed), 1);
        } else {
            // A worker in read(2) can't be stopped.
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert_eq!(count(&freed), 0);
            rustix::io::write(&writer, b"x").unwrap();
            wait_until("it completes", || count(&freed) == 1);
        }
    }
}

#[test]
fn a_local_engine_that_is_dropped_while_a_device_hangs_returns() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let slow = Slow::new();
    for backend in backends() {
        let _limit = Limit::new(format!("{backend}"));
        let path = slow.file("file");
        let mut engine = Options::new().backend(backend).build_local().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let open = nowait::Handle::with_mode(file, Mode::Strict).unwrap();
        let stall = slow.stall();
        let (buffer, freed) = Watched::new();
        queued(&mut engine, Read::new(&open, Box::new(buffer), 0));
        wait_until("the disk has it", || slow.disk.stalled() > 0);
        drop((engine, open));
        assert_eq!(
            count(&freed),
            0,
            "{backend}: never while the device may write to it"
        );
        slow.disk.release(stall);
        if backend == Backend::Threads {
            wait_until("it completes", || count(&freed) == 1);
        }
    }
}

#[test]
fn a_dropped_read_is_over_while_a_call_hangs() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let slow = Slow::new();
    each_shared(Options::new().blocking_workers(1), |engine| {
        let path = slow.file("file");
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let open = nowait::Handle::with_mode(file, Mode::Strict).unwrap();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (begin, begins) = std::sync::mpsc::channel();
        let mut call = engine.spawn_blocking(move || {
            begin.send(()).unwrap();
            ends.recv()
        });
        assert!(poll_once(&mut call).is_pending());
        begins.recv().unwrap();
        let stall = slow.stall();
        let (buffer, freed) = Watched::new();
        let mut read = engine.run(Read::new(&open, Box::new(buffer), 0));
        assert!(poll_once(&mut read).is_pending());
        wait_until("the disk has it", || slow.disk.stalled() > 0);
        drop(read);
        slow.disk.release(stall);
        wait_until("the read is over", || engine.in_flight() == 1);
        assert_eq!(count(&freed), 1);
        drop(end);
        assert!(pollster::block_on(call).is_ok_and(|received| received.is_err()));
    });
}

#[test]
fn completions_that_are_not_reaped_are_freed_with_the_engine() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let open = handle_rw(&patterned(dir.path(), "file", PAGE));
        let mut all = Vec::new();
        let mut ops: Vec<Op> = (0..20)
            .map(|i| {
                let (buffer, freed) = Watched::new();
                all.push(freed);
                if i % 2 == 0 {
                    Read::new(&open, Box::new(buffer), 0).into()
                } else {
                    Write::new(&open, Box::new(buffer), 0).into()
                }
            })
            .collect();
        assert_eq!(engine.submit_batch(&mut ops), 20);
        UNREAPED.with_borrow_mut(|unreaped| unreaped.extend(all));
    });
    let all = UNREAPED.take();
    wait_until("all is freed", || all.iter().all(|freed| count(freed) == 1));
}

thread_local! {
    /// Counters of buffers that are freed when `each` drops the engine, after the test.
    static UNREAPED: std::cell::RefCell<Vec<Arc<AtomicUsize>>> = const {
        std::cell::RefCell::new(Vec::new())
    };
}

#[test]
fn threads_end_with_their_engine() {
    alone(|| {
        each(Options::new().workers(4), |engine| {
            let dir = scratch();
            let open = handle(&patterned(dir.path(), "file", PAGE));
            one_in_batch(engine, Read::new(&open, Box::new(vec![0u8; PAGE]), 0));
            one(engine, nowait::op::Fsync::new(&open));
            assert!(engine.is_local() || ours() > 0);
        });
        wait_until("all threads are gone", || ours() == 0);
        // The descriptors of rings, eventfds and files are closed too.
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        each(Options::new(), |engine| {
            let _ = engine.event_fd().unwrap().as_fd();
        });
        wait_until("all descriptors are closed", || {
            std::fs::read_dir("/proc/self/fd").unwrap().count() <= open
        });
    });
}

/// The number of engine threads in this process.
fn ours() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("nowait-")).count()
}
