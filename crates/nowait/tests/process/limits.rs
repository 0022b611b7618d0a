//! Resource limits and signals, in child processes. Engines fall back or report the reason, and no signal
//! of an operation ends the program.
#![allow(unsafe_code, reason = "setrlimit(2), signal(2), setresuid(2)")]

use std::os::fd::OwnedFd;
use std::path::Path;

use nowait::engine::{Backend, Options, Submit};
use nowait::op::{Read, Write, Writev};
use nowait::{ErrorKind, Handle, OpenOptions, RwFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::backends::backends;
use crate::common::children::{in_child, role};
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::Drive;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, handle_rw};
use crate::common::results::{bytes_of, kind, nothing_for_a_while, one_in_batch, source_of};
use crate::common::terminal::terminal;
use crate::common::wait::{LONG, wait_until};

pub fn limit(resource: Resource, to: u64) {
    let limit = Rlimit {
        current: Some(to),
        maximum: getrlimit(resource).maximum,
    };
    setrlimit(resource, limit).unwrap();
}

/// Becomes the user nobody, who can use only open descriptors.
pub fn become_nobody() {
    // SAFETY: no memory is involved. All threads change their user.
    assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the calling test in a child for each role. In the child, runs `body` with the role.
pub fn in_children(roles: &[&str], body: impl FnOnce(&str)) {
    match role() {
        None => roles.iter().for_each(|role| in_child(role)),
        Some(role) => body(&role),
    }
}

/// The engine of this name; `None` if no ring can be made.
fn engine(role: &str, options: Options) -> Option<Box<dyn Drive>> {
    let (kind, backend) = role.split_once(' ').unwrap();
    let backend = match backend {
        "uring" => Backend::Uring,
        _ => Backend::Threads,
    };
    if !backends().contains(&backend) {
        return None;
    }
    let options = options.backend(backend);
    Some(match kind {
        "shared" => Box::new(options.build().unwrap()),
        _ => Box::new(options.build_local().unwrap()),
    })
}

const ALL: [&str; 4] = [
    "shared uring",
    "shared threads",
    "local uring",
    "local threads",
];

fn reads_work(engine: &mut dyn Drive, open: &Handle) {
    for at in 0..20 {
        let done = one_in_batch(engine, Read::new(open, Box::new(vec![0u8; 1000]), at));
        assert!(bytes_of(done) == pattern(at, 1000));
    }
}

#[test]
fn no_memory_may_be_locked() {
    in_children(&["root", "nobody"], |role| {
        let dir = scratch();
        let open = handle(&patterned(dir.path(), "file", 5000));
        limit(Resource::Memlock, 0);
        if role == "nobody" && is_root() {
            become_nobody();
        }
        // Kernels before 5.12 count rings as locked memory: the engine uses threads and reports the reason.
        let mut shared = Options::new().build().unwrap();
        let mut local = Options::new().build_local().unwrap();
        for engine in [&mut shared as &mut dyn Drive, &mut local] {
            if engine.backend() == Backend::Threads {
                assert!(engine.why().contains("io_uring"), "{}", engine.why());
            }
            reads_work(engine, &open);
        }
        // The user nobody can't remove the directory.
        std::mem::forget(dir);
    });
}

fn is_open(fd: i32) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

#[test]
fn few_descriptors_are_left() {
    in_children(&["alone"], |_| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 5000);
        let open = handle(&path);
        let used = (0..1000).filter(|fd| is_open(*fd)).count();
        let mut seen = [0; 3];
        for room in 0..12 {
            // The limit is a descriptor number: gaps below it count.
            let free = (0..1000).filter(|fd| !is_open(*fd)).nth(room).unwrap();
            limit(Resource::Nofile, free as u64);
            let shared = Options::new()
                .build()
                .map(|e| Box::new(e) as Box<dyn Drive>);
            let check = |made: nowait::Result<Box<dyn Drive>>, seen: &mut [usize; 3]| match made {
                Ok(mut engine) => {
                    if engine.backend() == Backend::Threads {
                        assert!(
                            engine.why().contains("Too many open files"),
                            "{}",
                            engine.why()
                        );
                    }
                    seen[usize::from(engine.backend() == Backend::Uring)] += 1;
                    reads_work(&mut *engine, &open);
                    if let Err(error) = engine.event_fd() {
                        assert_eq!(error.errno(), Some(libc::EMFILE), "{error}");
                    }
                }
                Err(error) => {
                    assert_eq!(error.errno(), Some(libc::EMFILE), "{error}");
                    seen[2] += 1;
                }
            };
            check(shared, &mut seen);
            let local = Options::new()
                .build_local()
                .map(|e| Box::new(e) as Box<dyn Drive>);
            check(local, &mut seen);
            let ring = Options::new().backend(Backend::Uring).build_local();
            check(ring.map(|e| Box::new(e) as Box<dyn Drive>), &mut seen);
            // The open fails, and the error names the file.
            let engine = Options::new().backend(Backend::Threads).build().unwrap();
            match pollster::block_on(OpenOptions::new().read(true).engine(&engine).open(&path)) {
                Ok(file) => assert_eq!(file.len().unwrap(), 5000),
                Err(error) => {
                    assert_eq!(error.errno(), Some(libc::EMFILE));
                    assert!(
                        error.to_string().contains("file: Too many open files"),
                        "{error}"
                    );
                }
            }
            // The shared ring's thread gives its descriptors back when it ends.
            wait_until("threads have ended", || {
                (0..1000).filter(|fd| is_open(*fd)).count() <= used
            });
        }
        assert!(
            seen[0] > 0 && seen[2] > 0,
            "fallen back, and refused: {seen:?}"
        );
        assert!(
            seen[1] > 0 || backends().len() < 2,
            "enough at last: {seen:?}"
        );
    });
}

