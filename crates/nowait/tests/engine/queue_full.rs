//! A full engine refuses an operation and returns it unchanged. After a reap it has room again. Futures on
//! a full engine wait for their turn.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use nowait::engine::{Options, Submit, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{Mode, OpenOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Advice;

use crate::common::cache::evict;
use crate::common::completions::{finish, queued};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::results::{bytes_of, one_in_batch};
use crate::common::shared_engine::each_shared;
use crate::common::wait::{LONG, wait_until};

const DEPTHS: [usize; 3] = [1, 2, 8];

#[test]
fn full_gives_the_operation_back() {
    for depth in DEPTHS {
        each(Options::new().depth(depth), |engine| {
            let what = format!("{} {depth}", name(engine));
            let (reader, writer) = pipe();
            assert_eq!(engine.depth(), depth);
            for _ in 0..depth {
                queued(engine, Read::stream(&reader, Box::new(vec![0u8; 1])));
            }
            assert_eq!(engine.in_flight(), depth, "{what}");
            let deadline = Instant::now() + 10 * LONG;
            for tries in 1..4 {
                let given: Vec<u8> = Vec::with_capacity(1000);
                let there = given.as_ptr();
                let op = Op::from(Read::stream(&reader, Box::new(given)));
                let op = match engine.submit(op.user_data(77).deadline(deadline)) {
                    Submit::Full(op) => op,
                    other => panic!("{what}: {other:?}"),
                };
                assert_eq!(
                    (op.get_user_data(), op.get_deadline()),
                    (77, Some(deadline))
                );
                let buffer = op.into_buffer().unwrap();
                let back: Vec<u8> = nowait::buffer::downcast(buffer).unwrap();
                // The engine asked for its memory, so the buffer is empty.
                let (at, room) = (back.as_ptr(), back.capacity());
                assert_eq!((at, room, back.len()), (there, 1000, 0), "{what}");
                assert_eq!(engine.stats().full, tries, "{what}");
            }
            assert_eq!(engine.in_flight(), depth, "{what}");

            // A completion that is not reaped keeps its place.
            rustix::io::write(&writer, &vec![1; depth]).unwrap();
            if !engine.is_local() {
                wait_until("they are done", || {
                    engine.stats().ring + engine.stats().workers >= depth as u64
                });
                let op = Read::stream(&reader, Box::new(vec![0u8; 1]));
                assert!(
                    matches!(engine.submit(op.into()), Submit::Full(_)),
                    "{what}"
                );
            }
            finish(engine, depth);
            assert_eq!(engine.in_flight(), 0, "{what}");
            queued(engine, Nop);
            finish(engine, 1);
        });
    }
}

/// The calling thread has read a part of it before. The file has changed since.
#[test]
fn an_operation_that_was_given_back_begins_anew() {
    const LEN: usize = 64 << 10;
    each(Options::new().depth(1), |engine| {
        // A shared engine counts reads of pipes apart.
        if !engine.is_local() {
            return;
        }
        let what = name(engine);
        let dir = scratch();
        let path = patterned(dir.path(), "file", LEN);
        let file = handle_rw(&path);
        let hit = |engine: &mut dyn Drive| {
            let read = Read::new(&file, Box::new(vec![0u8; 1]), 0);
            let done = engine.submit(read.into());
            assert!(matches!(done, Submit::Done(_)), "{what}: {done:?}");
        };
        let (reader, writer) = pipe();
        queued(engine, Read::stream(&reader, Box::new(vec![0u8; 1])));
        let mut op = loop {
            evict(&path);
            let first = std::fs::File::open(&path).unwrap();
            rustix::fs::fadvise(&first, 0, None, Advice::Random).unwrap();
            first.read_exact_at(&mut [0; 4096], 0).unwrap();
            let read = Read::new(&file, Box::new(vec![0u8; LEN]), 0);
            match engine.submit(read.into()) {
                Submit::Full(op) => break op,
                // The failed try has read the rest ahead.
                Submit::Done(_) => {}
                other => panic!("{what}: {other:?}"),
            }
        };
        rustix::io::pwrite(&file, &[7; LEN], 0).unwrap();
        // The file hits, as far as its history goes.
        (0..1000).for_each(|_| hit(engine));
        rustix::io::write(&writer, &[1]).unwrap();
        finish(engine, 1);
        for _ in 0..2 {
            let done = one_in_batch(engine, op);
            assert_eq!(
                done.provenance.cached + done.provenance.device + done.provenance.unknown,
                LEN
            );
            let bytes = bytes_of(done);
            assert!(
                bytes == [7; LEN],
                "{what}: {:?}",
                bytes.iter().position(|it| *it != 7)
            );
            op = Read::new(&file, Box::new(bytes), 0).into();
        }
    });
}

