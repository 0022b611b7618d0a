//! Files of FUSE servers that transfer less than was requested, or that fail a request: every byte is right,
//! and every errno is reported.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nowait::ErrorKind;
use nowait::Handle;
use nowait::StatxMask;
use nowait::engine::{Options, Wait};
use nowait::op::{Fallocate, FallocateMode, Fsync, Op, Openat2, Read, Readv, Statx, Write};

use slowdisk::{Asked, ServedFile};

use crate::common::backends::backends;
use crate::common::completions::{finish, said};
use crate::common::drive::{Drive, name};
use crate::common::errnos::OF_FILES;
use crate::common::files::pattern;
use crate::common::handles::{handle, handle_rw};
use crate::common::kinds::{AnyKind, each_kind, plain};
use crate::common::limit::Limit;
use crate::common::results::{bytes_of, one_in_batch, pieces_of};

const LEN: usize = 20_000;

/// A file whose reads and writes are short, with varying lengths.
fn short() -> ServedFile {
    let asked = AtomicUsize::new(0);
    ServedFile::new(pattern(0, LEN), move |_| {
        Ok([4096, 1000, 1, 3000, 512][asked.fetch_add(1, Ordering::Relaxed) % 5])
    })
    .unwrap()
}

#[test]
fn short_reads_of_a_server_are_continued_with_the_right_bytes() {
    slowdisk::require!(slowdisk::available());
    each_kind(Options::new(), |engine| {
        let served = short();
        let open = engine.file(&handle(served.path()));
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
        let open = engine.file(&handle_rw(served.path()));
        for (at, len) in [(0u64, LEN), (5, 9_000), (4096, 4096)] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
            let write = Write::new(&open, Box::new(bytes.clone()), at).all();
            assert_eq!(
                said(&one_in_batch(engine, write)),
                Ok(len),
                "{}",
                name(engine)
            );
            let there = served.bytes()[at as usize..][..len].to_vec();
            assert!(there == bytes, "{} {at}", name(engine));
            // One kernel write: its count is the number of bytes in the file.
            let bytes: Vec<u8> = bytes.iter().map(|b| !b).collect();
            let write = Write::new(&open, Box::new(bytes.clone()), at);
            let n = said(&one_in_batch(engine, write)).unwrap();
            let there = served.bytes()[at as usize..][..n].to_vec();
            assert!(n > 0 && there == bytes[..n], "{} {at}", name(engine));
        }
    });
}

/// A served file, some of whose requests fail.
struct Failing {
    served: ServedFile,
    plan: Arc<Plan>,
}

struct Plan {
    /// The requests that fail.
    asked: Mutex<Asked>,
    errno: AtomicI32,
    /// The number of such requests that transfer [`PART`] bytes before the failures.
    parts: AtomicU32,
    /// The number of failures left.
    left: AtomicU32,
}

const PART: usize = 4096;

impl Failing {
    fn new() -> Failing {
        let plan = Arc::new(Plan {
            asked: Mutex::new(Asked::Open),
            errno: AtomicI32::new(0),
            parts: AtomicU32::new(0),
            left: AtomicU32::new(0),
        });
        let told = plan.clone();
        let one_of = |count: &AtomicU32| {
            let less = |n: u32| n.checked_sub(1);
            count
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok()
        };
        let served = ServedFile::new(pattern(0, LEN), move |asked| {
            if *told.asked.lock().unwrap() != asked {
                Ok(usize::MAX)
            } else if one_of(&told.parts) {
                Ok(PART)
            } else if one_of(&told.left) {
                Err(told.errno.load(Ordering::SeqCst))
            } else {
                Ok(usize::MAX)
            }
        });
        Failing {
            served: served.unwrap(),
            plan,
        }
    }

