//! Rings of the threads that poll futures.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use nowait::engine::{Backend, Engine, Options};
use nowait::tokio::{File, OpenOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use slowdisk::{Fault, Filesystem};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::rig::{PAGE, PAGES, Rig};
use crate::common::samples::Sample;
use crate::common::wait::wait_until;

fn engine() -> Engine {
    Options::new().thread_rings(true).build().unwrap()
}

/// Returns true if the machine allows io_uring: an engine of threads has no rings.
fn has_rings(engine: &Engine) -> bool {
    engine.backend() == Backend::Uring
}

/// A runtime of one thread, and one of three.
fn runtimes() -> [Runtime; 2] {
    let several = Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build();
    [one_thread(), several.unwrap()]
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(engine: &Engine, path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).engine(engine).open(path).await.unwrap()
}

/// A file whose filesystem is known to have NOWAIT reads, and whose history is in favour of none: reads of
/// uncached data go to the thread's ring.
async fn open_cold(engine: &Engine, path: &Path) -> File {
    let file = open(engine, path).await;
    assert_eq!(file.read_at(vec![0; 1], 0).await.result.unwrap(), 1);
    evict(path);
    file
}

type Reading = Pin<Box<dyn Future<Output = nowait::BufResult<Vec<u8>>> + Send>>;

/// Begins a read, which is submitted when this returns.
fn begin(file: &Arc<File>, len: usize, offset: u64) -> Reading {
    let file = file.clone();
    let mut reading: Reading = Box::pin(async move { file.read_at(vec![0; len], offset).await });
    let mut cx = std::task::Context::from_waker(Waker::noop());
    assert!(
        reading.as_mut().poll(&mut cx).is_pending(),
        "the disk stalls"
    );
    reading
}

/// A stalled disk with an uncached file on it. Each test gets the file and lets the disk go on.
struct Stalled {
    rig: Rig,
    path: std::path::PathBuf,
    faults: Vec<slowdisk::FaultId>,
}

impl Stalled {
    fn new() -> Stalled {
        let rig = Rig::new();
        let path = rig.cold("file");
        Stalled {
            rig,
            path,
            faults: Vec::new(),
        }
    }

    /// The file, on a disk that stalls from now on.
    async fn open(&mut self, engine: &Engine) -> Arc<File> {
        let file = Arc::new(open_cold(engine, &self.path).await);
        self.faults = self.rig.fault(&self.path, Fault::stall);
        file
    }

    fn go_on(&mut self) {
        self.rig.release(std::mem::take(&mut self.faults));
    }
}

macro_rules! stalled {
    () => {{
        slowdisk::require!(slowdisk::available());
        slowdisk::require!(Filesystem::Ext4.available());
        Stalled::new()
    }};
}

#[test]
fn cold_reads_return_the_bytes_of_pread() {
    for filesystem in Filesystem::ALL {
        let mount = mounted!(filesystem);
        let sample = Arc::new(Sample::new(mount.path(), "file", 600_001));
        let _limit = Limit::new(format!("thread rings on {filesystem:?}"));
        for runtime in runtimes() {
            let engine = engine();
            let file = Arc::new(runtime.block_on(open(&engine, &sample.path)));
            let reads = prop::collection::vec((0..610_000u64, 1..70_000usize), 1..40);
            let evicted = prop::option::of(0..600_001u64);
            let config = Config {
                cases: 20,
                failure_persistence: None,
                ..Config::default()
            };
            let mut runner = TestRunner::new(config);
            let case = (reads, evicted);
            let mut read = || {
                runner.run(&case, |(reads, warm_to)| {
                    sample.evict();
                    if let Some(end) = warm_to {
                        sample.touch(0..end);
                    }
                    runtime.block_on(async {
                        let mut tasks = JoinSet::new();
                        for (offset, len) in reads {
                            let (file, sample) = (file.clone(), sample.clone());
                            tasks.spawn(async move {
                                let read = file.read_at(vec![0; len], offset).await;
                                let n = read.result.unwrap();
                                assert!(
                                    read.buf[..n] == *sample.expected(offset, len),
                                    "{len} at {offset}"
                                );
                            });
                        }
                        while let Some(ended) = tasks.join_next().await {
                            ended.unwrap();
                        }
                    });
                    Ok(())
                })
            };
            read().unwrap();
            if filesystem == Filesystem::Ext4 && has_rings(&engine) {
                // On a busy machine the engine is congested for a second, and gets the reads.
                wait_until("a ring of a thread", || {
                    let is_used = engine.stats().thread_rings > 0;
                    if !is_used {
                        read().unwrap();
                    }
                    is_used
                });
            }
            assert_eq!(engine.in_flight(), 0);
        }
    }
}

#[test]
fn a_thread_that_ends_leaves_its_reads_to_a_worker() {
    let mut stalled = stalled!();
    let engine = engine();
    let _limit = Limit::new("the thread ends".into());
    for runtime in runtimes() {
        let read = || {
            let file = runtime.block_on(stalled.open(&engine));
            let before = engine.stats().thread_rings;
            let handle = runtime.handle().clone();
            let thread = std::thread::spawn(move || {
                let _entered = handle.enter();
                [0, 20, 40].map(|page| begin(&file, 3 * PAGE, page * PAGE as u64))
            });
            let readings = thread.join().unwrap();
            stalled.go_on();
            for (page, reading) in [0, 20, 40].into_iter().zip(readings) {
                let read = runtime.block_on(reading);
                assert_eq!(read.result.unwrap(), 3 * PAGE);
                assert!(read.buf == pattern(page * PAGE as u64, 3 * PAGE));
            }
            !has_rings(&engine) || engine.stats().thread_rings > before
        };
        // On a busy machine the engine is congested for a second, and gets the reads.
        wait_until("the ring of the thread", read);
    }
}

#[test]
fn a_runtime_that_ends_leaves_its_reads_to_a_thread() {
    let mut stalled = stalled!();
    let engine = engine();
    let _limit = Limit::new("the runtime ends".into());
    let mut read_with = |runtime: Runtime| {
        let file = runtime.block_on(stalled.open(&engine));
        let before = engine.stats().thread_rings;
        let reading = {
            let _entered = runtime.enter();
            begin(&file, PAGES as usize * PAGE, 0)
        };
        drop(runtime);
        let own = engine.stats().thread_rings - before;
        stalled.go_on();
        let read = pollster::block_on(reading);
        assert_eq!(read.result.unwrap(), PAGES as usize * PAGE);
        assert!(read.buf == pattern(0, PAGES as usize * PAGE));
        wait_until("the permits are given back", || engine.in_flight() == 0);
        own == u64::from(has_rings(&engine))
    };
    for is_first in [true, false] {
        // On a busy machine the engine is congested for a second, and gets the read.
        wait_until("the ring of the runtime", || {
            let [one_thread, several] = runtimes();
            read_with(if is_first { one_thread } else { several })
        });
    }
}

#[test]
fn two_runtimes_in_turn_on_one_thread_have_rings_of_their_own() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 40 * PAGE);
    let engine = engine();
    let _limit = Limit::new("two runtimes".into());
    let (a, b) = (one_thread(), one_thread());
    let file = a.block_on(open_cold(&engine, &path));
    for page in 0..20 {
        for (runtime, page) in [(&a, page), (&b, 39 - page)] {
            let offset = page * PAGE as u64;
            evict(&path);
            let read = runtime.block_on(file.read_at(vec![0; PAGE], offset));
            assert!(read.result.unwrap() == PAGE && read.buf == pattern(offset, PAGE));
        }
    }
}