#[test]
fn a_batch_leaves_what_there_is_no_room_for() {
    for depth in DEPTHS {
        each(Options::new().depth(depth), |engine| {
            let what = format!("{} {depth}", name(engine));
            let mut ops: Vec<Op> = (0..20)
                .map(|token| Op::from(Nop).user_data(token))
                .collect();
            let mut order = Vec::new();
            while !ops.is_empty() {
                let before = ops.len();
                let taken = engine.submit_batch(&mut ops);
                assert_eq!(taken, before.min(depth), "{what}");
                assert_eq!(ops.len(), before - taken, "{what}");
                let left: Vec<u64> = ops.iter().map(Op::get_user_data).collect();
                assert_eq!(
                    left,
                    (20 - ops.len() as u64..20).collect::<Vec<_>>(),
                    "{what}: in order"
                );
                if taken == depth {
                    let more = engine.submit_batch(&mut vec![Op::from(Nop)]);
                    assert_eq!(more, 0, "{what}: full");
                }
                let mut done: Vec<u64> = finish(engine, taken)
                    .iter()
                    .map(|c| c.op.get_user_data())
                    .collect();
                done.sort_unstable();
                order.extend(done);
            }
            assert_eq!(order, (0..20).collect::<Vec<_>>(), "{what}");
            assert_eq!(engine.submit_batch(&mut Vec::new()), 0, "{what}");
        });
    }
}

#[test]
fn completions_beyond_the_room_of_a_reap_keep_their_places() {
    for depth in DEPTHS {
        each(Options::new().depth(depth), |engine| {
            let what = format!("{} {depth}", name(engine));
            let event = engine.event_fd().unwrap().try_clone_to_owned().unwrap();
            let mut done = Vec::new();
            let (mut submitted, mut seen) = (0, Vec::new());
            for _ in 0..100 {
                let ops = (0..depth as u64).map(|i| Op::from(Nop).user_data(submitted + i));
                submitted += engine.submit_batch(&mut ops.collect()) as u64;
                assert_eq!(engine.in_flight(), depth, "{what}");
                let got = engine.reap_at_most(1, &mut done, Wait::For(depth));
                assert_eq!((got.unwrap(), done.len()), (1, 1), "{what}");
                assert_eq!(engine.in_flight(), depth - 1, "{what}");
                seen.extend(done.drain(..).map(|done| done.op.get_user_data()));
            }
            assert_eq!(engine.reap_at_most(0, &mut done, Wait::For(1)).unwrap(), 0);
            // The eventfd stays readable while completions are left.
            while engine.in_flight() > 0 {
                let mut fds = [PollFd::new(&event, PollFlags::IN)];
                let limit = LONG.try_into().unwrap();
                assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "{what}");
                let got = engine.reap_at_most(3, &mut done, Wait::No).unwrap();
                assert!(got <= 3, "{what}");
            }
            seen.extend(done.iter().map(|done| done.op.get_user_data()));
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..submitted), "{what}: each once");
        });
    }
}

#[test]
fn a_reap_of_one_does_not_wait_for_more() {
    each(Options::new(), |engine| {
        let (reader, writer) = pipe();
        let (waiting, other) = pipe();
        queued(engine, Read::stream(&reader, Box::new(vec![0u8; 1])));
        queued(engine, Read::stream(&waiting, Box::new(vec![0u8; 1])));
        let (reaped, is_reaped) = std::sync::mpsc::channel();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            rustix::io::write(&writer, b"a").unwrap();
            let in_time = is_reaped.recv_timeout(LONG);
            rustix::io::write(&other, b"a").unwrap();
            in_time
        });
        let mut done = Vec::new();
        let got = engine.reap_at_most(1, &mut done, Wait::For(2)).unwrap();
        assert_eq!(got, 1, "{}", name(engine));
        let _ = reaped.send(());
        let in_time = writing.join().unwrap();
        assert!(in_time.is_ok(), "{}: it waited for both", name(engine));
        finish(engine, 1);
    });
}

