//! A sandbox restricts the operations and flags that the rings of a task may use (Linux 7.0). Workers do the others.
#![allow(unsafe_code, reason = "io_uring_register(2), prctl(2)")]

use std::time::Duration;

use io_uring::opcode;
use nowait::buffer::{Buffer, Source};
use nowait::engine::{Backend, Engine, Options, RingSupport};
use nowait::op::{
    Advice, Fadvise, Fallocate, FallocateMode, Fsync, Op, Read, Readv, Statx, SyncFileRange,
    SyncRange, Write, Writev,
};
use nowait::support::Kernel;
use nowait::{Completion, ErrorKind, Handle, OpenOptions, RwFlags, ServedBy, StatxMask};
use slowdisk::ServedFlush;

use crate::common::children::alone;
use crate::common::completions::{one, said};
use crate::common::drive::Drive;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::handle_rw;
use crate::common::results::bytes_of;

/// `struct io_uring_restriction`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Restriction {
    opcode: u16,
    value: u8,
    reserved: [u8; 13],
}

/// `IORING_RESTRICTION_SQE_OP`: this operation is allowed.
fn operation(value: u8) -> Restriction {
    Restriction {
        opcode: 1,
        value,
        reserved: [0; 13],
    }
}

/// `IORING_RESTRICTION_REGISTER_OP`: this operation of io_uring_register(2) is allowed.
fn registration(value: u8) -> Restriction {
    Restriction {
        opcode: 0,
        ..operation(value)
    }
}

/// Allows the rings of this thread, and of those that it starts, nothing else. Returns false if the kernel has no
/// restrictions of tasks.
fn restrict(allowed: &[Restriction]) -> bool {
    const REGISTER_RESTRICTIONS: libc::c_uint = 11;
    /// `struct io_uring_task_restriction`.
    #[repr(C)]
    struct Task {
        flags: u16,
        count: u16,
        reserved: [u32; 3],
        allowed: [Restriction; 64],
    }
    let mut task = Task {
        flags: 0,
        count: allowed.len() as u16,
        reserved: [0; 3],
        allowed: [operation(0); 64],
    };
    task.allowed[..allowed.len()].copy_from_slice(allowed);
    // SAFETY: `task` lives through the call.
    let done = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(
            libc::SYS_io_uring_register,
            -1,
            REGISTER_RESTRICTIONS,
            &raw const task,
            1,
        )
    };
    if done != 0 {
        let error = std::io::Error::last_os_error();
        // This kernel does not depend on the machine's packages: it is no missing requirement.
        eprintln!("skipped: this kernel has no restrictions of tasks ({error})");
    }
    done == 0
}

/// Runs a test on both kinds of engine with a ring.
fn each_ring(test: impl Fn(&mut dyn Drive)) {
    let options = Options::new().backend(Backend::Uring);
    test(&mut options.build().expect("a shared engine"));
    test(&mut options.build_local().expect("a local engine"));
}

fn by_worker(done: Completion) -> usize {
    assert_eq!(done.provenance.served_by, ServedBy::Worker, "{done:?}");
    done.result.expect("the operation succeeds")
}

const LEN: usize = 100_000;

#[test]
fn workers_do_the_operations_that_a_ring_may_not() {
    alone(|| {
        let allowed = [opcode::Read::CODE, opcode::AsyncCancel::CODE];
        if !restrict(&allowed.map(operation)) {
            return;
        }
        let dir = scratch();
        each_ring(|engine| {
            let path = patterned(dir.path(), "file", LEN);
            let file = handle_rw(&path);
            for _ in 0..3 {
                let ops: [Op; 7] = [
                    Write::new(&file, Box::new(pattern(7, 5000)), 7).into(),
                    Writev::new(&file, vec![Box::new(pattern(9, 10)) as Source], 9).into(),
                    Fsync::new(&file).into(),
                    SyncFileRange::new(&file, 0, 4096, SyncRange::all()).into(),
                    Fallocate::new(&file, FallocateMode::empty(), 0, LEN as u64).into(),
                    Fadvise::new(&file, 0, 4096, Advice::Normal).into(),
                    Statx::of(&file, StatxMask::SIZE).into(),
                ];
                for op in ops {
                    by_worker(one(engine, op));
                }
                let pieces = vec![Box::new(vec![0u8; 100]) as Buffer];
                by_worker(one(engine, Readv::new(&file, pieces, 0)));
            }
            let read = one(engine, Read::new(&file, Box::new(vec![0u8; LEN]), 0));
            assert_ne!(read.provenance.served_by, ServedBy::Worker, "{read:?}");
            assert_eq!(bytes_of(read), pattern(0, LEN));
        });
        let support = RingSupport::probe().expect("a ring");
        let supported = support.operations.iter().filter(|(_, has)| *has);
        let names: Vec<&str> = supported.map(|(name, _)| *name).collect();
        assert_eq!(names, ["read"]);
        let engine = Engine::new().expect("an engine");
        assert_eq!(engine.backend(), Backend::Uring, "{}", engine.why());
        let mut options = OpenOptions::new();
        options.read(true).engine(&engine);
        let path = dir.path().join("file");
        for _ in 0..3 {
            pollster::block_on(options.open(&path)).expect("an open");
        }
        let missing = pollster::block_on(options.open(dir.path().join("missing")));
        assert_eq!(missing.unwrap_err().errno(), Some(libc::ENOENT));
    });
}

