//! `Engine::run`: one operation as a future, which comes back in its own type.

use std::time::{Duration, Instant};

use nowait::engine::{Options, Wait};
use nowait::op::{Nop, Op, Openat2, Read, Statx, Write};
use nowait::{ErrorKind, Handle, ServedBy, StatxMask};

use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw, pipe};
use crate::common::shared_engine::each_shared;

#[test]
fn an_operation_comes_back_in_its_own_type() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10_000);
        let c_path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        pollster::block_on(async {
            let opened = engine.run(Openat2::new(c_path, libc::O_RDWR, 0)).await;
            assert!(matches!(opened.result, Ok(0)));
            let file = Handle::new(opened.op.into_fd().unwrap()).unwrap();
            let asked = engine.run(Statx::of(&file, StatxMask::SIZE)).await;
            assert_eq!(asked.op.metadata().unwrap().len(), 10_000);
            let bytes = Box::new(b"written".to_vec());
            let written = engine.run(Write::new(&file, bytes, 3)).await;
            assert!(matches!(written.result, Ok(7)));
            assert_eq!(written.op.into_source().bytes(), b"written");
            let read = engine.run(Read::new(&file, Box::new(vec![0; 20]), 0)).await;
            assert!(matches!(read.result, Ok(20)));
            let mut expected = pattern(0, 20);
            expected[3..10].copy_from_slice(b"written");
            let read = nowait::buffer::downcast::<Vec<u8>>(read.op.into_buffer()).unwrap();
            assert_eq!(read, expected);
            let any = engine.run(Op::from(Nop).user_data(7)).await;
            assert_eq!(any.op.get_user_data(), 7);
        });
        assert_eq!(engine.in_flight(), 0);
        let mut none = Vec::new();
        assert_eq!(
            engine.reap(&mut none, Wait::No).unwrap(),
            0,
            "they are the futures'"
        );
    });
}

#[test]
fn a_cached_read_is_served_in_the_calling_thread() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let file = handle(&patterned(dir.path(), "file", 10_000));
        let read = pollster::block_on(engine.run(Read::new(&file, Box::new(vec![0; 100]), 0)));
        assert_eq!(read.provenance.served_by, ServedBy::Caller);
        assert_eq!(read.ticket, None);
    });
}

#[test]
fn futures_wait_for_a_place_in_a_full_engine() {
    each_shared(Options::new().depth(2), |engine| {
        let dir = scratch();
        let file = handle_rw(&patterned(dir.path(), "file", 10_000));
        let writes = (0..50u64).map(|i| {
            let bytes = Box::new(pattern(i * 100, 100));
            engine.run(Write::new(&file, bytes, i * 100))
        });
        let done = pollster::block_on(futures_util::future::join_all(writes));
        assert!(done.iter().all(|done| matches!(done.result, Ok(100))));
    });
}

#[test]
fn a_deadline_ends_a_read_of_an_empty_pipe() {
    each_shared(Options::new(), |engine| {
        let (reader, _writer) = pipe();
        let read = Read::stream(&reader, Box::new(vec![0; 1]));
        let deadline = Instant::now() + Duration::from_millis(20);
        let done = pollster::block_on(engine.run(read).deadline(deadline));
        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::DeadlinePassed);
    });
}

#[test]
fn a_spawned_call_starts_at_once_and_brings_its_result() {
    each_shared(Options::new().workers(1).blocking_workers(1), |engine| {
        let (tell, told) = std::sync::mpsc::channel();
        let call = engine.spawn_blocking(move || {
            tell.send("started").unwrap();
            String::from("result")
        });
        assert_eq!(told.recv().unwrap(), "started", "without a poll");
        assert_eq!(pollster::block_on(call).unwrap(), "result");
        let panics = engine.spawn_blocking(|| std::panic::resume_unwind(Box::new(())));
        let refused: nowait::Result<()> = pollster::block_on(panics);
        assert_eq!(refused.unwrap_err().errno(), Some(libc::EIO));
        assert_eq!(engine.in_flight(), 0);
    });
}

#[test]
fn a_spawned_call_that_finds_the_engine_full_is_made_when_it_is_polled() {
    each_shared(Options::new().depth(1).blocking_workers(1), |engine| {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let first = engine.spawn_blocking(move || wait.recv().is_ok());
        let second = engine.spawn_blocking(|| 2);
        let never = engine.spawn_blocking(|| panic!("it was dropped before a poll"));
        drop(never);
        assert_eq!(engine.in_flight(), 1);
        drop(go);
        // A submitted call is made even if its future is dropped.
        drop(first);
        assert_eq!(pollster::block_on(second).unwrap(), 2);
        assert_eq!(engine.in_flight(), 0);
    });
}
