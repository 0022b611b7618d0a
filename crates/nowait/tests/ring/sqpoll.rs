//! SQPOLL: a kernel thread takes the submissions.

use std::time::Duration;

use nowait::engine::{Backend, Feature, Options};
use nowait::op::{Nop, Op, Read, Write};
use nowait::read::NowaitPolicy;
use nowait::{Handle, ServedBy};
use rustix::event::{PollFd, PollFlags, poll as poll_fds};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued};
use crate::common::drive::{Drive, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, pipe};
use crate::common::limit::Limit;
use crate::common::results::bytes_of;
use crate::common::wait::LONG;

const PAGE: usize = 4096;

/// Runs a test on both engines, with a thread that sleeps after a millisecond.
fn each_sqpoll(options: Options, test: impl Fn(&mut dyn Drive)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    let options = options
        .backend(Backend::Uring)
        .sqpoll(Duration::from_millis(1));
    {
        let _limit = Limit::new("shared".into());
        test(&mut options.build().unwrap());
    }
    let _limit = Limit::new("local".into());
    test(&mut options.build_local().unwrap());
}

#[test]
fn reads_bring_the_bytes_and_none_is_called_cached() {
    // Cached or not: the caller does not try, and the kernel thread does not report it.
    each_sqpoll(
        Options::new().nowait_policy(NowaitPolicy::Never),
        |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", 64 * PAGE);
            let file = handle(&path);
            // The file must support NOWAIT: else an early completion means nothing.
            assert!(nowait::read::cached(&file, &mut [0; 16], 0).is_ok());
            for cold in [false, true] {
                if cold {
                    evict(&path);
                }
                let read = |i: usize| {
                    let buffer = Box::new(Vec::<u8>::with_capacity(PAGE));
                    Op::from(Read::new(&file, buffer, (i * PAGE) as u64)).user_data(i as u64)
                };
                let mut ops: Vec<Op> = (0..64).map(read).collect();
                assert_eq!(engine.submit_batch(&mut ops), 64);
                for done in finish(engine, 64) {
                    let p = done.provenance;
                    assert_eq!((p.cached, p.device, p.unknown), (0, 0, PAGE), "cold {cold}");
                    assert_eq!(p.served_by, ServedBy::Ring);
                    let at = done.op.get_user_data() * PAGE as u64;
                    assert_eq!(bytes_of(done), pattern(at, PAGE));
                }
            }
            assert_eq!(engine.stats().ring_hits, 0);
        },
    );
}

#[test]
fn a_thread_that_sleeps_is_woken() {
    each_sqpoll(Options::new(), |engine| {
        for i in 0..20 {
            assert_eq!(
                one(engine, Op::from(Nop).user_data(i)).op.get_user_data(),
                i
            );
            // In this time the thread falls asleep, or nearly.
            std::thread::sleep(Duration::from_millis(i % 5));
        }
    });
}

#[test]
fn a_submitted_operation_begins_without_a_wait() {
    each_sqpoll(Options::new(), |engine| {
        let (reader, writer) = pipe();
        let writer = Handle::new(writer).unwrap();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            queued(engine, Write::stream(&writer, Box::new(vec![1; 1])));
            // Waits until a completion has arrived. That does not wake a sleeping thread.
            let mut poll = [PollFd::new(&reader, PollFlags::IN)];
            let limit = rustix::time::Timespec::try_from(LONG).unwrap();
            assert_eq!(poll_fds(&mut poll, Some(&limit)), Ok(1), "{}", name(engine));
            rustix::io::read(&reader, &mut [0; 1]).unwrap();
            finish(engine, 1);
        }
    });
}

#[test]
fn a_short_read_goes_on_though_the_thread_sleeps() {
    each_sqpoll(Options::new(), |engine| {
        let (reader, writer) = pipe();
        for i in 0..10u8 {
            queued(engine, Read::stream(&reader, Box::new(vec![0; 10])));
            std::thread::sleep(Duration::from_millis(3));
            rustix::io::write(&writer, &[i; 10]).unwrap();
            assert_eq!(bytes_of(finish(engine, 1).remove(0)), [i; 10]);
        }
    });
}

#[test]
fn a_full_submission_queue_is_waited_for() {
    // Twice as many operations as the queue has entries.
    each_sqpoll(Options::new().depth(8192), |engine| {
        let mut ops: Vec<Op> = (0..8192).map(|i| Op::from(Nop).user_data(i)).collect();
        assert_eq!(engine.submit_batch(&mut ops), 8192);
        let mut tokens: Vec<u64> = finish(engine, 8192)
            .iter()
            .map(|done| done.op.get_user_data())
            .collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..8192));
    });
}

#[test]
fn it_says_that_it_has_it_and_others_that_they_have_not() {
    each_sqpoll(Options::new(), |_| ());
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        assert!(!engine.support(Feature::Sqpoll).is_yes());
    }
    if let Ok(engine) = Options::new().sqpoll(Duration::ZERO).build() {
        assert!(engine.support(Feature::Sqpoll).is_yes());
    }
}
