//! Deadlines. An operation that has not begun at its deadline, or that can be stopped, completes with
//! `DeadlinePassed`. The deadline does not change an operation that completes in time.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use nowait::buffer::downcast;
use nowait::engine::{Backend, Options, Wait};
use nowait::op::{Nop, Op, Read, Write};
use nowait::{ErrorKind, Handle, OpenOptions};
use rustix::event::{PollFd, PollFlags, poll};

use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::pipe;
use crate::common::results::{bytes_of, kind, nothing_for_a_while, source_of};
use crate::common::shared_engine::each_shared;
use crate::common::wait::LONG;

fn stream(handle: &Handle) -> Op {
    Read::stream(handle, Box::new(vec![0u8; 64])).into()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(30)
}

#[test]
fn a_read_that_waits_gives_up() {
    each(Options::new(), |engine| {
        let (reader, writer) = pipe();
        let at = soon();
        let ticket = queued(engine, stream(&reader).user_data(5).deadline(at));
        let done = finish(engine, 1).remove(0);
        assert!(Instant::now() >= at, "{}: not before", name(engine));
        assert_eq!(kind(&done), ErrorKind::DeadlinePassed, "{}", name(engine));
        assert_eq!((done.ticket, done.op.get_user_data()), (Some(ticket), 5));
        let text = done.result.as_ref().unwrap_err().to_string();
        assert!(text.contains("read") && text.contains("deadline"), "{text}");
        assert!(bytes_of(done).capacity() >= 64, "the buffer is back");
        // Nothing was read from the pipe, and the next read works.
        rustix::io::write(&writer, b"abc").unwrap();
        assert_eq!(bytes_of(one(engine, stream(&reader))), b"abc");
    });
}

#[test]
fn a_cancelled_read_that_is_submitted_again_has_a_deadline_of_its_own() {
    each(Options::new(), |engine| {
        let (reader, _writer) = pipe();
        let ticket = queued(engine, stream(&reader));
        nothing_for_a_while(engine);
        engine.cancel(ticket);
        let cancelled = finish(engine, 1).remove(0);
        assert_eq!(kind(&cancelled), ErrorKind::Cancelled, "{}", name(engine));
        queued(engine, cancelled.op.deadline(soon()));
        let late = finish(engine, 1).remove(0);
        assert_eq!(kind(&late), ErrorKind::DeadlinePassed, "{}", name(engine));
    });
}

#[test]
fn on_threads_what_waits_behind_a_blocked_worker_gives_up() {
    // One worker for a pipe.
    each(Options::new().blocking_workers(2), |engine| {
        if engine.backend() != Backend::Threads {
            return;
        }
        let (mut reader, writer) = std::io::pipe().unwrap();
        let writer = Handle::new(OwnedFd::from(writer)).unwrap();
        let write = || Op::from(Write::stream(&writer, Box::new(vec![1; 1 << 20])));
        // The worker has begun before the deadline.
        let at = Instant::now() + Duration::from_secs(2);
        let running = queued(engine, write().deadline(at));
        let mut bytes = [PollFd::new(&reader, PollFlags::IN)];
        poll(&mut bytes, None).unwrap();
        let behind = queued(engine, write().deadline(at));
        let done = finish(engine, 1).remove(0);
        assert_eq!(
            (done.ticket, kind(&done)),
            (Some(behind), ErrorKind::DeadlinePassed)
        );
        assert_eq!(source_of(done).len(), 1 << 20, "the bytes are back");
        nothing_for_a_while(engine);
        // The running read can't be cancelled. It ends as without a deadline.
        std::io::Read::read_exact(&mut reader, &mut vec![0; 1 << 20]).unwrap();
        let done = finish(engine, 1).remove(0);
        assert_eq!(
            (done.ticket, said(&done)),
            (Some(running), Ok(1 << 20)),
            "{}",
            name(engine)
        );
    });
}