/// A terminal has no reads with `RWF_NOWAIT`. A worker waits for data in poll(2).
#[test]
fn a_read_of_a_terminal_is_stopped_without_a_free_descriptor() {
    in_children(&["shared threads", "local threads"], |role| {
        let Some(mut engine) = engine(role, Options::new()) else {
            return;
        };
        let (other_end, programs_end) = terminal();
        let terminal = Handle::new(programs_end).unwrap();
        let free = (0..1000).find(|fd| !is_open(*fd)).unwrap();
        limit(Resource::Nofile, free as u64);
        let read = || Read::stream(&terminal, Box::new(vec![0u8; 10]));
        let ticket = queued(&mut *engine, read());
        nothing_for_a_while(&mut *engine);
        engine.cancel(ticket);
        let stopped = finish(&mut *engine, 1).remove(0);
        assert_eq!(kind(&stopped), ErrorKind::Cancelled);
        queued(&mut *engine, read());
        rustix::io::write(&other_end, b"x\n").unwrap();
        let done = finish(&mut *engine, 1).remove(0);
        assert_eq!(said(&done), Ok(2));
    });
}

#[test]
fn no_thread_can_be_had() {
    in_children(&["nobody"], |_| {
        if !is_root() {
            return slowdisk::skip_or_fail("not root: can't become another user");
        }
        let uring = backends().contains(&Backend::Uring);
        let dir = scratch();
        let open = handle(&patterned(dir.path(), "file", 5000));
        become_nobody();
        limit(Resource::Nproc, 0);
        assert!(
            std::thread::Builder::new().spawn(|| ()).is_err(),
            "the limit is in force"
        );
        for options in [Options::new(), Options::new().backend(Backend::Threads)] {
            let error = options.build().unwrap_err();
            assert_eq!(error.errno(), Some(libc::EAGAIN), "{error}");
            assert!(error.to_string().contains("thread"), "{error}");
        }
        let error = Options::new()
            .backend(Backend::Threads)
            .build_local()
            .unwrap_err();
        assert_eq!(error.errno(), Some(libc::EAGAIN), "{error}");
        if uring {
            // A local ring needs no thread.
            let mut local = Options::new().build_local().unwrap();
            assert_eq!(local.backend(), Backend::Uring);
            reads_work(&mut local, &open);
            // An operation that needs a worker fails and returns its buffer.
            let op = Read::new(&open, Box::new(vec![0u8; 10]), 0).flags(RwFlags::HIPRI);
            let done = one(&mut local, op);
            assert_eq!(said(&done), Err(libc::EAGAIN));
            assert!(bytes_of(done).capacity() >= 10);
            // A deadline does no harm if its thread can't be started.
            let far = std::time::Instant::now() + LONG;
            let op = nowait::op::Op::from(Read::new(&open, Box::new(vec![0u8; 10]), 0));
            assert_eq!(said(&one(&mut local, op.deadline(far))), Ok(10));
        }
        std::mem::forget(dir);
    });
}

/// Writes across a file size limit of 8192 bytes: the first write is short, the next fails with EFBIG.
/// SIGXFSZ would end the process.
fn writes_meet_the_limit(engine: &mut dyn Drive, path: &Path) {
    let open = handle_rw(path);
    let write = |len: usize, at| Write::new(&open, Box::new(vec![7u8; len]), at);
    assert_eq!(said(&one(engine, write(5000, 0))), Ok(5000));
    assert_eq!(
        said(&one(engine, write(5000, 5000))),
        Ok(3192),
        "up to the limit"
    );
    assert_eq!(said(&one(engine, write(10, 8192))), Err(libc::EFBIG));
    assert_eq!(said(&one(engine, write(10, 1 << 30))), Err(libc::EFBIG));
    assert_eq!(
        said(&one(engine, write(5000, 5000).all())),
        Err(libc::EFBIG),
        "all or an error"
    );
    let vector = Writev::new(&open, vec![Box::new("ab"), Box::new("cd")], 9000);
    assert_eq!(said(&one(engine, vector)), Err(libc::EFBIG));
    assert_eq!(std::fs::metadata(path).unwrap().len(), 8192);
}

