//! Cancelling: what nobody has begun, or what lets itself be stopped, completes as cancelled and
//! gives its buffer back; everything has exactly one completion.

#[path = "common/engines.rs"]
mod engines;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use engines::*;
use nowait::engine::{Backend, Options, Wait};
use nowait::op::{Nop, Op, Read, Write};
use nowait::{ErrorKind, Handle, Ticket};

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
            .map(|token| queued(engine, stream(&reader).token(token)))
            .collect();
        nothing_for_a_while(engine);
        engine.cancel(tickets[7]);
        let done = finish(engine, 1).remove(0);
        assert_eq!(kind(&done), ErrorKind::Cancelled, "{}", name(engine));
        assert_eq!((done.ticket, done.held.get_token()), (Some(tickets[7]), 7));
        assert!(
            done.result
                .as_ref()
                .unwrap_err()
                .to_string()
                .starts_with("read: cancelled")
        );
        assert!(bytes_of(done).capacity() >= 64, "the buffer is back");
        nothing_for_a_while(engine);
        // The others still read.
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
fn on_threads_a_queued_one_is_stopped_at_once_and_a_running_one_ends_as_it_would_have() {
    // Alone in its process: it counts workers.
    if role().is_none() {
        in_child(
            "on_threads_a_queued_one_is_stopped_at_once_and_a_running_one_ends_as_it_would_have",
            "alone",
        );
        return;
    }
    each(Options::new().workers(1), |engine| {
        if engine.backend() != Backend::Threads {
            return;
        }
        let (reader, writer) = pipe();
        let running = queued(engine, stream(&reader));
        wait_until("the worker has begun", || blocked_workers() == 1);
        let behind = queued(engine, stream(&reader));
        engine.cancel(behind);
        let done = finish(engine, 1).remove(0);
        assert_eq!(
            (done.ticket, kind(&done)),
            (Some(behind), ErrorKind::Cancelled)
        );
        assert!(bytes_of(done).capacity() >= 64, "the buffer is back");
        engine.cancel(running);
        nothing_for_a_while(engine);
        rustix::io::write(&writer, b"data").unwrap();
        let done = finish(engine, 1).remove(0);
        assert_eq!(
            (done.ticket, said(&done)),
            (Some(running), Ok(4)),
            "{}",
            name(engine)
        );
        assert_eq!(engine.in_flight(), 0);
    });
}

/// How many of this process's workers sleep in read(2) on a pipe.
fn blocked_workers() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            let task = task.ok()?.path();
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let call = std::fs::read_to_string(task.join("syscall")).ok()?;
            (name.trim() == "nowait-worker" && call.starts_with(&format!("{} ", libc::SYS_read)))
                .then_some(())
        })
        .count()
}

#[test]
fn a_ticket_of_the_past_or_of_nobody_is_ignored() {
    each(Options::new(), |engine| {
        engine.cancel(Ticket::from_u64(12345));
        let past: Vec<Ticket> = (0..20).map(|_| queued(engine, Nop)).collect();
        finish(engine, 20);
        let (reader, writer) = pipe();
        // The ring's slot of a past operation is a present one's by now.
        let present = queued(engine, stream(&reader));
        past.iter().for_each(|ticket| engine.cancel(*ticket));
        for odd in [0, u64::MAX, u64::MAX - 1] {
            engine.cancel(Ticket::from_u64(odd));
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
                // Those that run take data to end.
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
            // No byte is lost to a read that says it was cancelled.
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
fn a_parked_operation_that_is_cancelled_strands_nobody() {
    // Alone in its process: it counts workers.
    if role().is_none() {
        in_child(
            "a_parked_operation_that_is_cancelled_strands_nobody",
            "alone",
        );
        return;
    }
    // Four workers: a file may hold two of them, a device three.
    each(Options::new().workers(4), |engine| {
        if engine.backend() != Backend::Threads {
            return;
        }
        let dir = scratch();
        let (f, feed_f) = fifo(dir.path(), "f");
        let (g, feed_g) = fifo(dir.path(), "g");
        let (h, feed_h) = fifo(dir.path(), "h");
        for (handle, token) in [(&f, 1), (&f, 2), (&g, 3)] {
            queued(engine, stream(handle).token(token));
        }
        wait_until("the device's share is taken", || blocked_workers() == 3);
        // Over the device's share: two. Then, over the file's: three.
        for token in [4, 5] {
            queued(engine, stream(&h).token(token));
        }
        let over: Vec<Ticket> = [6, 7, 8]
            .iter()
            .map(|token| queued(engine, stream(&f).token(*token)))
            .collect();
        // The file's own two are done. Each lets one of `h` and one of `f` go on: `h` comes first
        // and fills the device's share, so 6 and 7 now wait for that, and only 8 for the file's.
        for _ in 0..2 {
            rustix::io::write(&feed_f, b"x").unwrap();
            let done = finish(engine, 1).remove(0);
            assert!([1, 2].contains(&done.held.get_token()), "{}", name(engine));
            wait_until("the device's share is taken again", || {
                blocked_workers() == 3
            });
        }
        engine.cancel(over[0]);
        engine.cancel(over[1]);
        // Their writers gone, all that is carried out ends. (A worker that was slow to park 6 may
        // have begun it.)
        drop((feed_f, feed_g, feed_h));
        let mut rest: Vec<u64> = finish(engine, 6)
            .iter()
            .inspect(|done| {
                let stopped = done.result.is_err();
                assert!(!stopped || kind(done) == ErrorKind::Cancelled);
                assert!(!stopped || [6, 7].contains(&done.held.get_token()));
            })
            .map(|done| done.held.get_token())
            .collect();
        rest.sort_unstable();
        assert_eq!(rest, [3, 4, 5, 6, 7, 8], "{}", name(engine));
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
        // The read is over, so its descriptor is closed: nobody is there to write to.
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
fn cancelling_while_nobody_reaps_does_not_wait() {
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
