//! Chains: each operation begins after the one before it has succeeded, and a chain is submitted whole.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nowait::buffer::BufferPool;
use nowait::engine::{Backend, Chain, Options, Polled, Queue, Submit, Wait};
use nowait::op::{Call, Fsync, Nop, Op, Read, Write};
use nowait::{Completion, ErrorKind, Handle, RwFlags, ServedBy, Ticket};

use crate::common::backends::backends;
use crate::common::completions::{finish, queued, said};
use crate::common::drive::{Drive, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::results::{bytes_of, kind, nothing_for_a_while};
use crate::common::rings::each_ring;
use crate::common::wait::{LONG, wait_until};
use crate::readable::readable;

/// Submits a chain. Returns its completions in the order of its members.
fn all(engine: &mut dyn Drive, chain: Chain) -> Vec<Completion> {
    let tickets = engine.submit_chain(chain).unwrap();
    in_order(engine, &tickets)
}

fn in_order(engine: &mut dyn Drive, tickets: &[Ticket]) -> Vec<Completion> {
    let mut done = finish(engine, tickets.len());
    done.sort_by_key(|c| tickets.iter().position(|t| c.ticket == Some(*t)));
    let got: Vec<_> = done.iter().map(|c| c.ticket.unwrap()).collect();
    assert_eq!(got, tickets, "{}", name(engine));
    done
}

/// The kinds of errors, and the counts.
fn outcome(done: &[Completion]) -> Vec<Result<usize, ErrorKind>> {
    let said = |c: &Completion| c.result.as_ref().copied().map_err(|e| e.kind());
    done.iter().map(said).collect()
}

const CANCELLED: Result<usize, ErrorKind> = Err(ErrorKind::Cancelled);

fn read(pipe: &Handle, len: usize) -> Read {
    Read::stream(pipe, Box::new(vec![0; len]))
}

fn write(file: &Handle, bytes: &[u8]) -> Write {
    Write::stream(file, Box::new(bytes.to_vec()))
}

#[test]
fn a_write_its_fsync_and_a_read_come_in_order() {
    each_ring(Options::new(), |engine| {
        let dir = scratch();
        let file = engine.file(&handle_rw(&patterned(dir.path(), "file", 100)));
        let chain = Chain::new()
            .then(Write::new(&file, Box::new(vec![7; 50]), 25).all())
            .then(Fsync::data(&file))
            .then(Read::new(&file, Box::new(vec![0; 100]), 0));
        let mut done = all(engine, chain);
        assert_eq!(outcome(&done), [Ok(50), Ok(0), Ok(100)], "{}", name(engine));
        // It is unknown if the bytes of a member were cached: its completion waits for the members
        // before it.
        let p = done[2].provenance;
        assert_eq!((p.cached, p.device, p.unknown), (0, 0, 100));
        assert_eq!(p.served_by, ServedBy::Ring);
        assert_eq!(
            bytes_of(done.remove(2))[20..80],
            [&pattern(20, 5)[..], &[7; 50], &pattern(75, 5)].concat()
        );
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn nothing_begins_before_the_one_before_it_is_done() {
    each_ring(Options::new(), |engine| {
        let (first, first_end) = pipe();
        let (last, last_end) = pipe();
        let last_end = Handle::new(last_end).unwrap();
        let chain = Chain::new()
            .then(read(&first, 1))
            .then(Nop)
            .then(write(&last_end, b"x"));
        let tickets = engine.submit_chain(chain).unwrap();
        nothing_for_a_while(engine);
        assert!(!readable(&last), "{}", name(engine));
        rustix::io::write(&first_end, b"x").unwrap();
        let done = in_order(engine, &tickets);
        assert_eq!(outcome(&done), [Ok(1), Ok(0), Ok(1)]);
        assert!(readable(&last));
    });
}

#[test]
fn after_a_failure_the_rest_is_cancelled_and_not_done() {
    each_ring(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10);
        let read_only = engine.file(&handle(&path));
        let file = engine.file(&handle_rw(&path));
        for at in 0..3 {
            let mut chain = Chain::new();
            for i in 0..4u64 {
                chain = if i == at {
                    chain.then(Write::new(&read_only, Box::new(vec![1]), 0))
                } else {
                    chain.then(Write::new(&file, Box::new(vec![9]), 100 + i))
                };
            }
            let done = all(engine, chain);
            let mut want = vec![Ok(1); at as usize];
            let bad_descriptor = std::io::Error::from_raw_os_error(libc::EBADF).kind();
            want.push(Err(ErrorKind::Io(bad_descriptor)));
            want.resize(4, CANCELLED);
            assert_eq!(outcome(&done), want, "{}", name(engine));
            assert_eq!(
                std::fs::metadata(&path).unwrap().len(),
                if at == 0 { 10 } else { 100 + at }
            );
        }
    });
}

#[test]
fn a_read_that_ends_with_the_file_is_no_failure() {
    each_ring(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10);
        let file = engine.file(&handle_rw(&path));
        let chain = Chain::new()
            .then(Read::new(&file, Box::new(vec![0; 100]), 0))
            .then(Read::new(&file, Box::new(vec![0; 100]), 10))
            .then(Write::new(&file, Box::new(vec![9; 5]), 10))
            .then(Read::new(&file, Box::new(vec![0; 100]), 5))
            .then(Nop);
        let done = all(engine, chain);
        assert_eq!(
            outcome(&done),
            [Ok(10), Ok(0), Ok(5), Ok(10), Ok(0)],
            "{}",
            name(engine)
        );
    });
}

