//! Waiting for a batch: for many completions within a time, or else for one.

use std::time::{Duration, Instant};

use nowait::engine::{Backend, Options, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{Completion, Handle, OpenOptions};

use crate::common::backends::backends;
use crate::common::completions::{finish, queued};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, pipe};
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, kind};
use crate::common::wait::LONG;

/// A time that does not pass in these tests.
const NEVER: Duration = LONG;
const SOON: Duration = Duration::from_millis(20);

fn batch(engine: &mut dyn Drive, count: usize, within: Duration) -> Vec<Completion> {
    let mut out = Vec::new();
    let n = engine
        .reap(&mut out, Wait::Batch { count, within })
        .unwrap();
    assert_eq!(n, out.len());
    out
}

fn pending(engine: &mut dyn Drive, pipe: &Handle) {
    queued(engine, Read::stream(pipe, Box::new(vec![0; 1])));
}

#[test]
fn as_many_as_are_wanted_end_the_wait() {
    each(Options::new(), |engine| {
        let (never, _writer) = pipe();
        pending(engine, &never);
        let mut ops: Vec<Op> = (0..10).map(|_| Op::from(Nop)).collect();
        engine.submit_batch(&mut ops);
        let mut got = batch(engine, 4, NEVER).len();
        assert!(got >= 4, "{}", name(engine));
        while got < 10 {
            got += batch(engine, 10 - got, NEVER).len();
        }
        assert_eq!(engine.in_flight(), 1);
        rustix::io::write(&_writer, b"x").unwrap();
        finish(engine, 1);
    });
}

#[test]
fn those_that_come_within_the_time_are_waited_for() {
    each(Options::new(), |engine| {
        let pipes: Vec<_> = (0..3).map(|_| pipe()).collect();
        pipes.iter().for_each(|(reader, _)| pending(engine, reader));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (_, writer) in &pipes {
                    std::thread::sleep(SOON);
                    rustix::io::write(writer, b"x").unwrap();
                }
            });
            assert_eq!(batch(engine, 3, NEVER).len(), 3, "{}", name(engine));
        });
    });
}

#[test]
fn after_the_time_one_is_enough() {
    each(Options::new(), |engine| {
        let (never, end) = pipe();
        pending(engine, &never);
        // One completion is there: it is returned after the time, unless a second one comes.
        assert!(matches!(
            engine.submit(Op::from(Nop)),
            nowait::engine::Submit::Queued(_)
        ));
        let begun = Instant::now();
        assert_eq!(batch(engine, 2, SOON).len(), 1, "{}", name(engine));
        assert!(begun.elapsed() >= SOON, "{}: too early", name(engine));
        // No completion is there: the first one ends the wait.
        let (reader, writer) = pipe();
        pending(engine, &reader);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(4 * SOON);
                rustix::io::write(&writer, b"x").unwrap();
            });
            assert_eq!(batch(engine, 2, SOON).len(), 1, "{}", name(engine));
        });
        rustix::io::write(&end, b"x").unwrap();
        finish(engine, 1);
    });
}

#[test]
fn with_nothing_in_flight_it_does_not_wait() {
    each(Options::new(), |engine| {
        assert_eq!(batch(engine, 5, NEVER).len(), 0);
        engine.submit_batch(&mut vec![Op::from(Nop)]);
        assert_eq!(batch(engine, 5, NEVER).len(), 1, "{}", name(engine));
    });
}

#[test]
fn a_deadline_passes_in_a_wait_for_a_batch() {
    each(Options::new(), |engine| {
        let (reader, end) = pipe();
        let read = Op::from(Read::stream(&reader, Box::new(vec![0; 1])));
        queued(engine, read.deadline(Instant::now() + SOON));
        let got = std::thread::scope(|scope| {
            // A worker's read can't be cancelled.
            scope.spawn(|| {
                std::thread::sleep(20 * SOON);
                rustix::io::write(&end, b"x").unwrap();
            });
            batch(engine, 1, NEVER)
        });
        assert_eq!(got.len(), 1);
    });
}

#[test]
fn a_deadline_passes_in_time_in_a_batch_that_would_wait_long() {
    each(Options::new(), |engine| {
        let (reader, end) = pipe();
        let read = Op::from(Read::stream(&reader, Box::new(vec![0; 1])));
        queued(engine, read.deadline(Instant::now() + SOON));
        let what = name(engine);
        if engine.backend() == Backend::Threads {
            // A worker's read can't be cancelled.
            rustix::io::write(&end, b"x").unwrap();
        }
        // Longer than `Limit` allows.
        let got = batch(engine, 1, 100 * LONG);
        assert_eq!(got.len(), 1, "{what}");
        if engine.backend() == Backend::Uring {
            assert_eq!(kind(&got[0]), nowait::ErrorKind::DeadlinePassed, "{what}");
        }
    });
}

