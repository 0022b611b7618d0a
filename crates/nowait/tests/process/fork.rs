//! After fork(2) an engine refuses to work in the child, and neither process hangs. The engine of the process
//! is made anew in the child. Threads that fork, spawn or wait in vfork(2) delay no read.
#![allow(unsafe_code, reason = "fork(2), clone(2), waitpid(2)")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nowait::engine::{Engine, Options, Submit, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{ErrorKind, File, Mode, OpenOptions};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{each, name};
use crate::common::drop_here::drop_here;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::handles::{handle, pipe};
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, kind, nothing_for_a_while};
use crate::common::shared_engine::each_shared;
use crate::common::wait::LONG;
use crate::process_one::forked_as_process_one;

fn stream(handle: &nowait::Handle) -> Op {
    Read::stream(handle, Box::new(vec![0u8; 16])).into()
}

#[test]
fn an_engine_refuses_in_the_child_and_works_on_in_the_parent() {
    alone(|| {
        each(Options::new(), |engine| {
            let what = name(engine);
            let (reader, writer) = pipe();
            let dir = scratch();
            let open = handle(&patterned(dir.path(), "file", 5000));
            let flying = queued(engine, stream(&reader));
            forked(&what, || {
                match engine.submit(Op::from(Nop).user_data(4)) {
                    Submit::Done(done) => {
                        assert_eq!(
                            (kind(&done), done.op.get_user_data()),
                            (ErrorKind::Forked, 4)
                        );
                        let text = done.result.unwrap_err().to_string();
                        assert!(text.contains("parent"), "{text}");
                    }
                    other => panic!("{other:?}"),
                }
                let read = Read::new(&open, Box::new(vec![0u8; 10]), 0);
                let Submit::Done(done) = engine.submit(read.into()) else {
                    panic!("queued")
                };
                assert_eq!(kind(&done), ErrorKind::Forked);
                assert!(bytes_of(done).capacity() >= 10, "the buffer is back");
                let mut ops: Vec<Op> = vec![Nop.into(), Nop.into()];
                assert_eq!((engine.submit_batch(&mut ops), ops.len()), (0, 2));
                for wait in [Wait::No, Wait::For(1), Wait::UpTo(LONG)] {
                    let error = engine.reap(&mut Vec::new(), wait).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Forked);
                }
                engine.cancel(flying);
                let _ = (engine.stats(), engine.in_flight(), engine.backend());
            });
            nothing_for_a_while(engine);
            rustix::io::write(&writer, b"x").unwrap();
            let done = finish(engine, 1).remove(0);
            assert_eq!((done.ticket, said(&done)), (Some(flying), Ok(1)), "{what}");
            one(engine, Nop);
        });
    });
}

#[test]
fn a_scan_refuses_in_the_child_and_goes_on_in_the_parent() {
    alone(|| {
        let dir = scratch();
        for i in 0..5_000 {
            std::fs::write(dir.path().join(format!("{i}")), "").unwrap();
        }
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            let options = nowait::scan::Options::new().engine(&engine);
            let mut scan = options
                .clone()
                .max_buffered(1_000, 1 << 20)
                .blocking_open(dir.path())
                .unwrap();
            let mut seen = pollster::block_on(scan.batch()).unwrap().unwrap().len();
            forked("a scan", || {
                let refused = scan.blocking_batch().unwrap().unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Forked);
                scan.cancel();
                let _ = scan.stats();
                drop(scan.canceller());
                // The parent's engine has no workers in the child: the caller does all work.
                let here = options.blocking_open(dir.path()).unwrap();
                assert_eq!(here.map(Result::unwrap).count(), 5_000);
                let own = nowait::Scan::blocking_open(dir.path()).unwrap();
                assert_eq!(own.map(Result::unwrap).count(), 5_000);
            });
            while let Some(batch) = scan.blocking_batch() {
                seen += batch.unwrap().len();
            }
            assert_eq!(seen, 5_000);
        }
    });
}