#[test]
fn a_short_write_goes_on_before_its_followers_begin() {
    const LEN: usize = 1 << 20;
    each_ring(Options::new(), |engine| {
        let (data, data_end) = pipe();
        let (last, last_end) = pipe();
        let data_end = Handle::new(data_end).unwrap();
        let last_end = Handle::new(last_end).unwrap();
        let want = pattern(3, LEN);
        let chain = Chain::new()
            .then(Write::stream(&data_end, Box::new(want.clone())).all())
            .then(write(&last_end, b"x"))
            .then(Nop);
        let tickets = engine.submit_chain(chain).unwrap();
        let got = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut got = Vec::new();
                let mut buffer = [0; 10_000];
                while got.len() < LEN {
                    // Not more than the capacity of the pipe is still missing.
                    assert!(got.len() + (128 << 10) > LEN || !readable(&last));
                    let n = rustix::io::read(&data, &mut buffer).unwrap();
                    got.extend_from_slice(&buffer[..n]);
                }
                got
            });
            let done = in_order(engine, &tickets);
            assert_eq!(outcome(&done), [Ok(LEN), Ok(1), Ok(0)], "{}", name(engine));
            reader.join().unwrap()
        });
        assert!(got == want);
    });
}

#[test]
fn a_cancelled_member_ends_the_chain() {
    each_ring(Options::new(), |engine| {
        // The first member is cancelled: the others never begin.
        let (reader, end) = pipe();
        let chain = || Chain::new().then(read(&reader, 1)).then(Nop).then(Nop);
        let tickets = engine.submit_chain(chain()).unwrap();
        engine.cancel(tickets[0]);
        let done = in_order(engine, &tickets);
        assert_eq!(outcome(&done), [CANCELLED; 3], "{}", name(engine));
        // A later member is cancelled: it completes in its turn, or at once.
        let tickets = engine.submit_chain(chain()).unwrap();
        engine.cancel(tickets[1]);
        std::thread::sleep(Duration::from_millis(5));
        rustix::io::write(&end, b"x").unwrap();
        let done = in_order(engine, &tickets);
        let outcome = outcome(&done);
        assert_eq!(outcome[0], Ok(1), "{}", name(engine));
        // It may have begun before the kernel got the cancel.
        assert!(outcome[1..] == [CANCELLED; 2] || outcome[1..] == [Ok(0); 2]);
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn a_deadline_ends_the_chain() {
    each_ring(Options::new(), |engine| {
        let (reader, _end) = pipe();
        let soon = Instant::now() + Duration::from_millis(20);
        let chain = Chain::new()
            .then(Op::from(read(&reader, 1)).deadline(soon))
            .then(Nop);
        let done = all(engine, chain);
        assert_eq!(outcome(&done), [Err(ErrorKind::DeadlinePassed), CANCELLED]);
    });
}

#[test]
fn what_is_never_there_at_once_is_said_and_ends_the_chain() {
    each_ring(Options::new(), |engine| {
        let (reader, _end) = pipe();
        let chain = Chain::new()
            .then(read(&reader, 1).flags(RwFlags::NOWAIT))
            .then(Nop);
        let done = all(engine, chain);
        // Pipes support NOWAIT on newer kernels only, not on 6.1.
        let said = said(&done[0]);
        let never = [libc::EAGAIN, libc::EOPNOTSUPP].map(Err);
        assert!(never.contains(&said), "{}: {said:?}", name(engine));
        assert_eq!(kind(&done[1]), ErrorKind::Cancelled);
    });
}

/// The kernel owes fewer completions than the engine while members that it has cut off wait to be
/// submitted again.
#[test]
fn a_wait_for_all_members_ends_after_a_short_read() {
    let (ended, ends) = mpsc::channel();
    let test = move || {
        each_ring(Options::new(), |engine| {
            let dir = scratch();
            let file = engine.file(&handle_rw(&patterned(dir.path(), "file", 10)));
            for chains in [1, 2, 7] {
                for _ in 0..chains {
                    let chain = Chain::new()
                        .then(Read::new(&file, Box::new(vec![0; 100]), 0))
                        .then(Nop)
                        .then(Nop);
                    engine.submit_chain(chain).unwrap();
                }
                let mut done = Vec::new();
                while engine.in_flight() > 0 {
                    let all = engine.in_flight();
                    engine.reap(&mut done, Wait::For(all)).unwrap();
                }
                assert_eq!(done.len(), 3 * chains, "{}", name(engine));
            }
        });
        ended.send(()).unwrap();
    };
    let thread = std::thread::spawn(test);
    if let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(LONG) {
        panic!("a wait does not end");
    }
    thread.join().unwrap();
}

#[test]
fn many_chains_at_once_keep_their_orders() {
    each_ring(Options::new().depth(256), |engine| {
        let dir = scratch();
        let open = |i: usize| handle_rw(&patterned(dir.path(), &i.to_string(), 10));
        let files: Vec<_> = (0..50).map(|i| engine.file(&open(i))).collect();
        let mut tickets = HashMap::new();
        for (i, file) in files.iter().enumerate() {
            // Each chain has a short read, a write, and a read of the written bytes.
            let chain = Chain::new()
                .then(Read::new(file, Box::new(vec![0; 20]), 0))
                .then(Write::new(file, Box::new(vec![i as u8; 100]), 0))
                .then(Read::new(file, engine.buffer(200), 0))
                .then(Nop);
            for (member, ticket) in engine.submit_chain(chain).unwrap().into_iter().enumerate() {
                tickets.insert(ticket, (i, member));
            }
        }
        let mut next = [0; 50];
        for done in finish(engine, 200) {
            let (i, member) = tickets[&done.ticket.unwrap()];
            assert_eq!(next[i], member, "{}: chain {i}", name(engine));
            next[i] += 1;
            let want = [10, 100, 100, 0][member];
            assert_eq!(done.result.as_ref().unwrap(), &want);
            if member == 2 {
                assert_eq!(bytes_of(done), [i as u8; 100]);
            }
        }
    });
}

#[test]
fn threads_refuse_a_chain_and_give_it_back() {
    let options = Options::new().backend(Backend::Threads);
    let mut shared = options.build().unwrap();
    let mut local = options.build_local().unwrap();
    for engine in [&mut shared as &mut dyn Drive, &mut local] {
        let refused = engine.submit_chain(Chain::new().then(Nop)).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::NeedsRing);
        assert!(refused.error.to_string().contains("ring"), "{refused}");
        assert_eq!(refused.chain.into_ops().len(), 1);
    }
}

#[test]
fn what_can_not_be_submitted_whole_is_refused_whole() {
    each_ring(Options::new().depth(4), |engine| {
        let nops = |n: usize| (0..n).fold(Chain::new(), |chain, _| chain.then(Nop));
        let refused = |engine: &mut dyn Drive, chain: Chain| {
            let refused = engine.submit_chain(chain).unwrap_err();
            (refused.error.kind(), refused.chain.len())
        };
        assert_eq!(refused(engine, nops(0)), (ErrorKind::InvalidInput, 0));
        assert_eq!(refused(engine, nops(5)), (ErrorKind::InvalidInput, 5));
        // A ring has no such operation.
        let chain = nops(1).then(Call::new(|| panic!("not made")));
        assert_eq!(refused(engine, chain), (ErrorKind::NeedsRing, 2));
        // A member keeps its place until its completion is reaped.
        queued(engine, Nop);
        assert_eq!(refused(engine, nops(4)), (ErrorKind::Full, 4));
        assert_eq!(engine.in_flight(), 1, "{}", name(engine));
        assert_eq!(engine.submit_chain(nops(3)).unwrap().len(), 3);
        assert!(matches!(engine.submit(Nop.into()), Submit::Full(_)));
        finish(engine, 4);
        let tickets = engine.submit_chain(nops(4)).unwrap();
        in_order(engine, &tickets);
    });
    if backends()[0] == Backend::Uring {
        let dir = scratch();
        let file = handle(&patterned(dir.path(), "file", 10));
        let options = Options::new().backend(Backend::Uring).polled(Polled::Busy);
        let read = Read::new(&file, Box::new(vec![0; 10]), 0);
        let chain = Chain::new().then(read);
        let refused = options.build().unwrap().submit_chain(chain).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::NeedsDirect);
    }
}

#[test]
fn a_chain_goes_with_its_engine_and_gives_its_buffers_back() {
    let pool = BufferPool::new(3, 4096).unwrap();
    each_ring(Options::new(), |engine| {
        wait_until("those before", || pool.free() == 3);
        let (reader, end) = pipe();
        let mut chain = Chain::new();
        while let Some(buffer) = pool.take() {
            chain = chain.then(Read::stream(&reader, Box::new(buffer)));
        }
        engine.submit_chain(chain).unwrap();
        // A dropped shared engine completes its operations, a local one cancels them.
        rustix::io::write(&end, &[1; 100]).unwrap();
        drop(end);
    });
    wait_until("the last", || pool.free() == 3);
}