#[test]
fn what_was_cached_before_a_wait_for_others_is_known_to_have_been() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 8 * 4096);
    let mut direct = OpenOptions::new();
    direct.read(true).direct(true).unaligned(true);
    let direct = direct.blocking_open(&path).unwrap();
    let cached = handle(&path);
    let read = |file: &Handle, i: u64| Op::from(Read::new(file, Box::new(vec![0; 4096]), i * 4096));
    let mut engine = Options::new().build_local().unwrap();
    let mut done = Vec::new();
    // The first read shows that the file supports NOWAIT.
    let learns = &mut engine;
    learns.submit_batch(&mut vec![read(&cached, 0)]);
    learns.reap(&mut done, Wait::For(1)).unwrap();
    for _ in 0..20 {
        done.clear();
        // A completion is there and not reaped; the next call waits for more.
        let mut ops: Vec<Op> = (0..3).map(|i| read(&cached, i)).collect();
        assert_eq!(engine.submit_batch(&mut ops), 3);
        let mut ops = vec![read(direct.handle(), 3), read(direct.handle(), 4)];
        while done.len() < 5 {
            let want = Wait::For(5 - done.len());
            engine.submit_and_wait(&mut ops, &mut done, want).unwrap();
        }
        let all: usize = done.iter().map(|c| c.provenance.cached).sum();
        assert_eq!(all, 3 * 4096, "{done:?}");
    }
}

#[test]
fn submitting_and_reaping_in_one_is_the_same() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 64 * 4096);
    let mut direct = OpenOptions::new();
    direct.read(true).direct(true).unaligned(true);
    let direct = direct.blocking_open(&path).unwrap();
    let cached = handle(&path);
    for backend in backends() {
        let _limit = Limit::new(format!("{backend}"));
        let mut engine = Options::new()
            .depth(8)
            .backend(backend)
            .build_local()
            .unwrap();
        let (idle, _writer) = pipe();
        let reads = |file: &Handle, n: u64| -> Vec<Op> {
            let read = |i| Read::new(file, Box::new(vec![0; 4096]), i * 4096);
            (0..n).map(|i| Op::from(read(i)).user_data(i)).collect()
        };
        let check = |done: Vec<Completion>, from_cache: bool| {
            for completion in done {
                let at = 4096 * completion.op.get_user_data();
                assert_eq!(completion.result.as_ref().unwrap(), &4096);
                let hit = completion.provenance.cached > 0;
                assert_eq!(hit, from_cache, "{backend}: {completion:?}");
                assert_eq!(bytes_of(completion), pattern(at, 4096));
            }
        };
        // Reads that bypass the page cache: more than the engine has places for, all at once.
        let mut ops = reads(direct.handle(), 20);
        let mut seen = 0;
        while seen < 20 {
            let mut done = Vec::new();
            let n = engine
                .submit_and_wait(&mut ops, &mut done, Wait::For(3))
                .unwrap();
            assert!(n >= 3.min(20 - seen) && n == done.len(), "{backend}: {n}");
            assert!(engine.in_flight() <= 8);
            seen += n;
            check(done, false);
        }
        assert!(ops.is_empty() && engine.in_flight() == 0);
        // Cached reads are reported as cached, also next to others that miss or never complete.
        let mut done = Vec::new();
        engine
            .submit_and_wait(&mut reads(&cached, 1), &mut done, Wait::For(1))
            .unwrap();
        let mut never = vec![Op::from(Read::stream(&idle, Box::new(vec![0; 1]))).user_data(99)];
        assert_eq!(
            engine
                .submit_and_wait(&mut never, &mut done, Wait::No)
                .unwrap(),
            0
        );
        engine
            .submit_and_wait(&mut reads(&cached, 3), &mut done, Wait::For(3))
            .unwrap();
        assert_eq!(done.len(), 4);
        check(done, true);
        // Only the read of the pipe is left.
        rustix::io::write(&_writer, b"x").unwrap();
        let mut done = Vec::new();
        engine
            .submit_and_wait(&mut Vec::new(), &mut done, Wait::For(5))
            .unwrap();
        assert_eq!(done.len(), 1);
    }
}
