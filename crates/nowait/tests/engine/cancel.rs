//! Cancelling. An operation that has not begun, or that can be stopped, completes as cancelled and returns
//! its buffer. Every operation has exactly one completion.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nowait::engine::{Backend, Options, Wait};
use nowait::op::{Nop, Op, Read, Write};
use nowait::{ErrorKind, Handle, Ticket};

use crate::common::backends::backends;
use crate::common::children::alone;
use crate::common::completions::{finish, queued, said};
use crate::common::drive::{each, name};
use crate::common::files::scratch;
use crate::common::handles::pipe;
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, kind, nothing_for_a_while, source_of};
use crate::common::shared_engine::each_shared;
use crate::common::terminal::terminal;
use crate::common::wait::wait_until;

fn stream(handle: &Handle) -> Op {
    let mut buffer = Vec::with_capacity(64);
    buffer.extend_from_slice(b"before");
    Read::stream(handle, Box::new(buffer)).into()
}

#[test]
fn a_read_that_waits_on_the_ring_is_stopped() {
    each(Options::new(), |engine| {
        if engine.backend() != Backend::Uring {
            return;
        }
        let (reader, writer) = pipe();
        let tickets: Vec<Ticket> = (0..10)
            .map(|token| queued(engine, stream(&reader).user_data(token)))
            .collect();
        nothing_for_a_while(engine);
        engine.cancel(tickets[7]);
        let done = finish(engine, 1).remove(0);
        assert_eq!(kind(&done), ErrorKind::Cancelled, "{}", name(engine));
        assert_eq!(
            (done.ticket, done.op.get_user_data()),
            (Some(tickets[7]), 7)
        );
        assert!(
            done.result
                .as_ref()
                .unwrap_err()
                .to_string()
                .starts_with("read: cancelled")
        );
        assert!(bytes_of(done).capacity() >= 64, "the buffer is back");
        nothing_for_a_while(engine);
        // The other reads go on.
        rustix::io::write(&writer, b"x").unwrap();
        let done = finish(engine, 1).remove(0);
        assert_eq!(said(&done), Ok(1), "{}", name(engine));
        let left = tickets
            .iter()
            .filter(|t| ![Some(tickets[7]), done.ticket].contains(&Some(**t)));
        left.for_each(|ticket| engine.cancel(*ticket));
        for done in finish(engine, 8) {
            assert_eq!(kind(&done), ErrorKind::Cancelled, "{}", name(engine));
        }
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn on_threads_a_read_that_waits_is_stopped_and_a_write_that_has_begun_goes_on() {
    // In a child: it counts the workers of the process.
    alone(|| {
        // One worker for a pipe.
        each(Options::new().blocking_workers(2), |engine| {
            if engine.backend() != Backend::Threads {
                return;
            }
            let (reader, _writer) = pipe();
            let running = queued(engine, stream(&reader));
            wait_until("the worker waits", || waiting_workers() == 1);
            let behind = queued(engine, stream(&reader));
            for ticket in [behind, running] {
                engine.cancel(ticket);
                let done = finish(engine, 1).remove(0);
                assert_eq!(
                    (done.ticket, kind(&done)),
                    (Some(ticket), ErrorKind::Cancelled)
                );
                assert!(bytes_of(done).capacity() >= 64, "the buffer is back");
            }
            let (mut rest, writer) = std::io::pipe().unwrap();
            let writer = Handle::new(OwnedFd::from(writer)).unwrap();
            let writing = queued(engine, Write::stream(&writer, Box::new(vec![1; 1 << 20])));
            wait_until("the worker writes", || workers_in(&[libc::SYS_write]) == 1);
            engine.cancel(writing);
            nothing_for_a_while(engine);
            std::io::Read::read_exact(&mut rest, &mut vec![0; 1 << 20]).unwrap();
            let done = finish(engine, 1).remove(0);
            assert_eq!(
                (done.ticket, said(&done)),
                (Some(writing), Ok(1 << 20)),
                "{}",
                name(engine)
            );
            assert_eq!(engine.in_flight(), 0);
        });
    });
}

/// A terminal refuses `RWF_NOWAIT`, and so does a pipe of Linux before 6.4.
#[test]
fn a_read_whose_data_another_one_took_is_stopped() {
    // In a child: it counts the workers of the process.
    alone(|| {
        each(Options::new(), |engine| {
            let (other_end, programs_end) = terminal();
            let terminal = Handle::new(programs_end).unwrap();
            let tickets = [(); 2].map(|()| queued(engine, stream(&terminal)));
            if engine.backend() == Backend::Threads {
                wait_until("both workers wait", || waiting_workers() == 2);
            }
            rustix::io::write(&other_end, b"x\n").unwrap();
            let read = finish(engine, 1).remove(0);
            assert_eq!(said(&read), Ok(2), "{}", name(engine));
            // By now the other worker could have found the terminal readable, too.
            nothing_for_a_while(engine);
            for ticket in tickets.into_iter().filter(|t| Some(*t) != read.ticket) {
                engine.cancel(ticket);
            }
            let stopped = finish(engine, 1).remove(0);
            assert_eq!(kind(&stopped), ErrorKind::Cancelled, "{}", name(engine));
        });
    });
}

/// The number of workers of this process that sleep in one of these calls.
fn workers_in(calls: &[i64]) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            let task = task.ok()?.path();
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let call = std::fs::read_to_string(task.join("syscall")).ok()?;
            let number: i64 = call.split(' ').next()?.parse().ok()?;
            (name.trim() == "nowait-worker" && calls.contains(&number)).then_some(())
        })
        .count()
}