#[test]
fn files_refuse_in_the_child_but_for_what_needs_no_engine() {
    alone(|| {
        each_shared(Options::new(), |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", 5000);
            let mut options = OpenOptions::new();
            options.read(true).write(true).engine(engine);
            let file = options.clone().direct(true).blocking_open(&path).unwrap();
            forked("files", || {
                let done = pollster::block_on(file.read_at(Vec::with_capacity(4096), 0));
                let error = done.result.unwrap_err();
                assert_eq!(
                    (error.kind(), error.operation()),
                    (ErrorKind::Forked, "read_at")
                );
                assert!(done.buf.capacity() >= 4096, "the buffer is back");
                let done = pollster::block_on(file.write_at(vec![1; 10], 0));
                assert_eq!(
                    (done.result.unwrap_err().kind(), done.buf.len()),
                    (ErrorKind::Forked, 10)
                );
                for sync in [file.sync_all(), file.sync_data()] {
                    assert_eq!(
                        pollster::block_on(sync).unwrap_err().kind(),
                        ErrorKind::Forked
                    );
                }
                let opened = pollster::block_on(options.open(&path));
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::Forked);
                // Blocking calls are plain system calls.
                let plain = options.blocking_open(&path).unwrap();
                let mut buf = vec![0; 100];
                assert_eq!(plain.blocking_read_at(&mut buf, 7).unwrap(), 100);
                assert_eq!((buf, plain.len().unwrap()), (pattern(7, 100), 5000));
            });
            let file = options.blocking_open(&path).unwrap();
            let done = pollster::block_on(file.read_at(Vec::with_capacity(5000), 0));
            assert_eq!(done.buf, pattern(0, 5000), "the parent's goes on");
        });
    });
}

#[test]
fn a_child_with_the_pid_of_its_parent_is_told_apart() {
    alone(|| {
        forked_as_process_one("the parent", || {
            let dir = scratch();
            let path = patterned(dir.path(), "file", 5000);
            for backend in backends() {
                let options = Options::new().backend(backend);
                let (shared, mut local) =
                    (options.build().unwrap(), options.build_local().unwrap());
                let own = Engine::process().unwrap();
                let pool = nowait::buffer::BufferPool::new(2, 100).unwrap();
                let buffer = pool.take().unwrap();
                let set = shared.file_set(2).unwrap();
                let file = File::from_handle(&handle(&path), &shared);
                forked_as_process_one("the child", || {
                    let mut ops: Vec<Op> = vec![Nop.into()];
                    assert_eq!(local.submit_batch(&mut ops), 0);
                    assert_eq!(shared.submit_batch(&mut ops), 0);
                    let refused =
                        |error: nowait::Error| assert_eq!(error.kind(), ErrorKind::Forked);
                    refused(local.reap(&mut Vec::new(), Wait::For(1)).unwrap_err());
                    refused(shared.reap(&mut Vec::new(), Wait::For(1)).unwrap_err());
                    refused(own.reap(&mut Vec::new(), Wait::For(1)).unwrap_err());
                    refused(local.event_fd().unwrap_err());
                    refused(shared.event_fd().unwrap_err());
                    refused(set.insert(file.handle()).unwrap_err());
                    refused(pollster::block_on(file.sync_all()).unwrap_err());
                    assert!(pool.take().is_none());
                    let mut buf = [0; 100];
                    file.blocking_read_exact_at(&mut buf[..], 7).unwrap();
                    assert_eq!(buf[..], pattern(7, 100));
                    one(&mut Engine::process().unwrap(), Nop);
                    drop_here(&buffer);
                    drop_here(&local);
                    drop_here(&shared);
                });
                one(&mut shared.clone(), Nop);
                one(&mut local, Nop);
                assert_eq!(pool.free(), 1);
            }
        });
    });
}

#[test]
fn a_child_of_a_thread_that_takes_buffers_takes_none() {
    alone(|| {
        let pool = nowait::buffer::BufferPool::new(3, 100).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop(pool.take());
                    }
                });
            }
            let forks = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..500 {
                    let mine = pool.take();
                    forked("takes buffers", || {
                        assert!(pool.take().is_none());
                        assert_eq!(pool.free(), 0);
                        // Objects of the parent exist here, and can be dropped.
                        mine.iter().for_each(drop_here);
                        let own = nowait::buffer::BufferPool::new(1, 100).unwrap();
                        assert!(own.take().is_some());
                    });
                }
            }));
            over.store(true, Ordering::Relaxed);
            forks.unwrap();
        });
        assert_eq!(pool.free(), 3);
    });
}

/// Polls a future once.
fn poll_once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    let waker = std::task::Waker::noop();
    std::pin::Pin::new(future).poll(&mut std::task::Context::from_waker(waker))
}