#[test]
fn workers_do_the_requests_with_flags_that_a_ring_may_not_use() {
    alone(|| {
        // All operations without flags. A synchronous write has the flag IOSQE_ASYNC.
        let all: Vec<Restriction> = (0..40).map(operation).collect();
        if !restrict(&all) {
            return;
        }
        let dir = scratch();
        each_ring(|engine| {
            let file = handle_rw(&patterned(dir.path(), "file", LEN));
            let write = |flags| Write::new(&file, Box::new(pattern(0, 5000)), 0).flags(flags);
            let plain = one(engine, write(RwFlags::empty()));
            assert_ne!(plain.provenance.served_by, ServedBy::Worker, "{plain:?}");
            assert_eq!(by_worker(one(engine, write(RwFlags::DSYNC))), 5000);
        });
    });
}

#[test]
fn a_ring_that_cannot_be_woken_or_cannot_cancel_is_not_used() {
    let refused = |allowed: &[Restriction]| {
        if !restrict(allowed) {
            return;
        }
        let engine = Engine::new().expect("an engine");
        assert_eq!(engine.backend(), Backend::Threads);
        assert!(
            engine.why().contains("Permission denied"),
            "{}",
            engine.why()
        );
        let insisted = Options::new().backend(Backend::Uring);
        assert_eq!(insisted.build().unwrap_err().errno(), Some(libc::EACCES));
        assert_eq!(
            insisted.build_local().unwrap_err().errno(),
            Some(libc::EACCES)
        );
        let dir = scratch();
        let file = handle_rw(&patterned(dir.path(), "file", LEN));
        let mut engine = engine;
        let read = one(&mut engine, Read::new(&file, Box::new(vec![0u8; LEN]), 0));
        assert_eq!(bytes_of(read), pattern(0, LEN));
    };
    match crate::common::children::role().as_deref() {
        None => ["no read", "no cancel", "no probe"]
            .iter()
            .for_each(|role| crate::common::children::in_child(role)),
        Some("no read") => refused(&[operation(opcode::AsyncCancel::CODE)]),
        Some("no cancel") => refused(&[operation(opcode::Read::CODE)]),
        // IORING_REGISTER_EVENTFD alone: the operations cannot be asked for.
        Some(_) => refused(&[registration(4)]),
    }
}

/// A repeated fsync(2) does not return the error again.
#[test]
fn a_sync_that_fails_with_eacces_is_not_repeated() {
    slowdisk::require!(slowdisk::available());
    each_ring(|engine| {
        let served = ServedFlush::with_syncs(libc::EACCES).expect("a mount");
        let path = served.path().join("file");
        let file = std::fs::File::create_new(path).expect("a file");
        let file = Handle::new(file).expect("a handle");
        let done = one(engine, Fsync::new(&file));
        assert_eq!(done.provenance.served_by, ServedBy::Ring, "{done:?}");
        assert_eq!(said(&done), Err(libc::EACCES));
        assert_eq!(served.syncs(), 1);
        let error = done.result.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::Cancelled);
    });
}

/// The requests that are tried on a new ring need no more room.
#[test]
fn an_engine_for_one_operation_has_a_ring() {
    if !Kernel::get().io_uring.is_yes() {
        return slowdisk::skip_or_fail("no io_uring");
    }
    let dir = scratch();
    let file = handle_rw(&patterned(dir.path(), "file", LEN));
    let options = Options::new().depth(1).backend(Backend::Uring);
    for options in [options.clone(), options.sqpoll(Duration::from_millis(1))] {
        let mut engine = options.build_local().expect("a ring");
        for _ in 0..3 {
            let read = one(&mut engine, Read::new(&file, Box::new(vec![0u8; LEN]), 0));
            assert_eq!(bytes_of(read), pattern(0, LEN));
        }
    }
}
