//! The eventfd of an engine is readable while completions wait to be reaped, and not afterwards.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nowait::engine::{Options, Wait};
use nowait::op::{Call, Nop, Op, Read};
use nowait::{ErrorKind, OpenOptions};
use rustix::event::{PollFd, PollFlags, poll};

use crate::common::completions::{finish, queued};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{patterned, scratch};
use crate::common::handles::{handle, pipe};
use crate::common::results::kind;
use crate::common::wait::LONG;

/// A duplicate of the eventfd, as a program gives it to its event loop.
fn ask(engine: &mut dyn Drive) -> OwnedFd {
    engine.event_fd().unwrap().try_clone_to_owned().unwrap()
}

/// Returns true if the eventfd becomes readable within this time.
fn readable(event: &OwnedFd, within: Duration) -> bool {
    let mut fds = [PollFd::new(event, PollFlags::IN)];
    poll(&mut fds, Some(&within.try_into().unwrap())).unwrap();
    !fds[0].revents().is_empty()
}

fn readable_now(event: &OwnedFd) -> bool {
    readable(event, Duration::ZERO)
}

/// Checks that the eventfd is not readable when all is reaped. The ring of a local engine may signal
/// again for completions that were reaped already, on some kernels more than once. The next reap returns
/// nothing and ends that.
fn assert_quiet(engine: &mut dyn Drive, event: &OwnedFd, what: &str) {
    for _ in 0..100 {
        if !readable(event, Duration::from_millis(5)) {
            return;
        }
        assert!(engine.is_local(), "{what}: readable, and all is reaped");
        assert_eq!(engine.reap(&mut Vec::new(), Wait::No).unwrap(), 0, "{what}");
    }
    panic!("{what}: readable again and again, and all is reaped");
}

#[test]
fn it_is_readable_when_there_is_something_and_not_before() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        assert!(
            !readable(&event, Duration::from_millis(20)),
            "{what}: nothing was submitted"
        );
        let (reader, writer) = pipe();
        queued(engine, Read::stream(&reader, Box::new(vec![0u8; 1])));
        assert!(
            !readable(&event, Duration::from_millis(50)),
            "{what}: it waits"
        );
        rustix::io::write(&writer, b"x").unwrap();
        assert!(readable(&event, LONG), "{what}: it is done");
        assert!(
            readable_now(&event),
            "{what}: and stays readable until the reap"
        );
        let mut done = Vec::new();
        // Some kernels (6.1) signal before the completion can be reaped.
        while engine.reap(&mut done, Wait::No).unwrap() == 0 {
            assert!(readable(&event, LONG), "{what}: it signals again");
        }
        assert_quiet(engine, &event, &what);
    });
}

#[test]
fn an_event_loop_misses_nothing() {
    each(Options::new().depth(32), |engine| {
        let what = name(engine);
        let event = ask(engine);
        let dir = scratch();
        let open = handle(&patterned(dir.path(), "file", 64 << 10));
        let (reader, writer) = pipe();
        let (mut sent, mut got) = (0, 0);
        let mut done = Vec::new();
        while got < 3000 {
            let mut ops: Vec<Op> = Vec::new();
            while sent < 3000 && engine.in_flight() + ops.len() < 32 {
                ops.push(match sent % 3 {
                    0 => Nop.into(),
                    1 => Read::new(&open, Box::new(vec![0u8; 5000]), (sent * 97) % 65_000).into(),
                    _ => {
                        rustix::io::write(&writer, b"x").unwrap();
                        Read::stream(&reader, Box::new(vec![0u8; 1])).into()
                    }
                });
                sent += 1;
            }
            engine.submit_batch(&mut ops);
            assert!(readable(&event, LONG), "{what}: {got} of {sent} reaped");
            got += engine.reap(&mut done, Wait::No).unwrap() as u64;
        }
        assert_eq!((got, engine.in_flight()), (3000, 0), "{what}");
        done.iter()
            .for_each(|c| assert!(c.result.is_ok(), "{what}: {c:?}"));
        assert_quiet(engine, &event, &what);
    });
}