    /// Runs `operation`. Meanwhile, `parts` requests transfer a part, and then `times` requests fail.
    fn during<T>(
        &self,
        (asked, parts): (Asked, u32),
        (errno, times): (i32, u32),
        operation: impl FnOnce() -> T,
    ) -> T {
        *self.plan.asked.lock().unwrap() = asked;
        self.plan.errno.store(errno, Ordering::SeqCst);
        self.plan.parts.store(parts, Ordering::SeqCst);
        self.plan.left.store(times, Ordering::SeqCst);
        let done = operation();
        self.plan.parts.store(0, Ordering::SeqCst);
        self.plan.left.store(0, Ordering::SeqCst);
        done
    }
}

/// An operation that sends this request to the server of an open file.
fn operation(asked: Asked, served: &ServedFile, open: &Handle) -> Op {
    match asked {
        Asked::Open => {
            let path = CString::new(served.path().as_os_str().as_bytes()).unwrap();
            Openat2::new(path, libc::O_RDONLY | libc::O_NONBLOCK, 0).into()
        }
        Asked::Read => Read::new(open, Box::new(vec![0u8; LEN]), 0).into(),
        Asked::Write => Write::new(open, Box::new(pattern(0, LEN)), 0).all().into(),
        Asked::Fsync => Fsync::new(open).into(),
        Asked::Getattr => Statx::of(open, StatxMask::BASIC_STATS).into(),
        Asked::Lookup | Asked::Statfs | Asked::Flush | Asked::Getxattr => {
            unreachable!("no operation sends it alone")
        }
        Asked::Fallocate => Fallocate::new(open, FallocateMode::empty(), 0, 10).into(),
    }
}