#[test]
fn a_runtime_without_io_driver_reads_by_the_owner() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", PAGE);
    let engine = engine();
    let _limit = Limit::new("no I/O driver".into());
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let file = open_cold(&engine, &path).await;
        for _ in 0..10 {
            evict(&path);
            let read = file.read_at(vec![0; PAGE], 0).await;
            assert!(read.result.unwrap() == PAGE && read.buf == pattern(0, PAGE));
        }
    });
    assert_eq!(engine.stats().thread_rings, 0);
}

#[test]
fn a_dropped_engine_leaves_no_descriptor_and_no_task() {
    alone(|| {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let dir = scratch();
        let path = patterned(dir.path(), "file", PAGE);
        for runtime in runtimes() {
            let _limit = Limit::new("dropped".into());
            let before = (descriptors(), runtime.metrics().num_alive_tasks());
            let engine = engine();
            runtime.block_on(async {
                let file = open_cold(&engine, &path).await;
                assert_eq!(file.read_at(vec![0; PAGE], 0).await.result.unwrap(), PAGE);
            });
            drop(engine);
            let ended = AtomicBool::new(false);
            let now = || (descriptors(), runtime.metrics().num_alive_tasks());
            // The reaper is a task: the runtime has to run.
            runtime.block_on(async {
                while now() != before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                ended.store(true, Ordering::Relaxed);
            });
            assert!(ended.load(Ordering::Relaxed));
        }
    });
}

#[test]
fn a_forked_child_touches_no_ring_of_its_parent() {
    alone(|| {
        let mut stalled = stalled!();
        let engine = engine();
        let _limit = Limit::new("forked".into());
        let runtime = one_thread();
        let file = runtime.block_on(stalled.open(&engine));
        let reading = {
            let _entered = runtime.enter();
            begin(&file, PAGE, 0)
        };
        forked("child", || {
            let _entered = runtime.enter();
            let read = pollster::block_on(file.read_at(vec![0; PAGE], 0));
            assert_eq!(read.result.unwrap_err().kind(), nowait::ErrorKind::Forked);
            // The destructors of a thread run here, and those of the engine.
            std::thread::scope(|scope| {
                scope.spawn(|| drop(engine.clone()));
            });
        });
        stalled.go_on();
        let read = runtime.block_on(reading);
        assert!(read.result.unwrap() == PAGE && read.buf == pattern(0, PAGE));
    });
}

#[test]
fn dropped_futures_give_their_permits_back() {
    let mut stalled = stalled!();
    let engine = engine();
    let _limit = Limit::new("dropped futures".into());
    for runtime in runtimes() {
        let file = runtime.block_on(stalled.open(&engine));
        {
            let _entered = runtime.enter();
            (0..200u64).for_each(|n| drop(begin(&file, PAGE, n % PAGES * PAGE as u64)));
        }
        stalled.go_on();
        runtime.block_on(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            match engine.in_flight() {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }));
    }
}
