//! Waits for a batch: many within a time, or else one.

#[path = "common/engines.rs"]
mod engines;

use std::time::{Duration, Instant};

use engines::*;
use nowait::engine::{Options, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{Completion, Handle};

/// A time that does not pass here.
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
        // One that is there already: it is had when the time is up, and not before two are.
        assert!(matches!(
            engine.submit(Op::from(Nop)),
            nowait::engine::Submit::Queued(_)
        ));
        let begun = Instant::now();
        assert_eq!(batch(engine, 2, SOON).len(), 1, "{}", name(engine));
        assert!(begun.elapsed() >= SOON, "{}: too early", name(engine));
        // None at all: the first one that comes ends it.
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
            // A worker's read can't be called back.
            scope.spawn(|| {
                std::thread::sleep(20 * SOON);
                rustix::io::write(&end, b"x").unwrap();
            });
            batch(engine, 1, NEVER)
        });
        assert_eq!(got.len(), 1);
    });
}