#[test]
fn what_a_server_answers_is_what_comes() {
    slowdisk::require!(slowdisk::available());
    let failing = Failing::new();
    let served = &failing.served;
    each_kind(Options::new(), |engine| {
        let open = engine.file(&handle_rw(served.path()));
        for asked in [
            Asked::Open,
            Asked::Read,
            Asked::Write,
            Asked::Fsync,
            Asked::Getattr,
            Asked::Fallocate,
        ] {
            // The kernel remembers some ENOSYS answers and does not send the request again.
            for errno in OF_FILES.iter().filter(|errno| **errno != libc::ENOSYS) {
                for times in [1, u32::MAX] {
                    if (*errno, times) == (libc::EINTR, u32::MAX) {
                        // 1,000 requests: see the next test.
                        continue;
                    }
                    let op = || operation(asked, served, &open);
                    let what = format!("{} {asked:?} {errno} {times}", name(engine));
                    let done =
                        failing.during((asked, 0), (*errno, times), || one_in_batch(engine, op()));
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
    assert!(*served.bytes() == pattern(0, LEN));
}

/// It is repeated 1,000 times, which takes long on a busy machine: each operation has a limit of its own.
#[test]
fn an_operation_that_is_always_interrupted_fails() {
    slowdisk::require!(slowdisk::available());
    let failing = Failing::new();
    let served = &failing.served;
    for asked in [Asked::Open, Asked::Read, Asked::Fsync] {
        let test = |engine: &mut AnyKind| {
            let open = handle_rw(served.path());
            let mut ops = vec![operation(asked, served, &open)];
            let mut done = Vec::new();
            failing.during((asked, 0), (libc::EINTR, u32::MAX), || {
                assert_eq!(engine.submit_batch(&mut ops), 1);
                engine.reap(&mut done, Wait::For(1)).unwrap();
            });
            assert_eq!(said(&done[0]), Err(libc::EINTR), "{}", name(engine));
            let next = one_in_batch(engine, operation(asked, served, &open));
            assert!(next.result.is_ok(), "{}: {next:?}", name(engine));
        };
        for backend in backends() {
            plain(backend, &Options::new(), test);
        }
    }
}

/// Transfers the file, and returns a count or an errno.
type Transfer<'a> = &'a dyn Fn() -> Result<usize, i32>;

#[test]
fn every_face_reports_the_errno_of_a_server() {
    slowdisk::require!(slowdisk::available());
    let failing = Failing::new();
    let path = failing.served.path();
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        let open = nowait::OpenOptions::new()
            .read(true)
            .write(true)
            .engine(&engine)
            .open(path);
        let file = pollster::block_on(open).unwrap();
        let errno = |result: nowait::Result<usize>| result.map_err(|e| e.errno().unwrap());
        let read = |result, buffer: Vec<u8>| {
            assert_eq!(buffer.capacity(), LEN, "the buffer comes back");
            let n = errno(result)?;
            assert!(buffer[..n] == pattern(0, n));
            Ok(n)
        };
        let future_read = || {
            let done = pollster::block_on(file.read_at(Vec::with_capacity(LEN), 0));
            read(done.result, done.buf)
        };
        let blocking_read = || {
            let mut buffer = vec![0; LEN];
            let done = file.blocking_read_at(&mut buffer[..], 0);
            read(done, buffer)
        };
        let future_write = || {
            let done = pollster::block_on(file.write_all_at(pattern(0, LEN), 0));
            assert!(done.buf == pattern(0, LEN), "the buffer comes back");
            errno(done.result)
        };
        let faces: [(&str, Asked, Transfer<'_>); 3] = [
            ("read_at", Asked::Read, &future_read),
            ("blocking_read_at", Asked::Read, &blocking_read),
            ("write_all_at", Asked::Write, &future_write),
        ];
        let again = [libc::EINTR, libc::EAGAIN];
        for (name, asked, transfer) in faces {
            let _limit = Limit::new(format!("{backend} {name}"));
            for parts in [0, 1, 2] {
                for errno in OF_FILES.into_iter().filter(|errno| *errno != libc::ENOSYS) {
                    for times in [1, u32::MAX] {
                        if (errno, times) == (libc::EINTR, u32::MAX) && parts > 0 {
                            // 1,000 requests: once is enough.
                            continue;
                        }
                        let what = format!("{backend} {name}: {errno} {times}, {parts} parts");
                        let done = failing.during((asked, parts), (errno, times), transfer);
                        if done == Ok(LEN) {
                            assert!(times == 1 && again.contains(&errno), "{what}");
                        } else {
                            assert_eq!(done, Err(errno), "{what}");
                        }
                        assert_eq!(transfer(), Ok(LEN), "{what}: the next one");
                    }
                }
            }
        }
        assert_eq!(engine.in_flight(), 0);
    }
    assert!(*failing.served.bytes() == pattern(0, LEN));
}

#[cfg(feature = "tokio")]
#[test]
fn a_stream_reports_the_errno_of_a_server_and_keeps_its_position() {
    use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    slowdisk::require!(slowdisk::available());
    let failing = Failing::new();
    let _limit = Limit::new("stream".into());
    pollster::block_on(async {
        for errno in OF_FILES.into_iter().filter(|errno| *errno != libc::ENOSYS) {
            let what = format!("errno {errno}");
            let mut options = nowait::tokio::OpenOptions::new();
            let open = options.read(true).write(true).open(failing.served.path());
            let mut file = open.await.unwrap();
            let mut buffer = vec![0; LEN];
            let all = (errno, u32::MAX);
            let read = || pollster::block_on(file.read(&mut buffer));
            let failed = failing.during((Asked::Read, 0), all, read).unwrap_err();
            assert_eq!(failed.raw_os_error(), Some(errno), "{what}");
            file.read_exact(&mut buffer).await.unwrap();
            assert!(buffer == pattern(0, LEN), "{what}");

            file.rewind().await.unwrap();
            let write = || {
                pollster::block_on(async {
                    file.write_all(&buffer).await?;
                    file.flush().await
                })
            };
            let failed = failing.during((Asked::Write, 0), all, write).unwrap_err();
            assert_eq!(failed.raw_os_error(), Some(errno), "{what}");
            file.write_all(&buffer).await.unwrap();
            file.flush().await.unwrap();
            assert_eq!(file.stream_position().await.unwrap(), LEN as u64, "{what}");
        }
    });
    assert!(*failing.served.bytes() == pattern(0, LEN));
}