#[test]
fn a_hit_needs_no_place() {
    each(Options::new().depth(1), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 4096);
        let open = handle(&path);
        // A completion that is not reaped keeps its place.
        queued(engine, Nop);
        match engine.submit(Read::new(&open, Box::new(vec![0u8; 4096]), 0).into()) {
            Submit::Done(done) => assert_eq!(bytes_of(done), pattern(0, 4096)),
            // A filesystem without cached reads.
            Submit::Full(_) => {}
            Submit::Queued(_) => panic!("{}: two operations at depth 1", name(engine)),
        }
        finish(engine, 1);
    });
}

#[test]
fn hundreds_of_futures_take_their_turns() {
    for depth in DEPTHS {
        each_shared(Options::new().depth(depth), |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", 512 << 10);
            // Strict, and evicted during the test: most reads need the engine.
            let mut file = OpenOptions::new();
            file.read(true)
                .write(true)
                .engine(engine)
                .cache_mode(Mode::Strict);
            let file = file.blocking_open(&path).unwrap();
            let most = AtomicUsize::new(0);
            let read = async |i: u64| {
                let at = (i * 4096) % (512 << 10);
                let (n, buf) = file
                    .read_at(Vec::with_capacity(5000), at)
                    .await
                    .into_result()
                    .unwrap();
                most.fetch_max(engine.in_flight(), Ordering::Relaxed);
                assert!(buf == pattern(at, n), "depth {depth}, read {i}");
                file.write_all_at(pattern(at, 100), at)
                    .await
                    .into_result()
                    .unwrap();
                if i.is_multiple_of(50) {
                    file.sync_data().await.unwrap();
                }
            };
            evict(&path);
            pollster::block_on(join_all((0..400).map(read)));
            evict(&path);
            let mut all: FuturesUnordered<_> = (0..400).map(read).collect();
            pollster::block_on(async { while all.next().await.is_some() {} });
            assert!(
                most.load(Ordering::Relaxed) <= depth,
                "never more than the depth in flight"
            );
            assert_eq!(engine.in_flight(), 0);
            assert!(engine.stats().handoffs >= 400, "{:?}", engine.stats());
        });
    }
}

#[test]
fn a_future_dropped_while_it_waits_for_its_turn_takes_no_other_turn() {
    each_shared(Options::new().depth(1), |engine| {
        let mut shared = engine.clone();
        // A completion that is not reaped keeps its place.
        queued(&mut shared, Nop);
        let dir = scratch();
        let path = patterned(dir.path(), "file", 4096);
        let file = OpenOptions::new()
            .write(true)
            .read(true)
            .engine(engine)
            .blocking_open(&path);
        let file = file.unwrap();
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(file.sync_all())).collect();
        let waker = futures_util::task::noop_waker();
        let mut cx = std::task::Context::from_waker(&waker);
        for future in &mut waiting {
            assert!(future.as_mut().poll(&mut cx).is_pending());
        }
        waiting.truncate(3);
        assert_eq!(engine.in_flight(), 1);
        // The place comes free while they wait.
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            finish(&mut shared, 1);
        });
        for done in pollster::block_on(join_all(waiting)) {
            done.unwrap();
        }
        freed.join().unwrap();
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn reaping_for_a_count_ends_when_nothing_more_can_come() {
    each_shared(Options::new(), |engine| {
        let mut done = Vec::new();
        assert_eq!(engine.reap(&mut done, Wait::For(1)).unwrap(), 0);
        let _ = engine.submit(Nop.into());
        assert_eq!(engine.reap(&mut done, Wait::For(5)).unwrap(), 1);
    });
}

#[test]
fn a_reaper_does_not_wait_for_futures() {
    each_shared(Options::new(), |engine| {
        // A future's operation in flight: it opens a FIFO that has no writer yet.
        let dir = scratch();
        let path = dir.path().join("fifo");
        make_fifo(&path);
        let mut opening = Box::pin(OpenOptions::new().read(true).engine(engine).open(&path));
        let waker = futures_util::task::noop_waker();
        assert!(
            opening
                .as_mut()
                .poll(&mut std::task::Context::from_waker(&waker))
                .is_pending()
        );
        std::thread::scope(|s| {
            let reaper = s.spawn(|| engine.reap(&mut Vec::new(), Wait::For(1)).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            let writer = std::fs::File::options().write(true).open(&path).unwrap();
            pollster::block_on(&mut opening).unwrap();
            assert_eq!(reaper.join().unwrap(), 0);
            drop(writer);
        });
    });
}

fn make_fifo(path: &std::path::Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}
