//! Files of FUSE servers that transfer less than was requested, or that fail a request: every byte is right,
//! and every errno is reported.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nowait::ErrorKind;
use nowait::StatxMask;
use nowait::engine::Options;
use nowait::op::{
    Fallocate, FallocateMode, Fsync, Getxattr, Op, Openat2, Read, Readv, Statx, Write,
};

use crate::common::completions::{finish, said};
use crate::common::drive::name;
use crate::common::errnos::OF_FILES;
use crate::common::files::pattern;
use crate::common::handles::{handle, handle_rw};
use crate::common::kinds::each_kind;
use crate::common::results::{bytes_of, one_in_batch, pieces_of};
use crate::server::{Asked, Served, serve};

const LEN: usize = 20_000;

/// A file whose reads and writes are short, with varying lengths.
fn short() -> Served {
    let asked = AtomicUsize::new(0);
    serve(pattern(0, LEN), move |_| {
        Ok([4096, 1000, 1, 3000, 512][asked.fetch_add(1, Ordering::Relaxed) % 5])
    })
}

#[test]
fn short_reads_of_a_server_are_continued_with_the_right_bytes() {
    slowdisk::require!(slowdisk::available());
    each_kind(Options::new(), |engine| {
        let served = short();
        let open = engine.file(&handle(&served.path));
        let read = |at, len| Read::new(&open, Box::new(vec![0u8; len]), at);
        for (at, len) in [(0, LEN), (5, 9_000), (4096, 4096), (LEN as u64 - 10, 100)] {
            let there = len.min(LEN - at as usize);
            let done = one_in_batch(engine, read(at, len));
            assert_eq!(said(&done), Ok(there), "{} {at}", name(engine));
            let bytes = bytes_of(done);
            assert!(
                bytes[..there] == pattern(at, there),
                "{} {at}",
                name(engine)
            );
            let buffers: Vec<nowait::buffer::Buffer> = (0..4)
                .map(|_| Box::new(vec![0u8; len.div_ceil(4)]) as nowait::buffer::Buffer)
                .collect();
            let done = one_in_batch(engine, Readv::new(&open, buffers, at));
            let there = (4 * len.div_ceil(4)).min(LEN - at as usize);
            assert_eq!(said(&done), Ok(there), "{} {at}", name(engine));
            let bytes: Vec<u8> = pieces_of(done).concat();
            assert!(
                bytes[..there] == pattern(at, there),
                "{} {at}",
                name(engine)
            );
        }
        let mut ops: Vec<Op> = (0..20)
            .map(|i| Op::from(read(i * 900, 2_000)).user_data(i * 900))
            .collect();
        assert_eq!(engine.submit_batch(&mut ops), 20);
        for done in finish(engine, 20) {
            let at = done.op.get_user_data();
            assert!(
                bytes_of(done) == pattern(at, 2_000),
                "{} {at}",
                name(engine)
            );
        }
    });
}

#[test]
fn short_writes_of_a_server_are_continued_with_the_right_bytes() {
    slowdisk::require!(slowdisk::available());
    each_kind(Options::new(), |engine| {
        let served = short();
        let open = engine.file(&handle_rw(&served.path));
        for (at, len) in [(0u64, LEN), (5, 9_000), (4096, 4096)] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
            let write = Write::new(&open, Box::new(bytes.clone()), at).all();
            assert_eq!(
                said(&one_in_batch(engine, write)),
                Ok(len),
                "{}",
                name(engine)
            );
            let there = served.bytes.lock().unwrap()[at as usize..][..len].to_vec();
            assert!(there == bytes, "{} {at}", name(engine));
            // One kernel write: its count is the number of bytes in the file.
            let bytes: Vec<u8> = bytes.iter().map(|b| !b).collect();
            let write = Write::new(&open, Box::new(bytes.clone()), at);
            let n = said(&one_in_batch(engine, write)).unwrap();
            let there = served.bytes.lock().unwrap()[at as usize..][..n].to_vec();
            assert!(n > 0 && there == bytes[..n], "{} {at}", name(engine));
        }
    });
}

#[test]
fn what_a_server_answers_is_what_comes() {
    slowdisk::require!(slowdisk::available());
    // The request that fails, the errno, and the number of failures left.
    let failing = Arc::new((
        Mutex::new(Asked::Open),
        AtomicI32::new(0),
        AtomicU32::new(0),
    ));
    let told = failing.clone();
    let served = serve(pattern(0, LEN), move |asked| {
        let (which, errno, left) = &*told;
        let fails = *which.lock().unwrap() == asked
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        if fails {
            Err(errno.load(Ordering::SeqCst))
        } else {
            Ok(usize::MAX)
        }
    });
    let path = CString::new(served.path.as_os_str().as_bytes()).unwrap();
    each_kind(Options::new(), |engine| {
        let open = engine.file(&handle_rw(&served.path));
        for asked in [
            Asked::Open,
            Asked::Read,
            Asked::Write,
            Asked::Fsync,
            Asked::Getattr,
            Asked::Getxattr,
            Asked::Fallocate,
        ] {
            // The kernel remembers some ENOSYS answers and does not send the request again.
            for errno in OF_FILES.iter().filter(|errno| **errno != libc::ENOSYS) {
                for times in [1, u32::MAX] {
                    let op = || -> Op {
                        match asked {
                            Asked::Open => {
                                let flags = libc::O_RDONLY | libc::O_NONBLOCK;
                                Openat2::new(path.clone(), flags, 0).into()
                            }
                            Asked::Read => Read::new(&open, Box::new(vec![0u8; LEN]), 0).into(),
                            Asked::Write => {
                                Write::new(&open, Box::new(pattern(0, LEN)), 0).all().into()
                            }
                            Asked::Fsync => Fsync::new(&open).into(),
                            Asked::Getattr => Statx::of(&open, StatxMask::BASIC_STATS).into(),
                            Asked::Getxattr => {
                                Getxattr::new(&open, c"user.x".to_owned(), 100).into()
                            }
                            Asked::Fallocate => {
                                Fallocate::new(&open, FallocateMode::empty(), 0, 10).into()
                            }
                        }
                    };
                    let what = format!("{} {asked:?} {errno} {times}", name(engine));
                    *failing.0.lock().unwrap() = asked;
                    failing.1.store(*errno, Ordering::SeqCst);
                    failing.2.store(times, Ordering::SeqCst);
                    let done = one_in_batch(engine, op());
                    failing.2.store(0, Ordering::SeqCst);
                    match &done.result {
                        Ok(_) => {
                            // The request is sent again after an interruption, or by a worker if the ring
                            // would have to wait.
                            let again = [libc::EINTR, libc::EAGAIN, libc::ESTALE].contains(errno);
                            // EPERM may come from a sandbox: the worker then tries openat(2).
                            let again = again || (asked, *errno) == (Asked::Open, libc::EPERM);
                            assert!(times == 1 && again, "{what}: {done:?}");
                            if asked == Asked::Read {
                                assert!(bytes_of(done) == pattern(0, LEN), "{what}");
                            }
                        }
                        Err(error) => {
                            assert_eq!(error.errno(), Some(*errno), "{what}");
                            let known =
                                matches!(error.kind(), ErrorKind::Io(_) | ErrorKind::Unsupported);
                            assert!(known, "{what}: {error:?}");
                        }
                    }
                    // The next operation works.
                    assert!(one_in_batch(engine, op()).result.is_ok(), "{what}");
                }
            }
        }
    });
    assert!(*served.bytes.lock().unwrap() == pattern(0, LEN));
}