#[test]
fn what_ends_while_others_are_reaped_is_told() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        let (reader, writer) = pipe();
        for round in 0..50 {
            queued(
                engine,
                Op::from(Read::stream(&reader, Box::new(vec![0u8; 1]))).user_data(1),
            );
            assert_quiet(engine, &event, &what);
            // A ring may defer the completion of the read. The completion of the nop is reaped at once.
            rustix::io::write(&writer, b"x").unwrap();
            let mut ops = vec![Op::from(Nop).user_data(2)];
            assert_eq!(engine.submit_batch(&mut ops), 1);
            let mut done = Vec::new();
            while done.len() < 2 {
                assert!(
                    readable(&event, LONG),
                    "{what}: round {round}: {} reaped",
                    done.len()
                );
                engine.reap(&mut done, Wait::No).unwrap();
            }
        }
    });
}

#[test]
fn it_may_be_asked_for_late() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let mut ops = vec![Op::from(Nop)];
        engine.submit_batch(&mut ops);
        std::thread::sleep(Duration::from_millis(50));
        let event = ask(engine);
        assert!(
            readable(&event, LONG),
            "{what}: it was done before the first question"
        );
        finish(engine, 1);
        assert_quiet(engine, &event, &what);
    });
}

#[test]
fn what_is_done_at_submission_in_a_batch_makes_it_readable() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        let dir = scratch();
        let path = patterned(dir.path(), "file", 4096);
        let open = handle(&path);
        assert!(!readable_now(&event), "{what}");
        // Refused at once: the offset is out of range.
        let mut ops = vec![
            Op::from(Read::new(&open, Box::new(vec![0u8; 1]), u64::MAX)),
            Op::from(Read::new(&open, Box::new(vec![0u8; 4096]), 0)),
        ];
        engine.submit_batch(&mut ops);
        assert!(readable(&event, LONG), "{what}");
        finish(engine, 2);
        assert_quiet(engine, &event, &what);
    });
}

#[test]
fn what_is_refused_makes_it_readable() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 3 * 4096);
    let mut direct = OpenOptions::new();
    direct.read(true).direct(true);
    let direct = direct.blocking_open(&path).unwrap();
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        let misaligned = || Op::from(Read::new(direct.handle(), Box::new(vec![0u8; 100]), 7));
        queued(engine, misaligned());
        assert!(readable(&event, LONG), "{what}: one");
        let done = finish(engine, 1);
        assert!(matches!(kind(&done[0]), ErrorKind::Misaligned { .. }));
        assert_quiet(engine, &event, &what);
        engine.submit_batch(&mut vec![misaligned(), misaligned()]);
        assert!(readable(&event, LONG), "{what}: two");
        finish(engine, 2);
        assert_quiet(engine, &event, &what);
    });
}

#[test]
fn waiting_reapers_leave_it_unreadable() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        assert!(!readable_now(&event), "{what}");
        let rounds = if engine.is_local() { 100 } else { 20_000 };
        for round in 0..rounds {
            queued(engine, Nop);
            let mut done = Vec::new();
            assert_eq!(engine.reap(&mut done, Wait::For(1)).unwrap(), 1, "{what}");
            if engine.is_local() {
                assert_quiet(engine, &event, &format!("{what}: round {round}"));
            } else {
                assert!(!readable_now(&event), "{what}: round {round}");
            }
        }
    });
}

#[test]
fn a_worker_that_ends_late_hides_no_completion_of_the_ring() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        let (reader, writer) = pipe();
        let mut done = Vec::new();
        for round in 0..5_000 {
            queued(engine, Call::new(|| Ok(0)));
            while engine.in_flight() > 0 {
                assert!(readable(&event, LONG), "{what}: round {round}, a call");
                engine.reap(&mut done, Wait::No).unwrap();
            }
            queued(engine, Read::stream(&reader, Box::new(vec![0u8; 1])));
            rustix::io::write(&writer, b"x").unwrap();
            while engine.in_flight() > 0 {
                assert!(readable(&event, LONG), "{what}: round {round}, a read");
                engine.reap(&mut done, Wait::No).unwrap();
            }
            done.clear();
        }
    });
}

#[test]
fn a_read_of_an_eventfd_makes_it_readable() {
    each(Options::new(), |engine| {
        let what = name(engine);
        let event = ask(engine);
        let other = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let read = nowait::Handle::new(other.try_clone().unwrap()).unwrap();
        for round in 0..20 {
            queued(engine, Read::stream(&read, Box::new(vec![0u8; 8])));
            rustix::io::write(&other, &1u64.to_ne_bytes()).unwrap();
            let mut done = Vec::new();
            while done.is_empty() {
                assert!(readable(&event, LONG), "{what}: round {round}");
                engine.reap(&mut done, Wait::No).unwrap();
            }
        }
    });
}