/// The number of workers of this process that wait for something to read.
fn waiting_workers() -> usize {
    // Newer architectures have ppoll(2) alone.
    #[cfg(target_arch = "x86_64")]
    const POLL: i64 = libc::SYS_poll;
    #[cfg(not(target_arch = "x86_64"))]
    const POLL: i64 = libc::SYS_ppoll;
    workers_in(&[POLL, libc::SYS_ppoll, libc::SYS_read])
}

#[test]
fn a_past_or_unknown_ticket_is_ignored() {
    each(Options::new(), |engine| {
        engine.cancel(Ticket(12345));
        let past: Vec<Ticket> = (0..20).map(|_| queued(engine, Nop)).collect();
        finish(engine, 20);
        let (reader, writer) = pipe();
        // A new operation uses the ring slot of the earlier one.
        let present = queued(engine, stream(&reader));
        past.iter().for_each(|ticket| engine.cancel(*ticket));
        for odd in [0, u64::MAX, u64::MAX - 1] {
            engine.cancel(Ticket(odd));
        }
        nothing_for_a_while(engine);
        rustix::io::write(&writer, b"x").unwrap();
        let done = finish(engine, 1).remove(0);
        assert_eq!(
            (done.ticket, said(&done)),
            (Some(present), Ok(1)),
            "{}",
            name(engine)
        );
        engine.cancel(present);
        nothing_for_a_while(engine);
    });
}

#[test]
fn there_is_exactly_one_completion_however_the_race_ends() {
    each(Options::new().depth(64), |engine| {
        let (reader, writer) = pipe();
        let (mut read, mut cancelled, mut left) = (0, 0, 0);
        for round in 0..300 {
            let tickets: Vec<Ticket> = (0..8).map(|_| queued(engine, stream(&reader))).collect();
            rustix::io::write(&writer, &[1; 64 * 3][..64 * (round % 4)]).unwrap();
            tickets.iter().for_each(|ticket| engine.cancel(*ticket));
            if engine.backend() == Backend::Threads {
                // A running read ends when it gets data.
                rustix::io::write(&writer, &[1; 64 * 8]).unwrap();
                left += 64 * 8;
            }
            left += 64 * (round % 4);
            let mut seen = Vec::new();
            for done in finish(engine, 8) {
                seen.push(done.ticket.unwrap());
                match &done.result {
                    Ok(n) => {
                        left -= n;
                        read += 1;
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Cancelled, "{}", name(engine));
                        cancelled += 1;
                    }
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, tickets, "{}", name(engine));
            // A cancelled read has taken no byte.
            if left > 0 {
                let mut sink = vec![0; left + 1];
                let n = rustix::io::read(&reader, &mut sink).unwrap();
                assert_eq!(n, left, "{}", name(engine));
                left = 0;
            }
        }
        assert_eq!((read + cancelled, engine.in_flight()), (2400, 0));
    });
}

#[test]
fn many_at_once_from_another_thread() {
    each_shared(Options::new().depth(512), |engine| {
        let (reader, _writer) = pipe();
        if engine.backend() != Backend::Uring {
            return;
        }
        let mut shared = engine.clone();
        let tickets: Vec<Ticket> = (0..500)
            .map(|_| queued(&mut shared, stream(&reader)))
            .collect();
        std::thread::scope(|s| {
            for some in tickets.chunks(100) {
                s.spawn(|| some.iter().for_each(|ticket| engine.cancel(*ticket)));
            }
        });
        for done in finish(&mut shared, 500) {
            assert_eq!(kind(&done), ErrorKind::Cancelled);
        }
    });
}

