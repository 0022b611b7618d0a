//! Many threads on one engine; futures on different executors; futures that move between threads; threads
//! that end before the operations that they submitted.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_executor::LocalPool;
use futures_util::future::join_all;
use futures_util::task::{LocalSpawnExt, noop_waker};
use nowait::engine::{Options, Submit, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{Completion, File, Mode, OpenOptions};

use crate::common::cache::evict;
use crate::common::completions::{finish, said};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::handle;
use crate::common::results::bytes_of;
use crate::common::shared_engine::each_shared;

const SIZE: usize = 1 << 20;

/// A strict file: reads of pages that are not cached need the engine.
fn file(engine: &nowait::Engine, path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).engine(engine).cache_mode(Mode::Strict);
    options.blocking_open(path).unwrap()
}

/// Reads at many offsets and compares every byte.
async fn reads(file: &File, thread: u64) {
    for i in 0..200 {
        let at = ((i * 7919 + thread * 104_729) * 512) % SIZE as u64;
        let (n, buf) = file
            .read_at(Vec::with_capacity(6000), at)
            .await
            .into_result()
            .unwrap();
        assert_eq!(n, 6000.min(SIZE - at as usize), "thread {thread}, read {i}");
        assert!(buf == pattern(at, n), "thread {thread}, read {i} at {at}");
    }
}

#[test]
fn eight_threads_on_different_executors() {
    for depth in [3, 256] {
        each_shared(Options::new().depth(depth), |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", SIZE);
            let file = file(engine, &path);
            std::thread::scope(|s| {
                for thread in 0..8 {
                    let (file, path) = (&file, &path);
                    s.spawn(move || {
                        if thread == 0 {
                            (0..5).for_each(|_| evict(path));
                        }
                        match thread % 4 {
                            0 => pollster::block_on(reads(file, thread)),
                            1 => futures_executor::block_on(reads(file, thread)),
                            2 => {
                                let mut pool = LocalPool::new();
                                for i in 0..4 {
                                    let file = file.clone();
                                    let task = async move { reads(&file, thread + i).await };
                                    pool.spawner().spawn_local(task).unwrap();
                                }
                                pool.run();
                            }
                            _ => {
                                let many = (0..8).map(|i| reads(file, thread + i));
                                pollster::block_on(join_all(many));
                            }
                        }
                    });
                }
            });
            assert_eq!(engine.in_flight(), 0);
            let stats = engine.stats();
            assert!(stats.hits > 0 && stats.errors == 0, "{stats:?}");
        });
    }
}

#[test]
fn eight_threads_submit_and_any_of_them_reaps() {
    each_shared(Options::new().depth(64), |engine| {
        let dir = scratch();
        let open = handle(&patterned(dir.path(), "file", SIZE));
        let (sink, done) = mpsc::channel::<Completion>();
        std::thread::scope(|s| {
            for thread in 0..8u64 {
                let (sink, open) = (sink.clone(), &open);
                s.spawn(move || {
                    for i in 0..500u64 {
                        let at = ((i * 31 + thread * 977) * 640) % (SIZE as u64 - 4096);
                        let token = thread << 32 | at;
                        let mut ops: Vec<Op> = vec![if i % 3 == 0 {
                            Op::from(Nop).user_data(u64::MAX)
                        } else {
                            Op::from(Read::new(open, Box::new(vec![0u8; 4096]), at))
                                .user_data(token)
                        }];
                        while engine.submit_batch(&mut ops) == 0 {
                            let mut some = Vec::new();
                            engine
                                .reap(&mut some, Wait::UpTo(Duration::from_millis(30)))
                                .unwrap();
                            some.into_iter().for_each(|c| sink.send(c).unwrap());
                        }
                    }
                });
            }
            drop(sink);
            let mut got = 0;
            let mut check = |completion: Completion| {
                got += 1;
                let token = completion.op.get_user_data();
                if token != u64::MAX {
                    let at = token & 0xffff_ffff;
                    assert!(bytes_of(completion) == pattern(at, 4096), "read at {at}");
                }
            };
            done.into_iter().for_each(&mut check);
            let mut rest = Vec::new();
            while engine.reap(&mut rest, Wait::For(1)).unwrap() > 0 {}
            rest.into_iter().for_each(&mut check);
            assert_eq!(got, 4000);
        });
    });
}