#[test]
fn futures_on_their_way_are_refused_in_the_child_and_land_in_the_parent() {
    alone(|| {
        each_shared(Options::new().depth(2), |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", 5000);
            let fifo = dir.path().join("fifo");
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
            let mut options = OpenOptions::new();
            options.read(true).engine(engine);
            let file = options.clone().direct(true).blocking_open(&path).unwrap();
            // These two wait for a writer.
            let mut opens = [options.open(&fifo), options.open(&fifo)];
            for open in &mut opens {
                assert!(poll_once(open).is_pending());
            }
            // Until they are reaped these two keep the permits that files have.
            for _ in 0..2 {
                queued(&mut engine.clone(), Nop);
            }
            let mut sync = file.sync_all();
            assert!(poll_once(&mut sync).is_pending());
            let mut read = file.read_at(
                nowait::buffer::BufferPool::new(1, 4096)
                    .unwrap()
                    .take()
                    .unwrap(),
                0,
            );
            assert!(poll_once(&mut read).is_pending());
            forked("futures", || {
                for open in &mut opens {
                    match poll_once(open) {
                        std::task::Poll::Ready(Err(e)) => assert_eq!(e.kind(), ErrorKind::Forked),
                        other => panic!("{other:?}"),
                    }
                    drop_here(open);
                }
                match poll_once(&mut sync) {
                    std::task::Poll::Ready(Err(e)) => assert_eq!(e.kind(), ErrorKind::Forked),
                    other => panic!("{other:?}"),
                }
                drop_here(&sync);
                // The future waits for a place, and has its buffer.
                match poll_once(&mut read) {
                    std::task::Poll::Ready(done) => {
                        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::Forked);
                        assert_eq!(done.buf.len(), 4096);
                    }
                    other => panic!("{other:?}"),
                }
            });
            let writer = std::fs::File::options().write(true).open(&fifo).unwrap();
            for open in opens {
                pollster::block_on(open).unwrap();
            }
            drop(writer);
            finish(&mut engine.clone(), 2);
            pollster::block_on(sync).unwrap();
            let done = pollster::block_on(read);
            assert_eq!(
                (done.result.unwrap(), &done.buf[..]),
                (4096, &pattern(0, 4096)[..])
            );
        });
    });
}

#[test]
fn what_is_dropped_in_the_child_is_harmless() {
    alone(|| {
        for backend in backends() {
            let _limit = Limit::new(format!("{backend}"));
            let dir = scratch();
            let path = patterned(dir.path(), "file", 100_000);
            let (reader, writer) = pipe();
            let mut shared = Options::new().backend(backend).build().unwrap();
            let mut local = Options::new().backend(backend).build_local().unwrap();
            let mut file = OpenOptions::new();
            file.read(true).engine(&shared).cache_mode(Mode::Strict);
            let file = file.blocking_open(&path).unwrap();
            for _ in 0..5 {
                queued(&mut shared, stream(&reader));
                queued(&mut local, stream(&reader));
                forked("drops", || {
                    drop_here(&file);
                    drop_here(&shared);
                    drop_here(&local);
                    drop_here(&reader);
                });
                rustix::io::write(&writer, &[1; 32]).unwrap();
                assert_eq!(said(&finish(&mut shared, 1)[0]), Ok(16), "{backend}");
                assert_eq!(said(&finish(&mut local, 1)[0]), Ok(16), "{backend}");
                evict(&path);
                let done = pollster::block_on(file.read_at(Vec::with_capacity(100_000), 0));
                assert!(done.buf == pattern(0, 100_000), "{backend}");
            }
        }
    });
}

#[test]
fn forks_do_not_hang_while_other_threads_hold_every_lock() {
    alone(|| {
        each_shared(Options::new().depth(8).workers(4), |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", 100_000);
            let over = AtomicBool::new(false);
            std::thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        let open = handle(&path);
                        while !over.load(Ordering::Relaxed) {
                            let read = Read::new(&open, Box::new(vec![0u8; 4096]), 0);
                            let far = Instant::now() + LONG;
                            let mut ops = vec![
                                Op::from(read.flags(nowait::RwFlags::HIPRI)).deadline(far),
                                Op::from(Nop).deadline(far),
                            ];
                            engine.submit_batch(&mut ops);
                            engine.reap(&mut Vec::new(), Wait::No).unwrap();
                        }
                    });
                }
                let forks = catch_unwind(AssertUnwindSafe(|| {
                    for _ in 0..300 {
                        forked("forks", || {
                            let Submit::Done(done) = engine.submit(Nop.into()) else {
                                panic!("queued")
                            };
                            assert_eq!(kind(&done), ErrorKind::Forked);
                            assert_eq!(engine.submit_batch(&mut vec![Nop.into()]), 0);
                            assert!(engine.reap(&mut Vec::new(), Wait::For(1)).is_err());
                            engine.cancel(nowait::Ticket(1));
                            drop_here(engine);
                        });
                    }
                }));
                over.store(true, Ordering::Relaxed);
                forks.unwrap();
            });
            let mut shared = engine.clone();
            shared.reap(&mut Vec::new(), Wait::For(usize::MAX)).unwrap();
            one(&mut shared, Nop);
        });
    });
}