#[test]
fn one_that_is_done_in_time_is_not_concerned() {
    each(Options::new(), |engine| {
        let (reader, writer) = pipe();
        for _ in 0..20 {
            rustix::io::write(&writer, b"x").unwrap();
            let done = one(engine, stream(&reader).deadline(Instant::now() + LONG));
            assert_eq!(said(&done), Ok(1), "{}", name(engine));
        }
        // Many deadlines pass after their operations are done.
        let tickets: Vec<_> = (0..50)
            .map(|_| queued(engine, Op::from(Nop).deadline(soon())))
            .collect();
        assert_eq!(finish(engine, tickets.len()).len(), 50);
        std::thread::sleep(Duration::from_millis(60));
        let ticket = queued(engine, stream(&reader));
        nothing_for_a_while(engine);
        rustix::io::write(&writer, b"y").unwrap();
        assert_eq!(
            finish(engine, 1)[0].ticket,
            Some(ticket),
            "{}",
            name(engine)
        );
    });
}

#[test]
fn the_earlier_of_two_deadlines_fires_first() {
    each(Options::new(), |engine| {
        if engine.backend() != Backend::Uring {
            return;
        }
        let (reader, _writer) = pipe();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        queued(engine, stream(&reader).user_data(2).deadline(at(1200)));
        queued(engine, stream(&reader).user_data(1).deadline(at(600)));
        queued(engine, stream(&reader).user_data(3).deadline(at(1800)));
        let order: Vec<u64> = (0..3)
            .map(|_| finish(engine, 1)[0].op.get_user_data())
            .collect();
        assert_eq!(order, [1, 2, 3], "{}", name(engine));
    });
}

#[test]
fn a_deadline_of_the_past_passes_at_once() {
    each(Options::new(), |engine| {
        if engine.backend() != Backend::Uring {
            return;
        }
        let (reader, _writer) = pipe();
        let past = Instant::now() - Duration::from_secs(1);
        for _ in 0..20 {
            let done = one(engine, stream(&reader).deadline(past));
            assert_eq!(kind(&done), ErrorKind::DeadlinePassed, "{}", name(engine));
        }
    });
}

#[test]
fn a_reap_that_waits_wakes_for_deadlines() {
    each(Options::new(), |engine| {
        if engine.backend() != Backend::Uring {
            return;
        }
        let (reader, _writer) = pipe();
        for token in 0..5 {
            queued(engine, stream(&reader).user_data(token).deadline(soon()));
        }
        let mut done = Vec::new();
        engine.reap(&mut done, Wait::For(5)).unwrap();
        assert_eq!(done.len(), 5, "{}", name(engine));
    });
}

#[test]
fn futures_have_deadlines_too() {
    each_shared(Options::new().depth(4), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 8192);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .engine(engine)
            .blocking_open(&path);
        let file = file.unwrap();
        let far = Instant::now() + 10 * LONG;
        for cold in [false, true] {
            if cold {
                evict(&path);
            }
            let read = file.read_at(Vec::with_capacity(8192), 0).deadline(far);
            let (n, buf) = pollster::block_on(read).into_result().unwrap();
            assert_eq!((n, buf), (8192, pattern(0, 8192)));
            let write = file.write_at(pattern(0, 10), 0).deadline(far);
            assert_eq!(pollster::block_on(write).result.unwrap(), 10);
        }
    });
}

#[test]
fn a_future_that_waits_for_a_permit_gives_up() {
    each_shared(Options::new().depth(1), |engine| {
        let (reader, writer) = pipe();
        let mut first = Box::pin(engine.run(Read::stream(&reader, Box::new(vec![0u8; 1]))));
        assert!(first.as_mut().now_or_never().is_none());
        let read = || Read::stream(&reader, Box::new(Vec::<u8>::with_capacity(7)));
        for at in [soon(), Instant::now() - Duration::from_secs(1)] {
            let done = pollster::block_on(engine.run(read()).deadline(at));
            assert!(Instant::now() >= at);
            let error = done.result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlinePassed, "{error}");
            let buffer: Vec<u8> = downcast(done.op.into_buffer()).unwrap();
            assert_eq!((buffer.capacity(), buffer.len()), (7, 0));
        }
        // One that is dropped, and one that has its permit in time.
        let far = Instant::now() + 10 * LONG;
        let mut dropped = Box::pin(engine.run(read()).deadline(far));
        assert!(dropped.as_mut().now_or_never().is_none());
        let mut in_time = Box::pin(engine.run(read()).deadline(far));
        assert!(in_time.as_mut().now_or_never().is_none());
        drop(dropped);
        rustix::io::write(&writer, b"ab").unwrap();
        assert_eq!(pollster::block_on(first).result.unwrap(), 1);
        assert_eq!(pollster::block_on(in_time).result.unwrap(), 1);
    });
}