#[test]
fn many_waiting_reapers_all_return() {
    each_shared(Options::new(), |engine| {
        for _ in 0..50 {
            let mut ops: Vec<Op> = (0..10).map(|_| Nop.into()).collect();
            engine.submit_batch(&mut ops);
            let got: usize = std::thread::scope(|s| {
                let reapers: Vec<_> = (0..4)
                    .map(|_| s.spawn(|| engine.reap(&mut Vec::new(), Wait::For(4)).unwrap()))
                    .collect();
                reapers.into_iter().map(|r| r.join().unwrap()).sum()
            });
            assert_eq!(got, 10);
        }
    });
}

#[test]
fn a_thread_that_ends_leaves_its_reads_whole() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let open = handle(&path);
        for round in 0..10u64 {
            evict(&path);
            std::thread::scope(|s| {
                s.spawn(|| {
                    let mut ops: Vec<Op> = (0..32u64)
                        .map(|i| {
                            let at = (i * 37 + round) % 200 * 4096;
                            Op::from(Read::new(&open, Box::new(vec![0u8; 4096]), at)).user_data(at)
                        })
                        .collect();
                    assert_eq!(engine.submit_batch(&mut ops), 32);
                });
            });
            let mut shared = engine.clone();
            for completion in finish(&mut shared, 32) {
                let at = completion.op.get_user_data();
                assert_eq!(said(&completion), Ok(4096));
                assert!(bytes_of(completion) == pattern(at, 4096));
            }
        }
    });
}

#[test]
fn a_future_goes_on_in_another_thread() {
    each_shared(Options::new().depth(4), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let file = file(engine, &path);
        evict(&path);
        let waker = noop_waker();
        let mut begun: Vec<_> = (0..40u64)
            .map(|i| {
                let file = file.clone();
                let at = i * 4096 * 5;
                let mut read: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                    let done = file.read_at(Vec::with_capacity(4096), at).await;
                    assert_eq!(done.result.unwrap(), 4096);
                    assert!(done.buf == pattern(at, 4096));
                });
                // The first poll has a waker without a task, and is made in another thread.
                let ready = read.as_mut().poll(&mut Context::from_waker(&waker));
                (ready == Poll::Pending).then_some(read)
            })
            .collect();
        std::thread::scope(|s| {
            for some in begun.chunks_mut(10) {
                s.spawn(|| {
                    let some = some.iter_mut().filter_map(Option::take);
                    futures_executor::block_on(join_all(some));
                });
            }
        });
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn handles_engines_and_futures_are_send() {
    fn send<T: Send>(_: &T) {}
    fn sync<T: Sync>(_: &T) {}
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let file = file(engine, &patterned(dir.path(), "file", 10));
        send(&file);
        sync(&file);
        send(engine);
        sync(engine);
        send(&file.read_at(Vec::new(), 0));
        send(&file.write_at(Vec::new(), 0));
        send(&file.sync_all());
        send(&File::open(dir.path()));
        let op = Op::from(Read::new(file.handle(), Box::new(vec![0u8; 1]), 0));
        send(&op);
        match engine.submit(op) {
            Submit::Done(completion) => send(&completion),
            _ => assert_eq!(engine.reap(&mut Vec::new(), Wait::For(1)).unwrap(), 1),
        }
    });
}

#[test]
fn reapers_that_wait_for_one_all_come_back() {
    each_shared(Options::new(), |engine| {
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        start.wait();
                        engine.reap(&mut Vec::new(), Wait::For(1)).unwrap();
                        start.wait();
                    }
                });
            }
            for _ in 0..10_000 {
                assert!(matches!(engine.submit(Nop.into()), Submit::Queued(_)));
                start.wait();
                // One of three threads gets the completion; nothing is left for the others.
                engine.reap(&mut Vec::new(), Wait::No).unwrap();
                start.wait();
                engine.reap(&mut Vec::new(), Wait::For(1)).unwrap();
            }
        });
    });
}