#[test]
fn forks_do_not_hang_while_workers_of_a_local_engine_are_busy() {
    alone(|| {
        let _limit = Limit::new("local".into());
        let dir = scratch();
        let open = handle(&patterned(dir.path(), "file", 5000));
        let options = Options::new()
            .backend(nowait::engine::Backend::Threads)
            .depth(512);
        let mut engine = options.workers(8).build_local().unwrap();
        for _ in 0..200 {
            let mut ops: Vec<Op> = (0..200)
                .map(|_| Read::stream(&open, Box::new(vec![0u8; 1])).into())
                .collect();
            assert_eq!(engine.submit_batch(&mut ops), 200);
            forked("a busy local engine", || {
                assert_eq!(engine.submit_batch(&mut vec![Nop.into()]), 0);
                engine.cancel(nowait::Ticket(1));
                drop_here(&engine);
            });
            finish(&mut engine, 200);
        }
    });
}

#[test]
fn the_processs_engine_is_made_anew() {
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100_000);
        let parent = Engine::process().unwrap();
        let read = |path: &Path| {
            let file = pollster::block_on(File::open(path)).unwrap();
            evict(path);
            let done = pollster::block_on(file.read_at(Vec::with_capacity(100_000), 0));
            assert!(done.buf == pattern(0, 100_000));
            file
        };
        read(&path);
        for _ in 0..3 {
            forked("process engine", || {
                let file = read(&path);
                assert!(file.engine().stats().handoffs > 0);
                assert_eq!(Engine::process().unwrap().in_flight(), 0);
                // Its own child, too.
                forked("grandchild", || drop(read(&path)));
                read(&path);
                // The parent's engine still refuses in the child.
                assert!(parent.reap(&mut Vec::new(), Wait::No).is_err());
            });
            read(&path);
        }
    });
}

#[test]
fn a_storm_of_spawns_disturbs_no_read() {
    each(Options::new().depth(64), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1 << 20);
        let open = handle(&path);
        for round in 0..10u64 {
            evict(&path);
            let mut ops: Vec<Op> = (0..32u64)
                .map(|i| {
                    let at = (i * 61 + round) % 256 * 4096;
                    Op::from(Read::new(&open, Box::new(vec![0u8; 4096]), at)).user_data(at)
                })
                .collect();
            assert_eq!(engine.submit_batch(&mut ops), 32);
            let spawned: Vec<_> = (0..3)
                .map(|_| std::process::Command::new("true").spawn().unwrap())
                .collect();
            for done in finish(engine, 32) {
                let at = done.op.get_user_data();
                assert_eq!(said(&done), Ok(4096), "{}", name(engine));
                assert!(bytes_of(done) == pattern(at, 4096), "{}", name(engine));
            }
            for mut child in spawned {
                assert!(child.wait().unwrap().success());
            }
        }
    });
}

/// Waits in vfork(2) until the pipe has data, with a time limit. Returns true if data came. The calling
/// thread does nothing else meanwhile, not even task work.
fn vfork_until(pipe: &impl std::os::fd::AsRawFd) -> bool {
    extern "C" fn child(pipe: *mut libc::c_void) -> libc::c_int {
        let mut poll = libc::pollfd {
            fd: pipe as usize as i32,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` lives through the call; `_exit` ends this process, not its parent.
        unsafe {
            let ready = libc::poll(&mut poll, 1, LONG.as_millis() as i32);
            libc::_exit(if ready == 1 { 0 } else { 1 })
        }
    }
    let mut stack = vec![0u128; 4096];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let mut status = 0;
    // SAFETY: the stack lives until the child is gone: CLONE_VFORK waits for that. The child makes
    // two system calls and nothing else.
    unsafe {
        let top = stack.as_mut_ptr_range().end;
        let pipe = pipe.as_raw_fd() as usize as *mut libc::c_void;
        let pid = libc::clone(child, top.cast(), flags, pipe);
        assert!(pid > 0);
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
    }
    status == 0
}

#[test]
fn a_submitter_in_a_vfork_delays_no_reads() {
    each_shared(Options::new().depth(64), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1 << 20);
        let open = handle(&path);
        evict(&path);
        let (wait, end) = std::io::pipe().unwrap();
        std::thread::scope(|s| {
            let (submitted, begin) = std::sync::mpsc::channel();
            let (open, engine) = (&open, engine);
            s.spawn(move || {
                let mut ops: Vec<Op> = (0..32u64)
                    .map(|i| {
                        let at = i * 7 * 4096;
                        Op::from(Read::new(open, Box::new(vec![0u8; 4096]), at)).user_data(at)
                    })
                    .collect();
                assert_eq!(engine.submit_batch(&mut ops), 32);
                submitted.send(()).unwrap();
                // Only the reads' end ends it.
                assert!(
                    vfork_until(&wait),
                    "the reads wait for the thread that submitted them"
                );
            });
            begin.recv().unwrap();
            let mut shared = engine.clone();
            for done in finish(&mut shared, 32) {
                let at = done.op.get_user_data();
                assert!(bytes_of(done) == pattern(at, 4096));
            }
            rustix::io::write(&end, b"x").unwrap();
        });
    });
}