#[test]
fn a_write_to_a_full_pipe_is_stopped_and_tells_no_lie() {
    each(Options::new(), |engine| {
        if engine.backend() != Backend::Uring {
            return;
        }
        let (mut reader, writer) = std::io::pipe().unwrap();
        let handle = Handle::new(OwnedFd::from(writer)).unwrap();
        let ticket = queued(
            engine,
            Write::stream(&handle, Box::new(vec![1u8; 1 << 20])).all(),
        );
        nothing_for_a_while(engine);
        engine.cancel(ticket);
        let done = finish(engine, 1).remove(0);
        assert_eq!(kind(&done), ErrorKind::Cancelled, "{}", name(engine));
        assert_eq!(source_of(done), vec![1; 1 << 20]);
        drop(handle);
        let mut got = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut got).unwrap();
        assert!(got.len() < 1 << 20);
    });
}

/// A FIFO's reading end, with a writing end so that reads of it wait. FIFOs of one directory are
/// different files of one device.
fn fifo(dir: &Path, name: &str) -> (Handle, std::fs::File) {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let path = dir.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let both = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let reader = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    (Handle::new(reader).unwrap(), both)
}

#[test]
fn a_cancelled_parked_operation_strands_no_other() {
    // In a child: it counts the workers of the process.
    alone(|| {
        // Four workers: a pipe may hold two of them.
        each(Options::new().blocking_workers(4), |engine| {
            if engine.backend() != Backend::Threads {
                return;
            }
            let dir = scratch();
            let (f, feed_f) = fifo(dir.path(), "f");
            let (g, feed_g) = fifo(dir.path(), "g");
            let (h, feed_h) = fifo(dir.path(), "h");
            let mut tickets: Vec<Ticket> = [(&f, 1), (&f, 2), (&g, 3)]
                .iter()
                .map(|(handle, token)| queued(engine, stream(handle).user_data(*token)))
                .collect();
            wait_until("the file's share is taken", || waiting_workers() == 3);
            // These three exceed the share of their file. A read of another file gets the fourth worker.
            tickets.extend([4, 5, 6].map(|token| queued(engine, stream(&f).user_data(token))));
            queued(engine, stream(&h).user_data(7));
            wait_until("all wait", || waiting_workers() == 4);
            // Cancels a parked operation, and a running one, whose end lets a parked one run.
            for (ticket, token) in [(tickets[3], 4), (tickets[0], 1)] {
                engine.cancel(ticket);
                let done = finish(engine, 1).remove(0);
                assert_eq!(kind(&done), ErrorKind::Cancelled, "{}", name(engine));
                assert_eq!(done.op.get_user_data(), token);
            }
            wait_until("the file's share is taken again", || waiting_workers() == 4);
            // Without writers, all other reads end.
            drop((feed_f, feed_g, feed_h));
            let mut rest: Vec<u64> = finish(engine, 5)
                .iter()
                .inspect(|done| assert_eq!(said(done), Ok(0)))
                .map(|done| done.op.get_user_data())
                .collect();
            rest.sort_unstable();
            assert_eq!(rest, [2, 3, 5, 6, 7], "{}", name(engine));
        });
    });
}

#[test]
fn dropping_a_local_engine_stops_what_can_be_stopped() {
    for backend in backends() {
        if backend != Backend::Uring {
            continue;
        }
        let _limit = Limit::new("drop".into());
        let mut engine = Options::new().backend(backend).build_local().unwrap();
        let (reader, writer) = pipe();
        queued(&mut engine, stream(&reader));
        drop(engine);
        drop(reader);
        // The read has ended, so its descriptor is closed and the pipe has no reader.
        wait_until("the reader is gone", || {
            let mut poll = [rustix::event::PollFd::new(
                &writer,
                rustix::event::PollFlags::OUT,
            )];
            let now = rustix::time::Timespec::default();
            rustix::event::poll(&mut poll, Some(&now)).unwrap();
            poll[0].revents().contains(rustix::event::PollFlags::ERR)
        });
    }
}

#[test]
fn cancelling_does_not_wait_for_a_reap() {
    each(Options::new().workers(1), |engine| {
        let (reader, writer) = pipe();
        let tickets: Vec<Ticket> = (0..5).map(|_| queued(engine, stream(&reader))).collect();
        for ticket in &tickets {
            engine.cancel(*ticket);
            engine.cancel(*ticket);
        }
        if engine.backend() == Backend::Threads {
            std::thread::sleep(Duration::from_millis(10));
            rustix::io::write(&writer, &[0; 64 * 5]).unwrap();
        }
        let mut done = Vec::new();
        engine.reap(&mut done, Wait::For(5)).unwrap();
        assert_eq!(done.len(), 5, "{}", name(engine));
    });
}