#[test]
fn a_write_beyond_the_size_limit_is_an_error_and_no_signal() {
    in_children(&ALL, |role| {
        // SAFETY: the default action is set.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        let dir = scratch();
        // Before the engine, as a program started with a limit.
        limit(Resource::Fsize, 8192);
        let path = patterned(dir.path(), "file", 10);
        let Some(mut engine) = engine(role, Options::new()) else {
            return;
        };
        writes_meet_the_limit(&mut *engine, &path);
    });
}

#[test]
fn a_size_limit_that_comes_after_the_engine_counts_as_well() {
    in_children(&ALL, |role| {
        // SAFETY: the default action is set.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10);
        let Some(mut engine) = engine(role, Options::new()) else {
            return;
        };
        let open = handle_rw(&path);
        one(&mut *engine, Write::new(&open, Box::new("before"), 0));
        limit(Resource::Fsize, 8192);
        writes_meet_the_limit(&mut *engine, &path);
    });
}

#[test]
fn so_it_does_for_the_writes_of_futures() {
    in_children(&ALL[..2], |role| {
        // SAFETY: the default action is set.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        let backend = if role.ends_with("uring") {
            Backend::Uring
        } else {
            Backend::Threads
        };
        if !backends().contains(&backend) {
            return;
        }
        let engine = Options::new().backend(backend).build().unwrap();
        // On xfs the caller writes.
        slowdisk::require!(slowdisk::Filesystem::Xfs.available());
        let at = slowdisk::TestMount::new(slowdisk::Filesystem::Xfs).unwrap();
        let path = patterned(at.path(), "file", 8192);
        let file = nowait::File::from_handle(&handle_rw(&path), &engine);
        let write = |at| pollster::block_on(file.write_at(vec![7u8; 100], at)).result;
        assert_eq!(write(0).unwrap(), 100);
        let before = engine.stats().write_hits;
        limit(Resource::Fsize, 8192);
        assert_eq!(write(8192).unwrap_err().errno(), Some(libc::EFBIG));
        assert_eq!(write(8100).unwrap(), 92);
        assert_eq!(engine.stats().write_hits, before, "none in the caller");
    });
}

#[test]
fn so_are_the_writes_of_futures() {
    in_children(&ALL[..2], |role| {
        // SAFETY: the default action is set.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10);
        limit(Resource::Fsize, 8192);
        let backend = if role.ends_with("uring") {
            Backend::Uring
        } else {
            Backend::Threads
        };
        if !backends().contains(&backend) {
            return;
        }
        let engine = Options::new().backend(backend).build().unwrap();
        let file = OpenOptions::new()
            .write(true)
            .engine(&engine)
            .blocking_open(&path)
            .unwrap();
        let write = |len: usize, at| pollster::block_on(file.write_at(vec![7u8; len], at)).result;
        assert_eq!(write(5000, 5000).unwrap(), 3192);
        let error = write(10, 8192).unwrap_err();
        assert_eq!(
            (error.operation(), error.errno()),
            ("write_at", Some(libc::EFBIG))
        );
        assert!(
            error.to_string().contains("file: File too large"),
            "{error}"
        );
        let all = pollster::block_on(file.write_all_at(vec![7u8; 5000], 5000));
        assert_eq!(all.result.unwrap_err().errno(), Some(libc::EFBIG));
        assert_eq!(all.buf.len(), 5000, "the buffer is back");
    });
}

#[test]
fn a_pipe_without_a_reader_is_an_error_and_no_signal() {
    in_children(&ALL, |role| {
        // SAFETY: the default action is set.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let Some(mut engine) = engine(role, Options::new()) else {
            return;
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let writer = Handle::new(OwnedFd::from(writer)).unwrap();
        for _ in 0..3 {
            let done = one(&mut *engine, Write::stream(&writer, Box::new("lost")));
            assert_eq!(said(&done), Err(libc::EPIPE), "{role}");
            let done = one(
                &mut *engine,
                Writev::stream(&writer, vec![Box::new("lost")]),
            );
            assert_eq!(said(&done), Err(libc::EPIPE), "{role}");
        }
        // The reader is dropped while the write waits.
        let (reader, writer) = std::io::pipe().unwrap();
        let writer = Handle::new(OwnedFd::from(writer)).unwrap();
        let op = Write::stream(&writer, Box::new(vec![1u8; 1 << 20])).all();
        assert!(matches!(engine.submit(op.into()), Submit::Queued(_)));
        nothing_for_a_while(&mut *engine);
        drop(reader);
        let done = finish(&mut *engine, 1).remove(0);
        assert_eq!(said(&done), Err(libc::EPIPE), "{role}");
        assert_eq!(source_of(done).len(), 1 << 20, "the buffer is back");
    });
}
