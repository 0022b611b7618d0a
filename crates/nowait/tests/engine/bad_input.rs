//! Wrong descriptors, odd ranges, invalid flags, files that change during a read. The result is a typed
//! error that names operation and file, or the result of the plain system call. Nothing panics.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nowait::engine::{Engine, Options};
use nowait::op::{Fallocate, FallocateMode, Fsync, Read, Readv, Write, Writev};
use nowait::{Error, ErrorKind, File, Handle, Mode, OpenOptions, RwFlags, read, write};
use rustix::fs::OFlags;
use slowdisk::{Filesystem, TestMount, require};

use crate::common::cache::evict;
use crate::common::completions::{one, said};
use crate::common::drive::{each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle_rw, pipe};
use crate::common::results::{pieces_of, source_of};
use crate::common::shared_engine::each_shared;
use crate::common::truncation::cut_off_until;

fn options(engine: &Engine) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).engine(engine);
    options
}

fn open(path: &Path, flags: OFlags) -> OwnedFd {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
}

/// The errno of every method of a file, or nothing.
fn errnos(file: &File) -> [Option<i32>; 7] {
    let wait = |error: Option<Error>| error.map(|e| e.errno().unwrap_or_else(|| panic!("{e}")));
    [
        wait(
            pollster::block_on(file.read_at(Vec::with_capacity(10), 0))
                .result
                .err(),
        ),
        wait(file.blocking_read_at(&mut [0; 10], 0).err()),
        wait(
            pollster::block_on(file.write_at(vec![1; 10], 0))
                .result
                .err(),
        ),
        wait(file.blocking_write_at(&[1; 10], 0).err()),
        wait(pollster::block_on(file.sync_all()).err()),
        wait(file.blocking_sync_all().err()),
        wait(pollster::block_on(file.sync_data()).err()),
    ]
}

#[test]
fn methods_of_a_file_that_is_none_say_what_the_calls_say() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100);
        let (reader, writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (isdir, spipe, badf, inval) = (
            Some(libc::EISDIR),
            Some(libc::ESPIPE),
            Some(libc::EBADF),
            Some(libc::EINVAL),
        );
        let cases: [(&str, OwnedFd, [Option<i32>; 7]); 8] = [
            (
                "directory",
                open(dir.path(), OFlags::RDONLY),
                [isdir, isdir, badf, badf, None, None, None],
            ),
            (
                "pipe, reading",
                reader.into(),
                [spipe, spipe, spipe, spipe, inval, inval, inval],
            ),
            (
                "pipe, writing",
                writer.into(),
                [spipe, spipe, spipe, spipe, inval, inval, inval],
            ),
            (
                "socket",
                socket.into(),
                [spipe, spipe, spipe, spipe, inval, inval, inval],
            ),
            (
                "/dev/null",
                open(Path::new("/dev/null"), OFlags::RDWR),
                [None, None, None, None, inval, inval, inval],
            ),
            (
                "read-only",
                open(&path, OFlags::RDONLY),
                [None, None, badf, badf, None, None, None],
            ),
            (
                "write-only",
                open(&path, OFlags::WRONLY),
                [badf, badf, None, None, None, None, None],
            ),
            ("O_PATH", open(&path, OFlags::PATH), [badf; 7]),
        ];
        for (what, fd, want) in cases {
            let file = File::from_fd(fd, engine).unwrap();
            assert_eq!(errnos(&file), want, "{what} on {}", engine.backend());
            // Twice: the first call may change what is known about the file.
            assert_eq!(errnos(&file), want, "{what} on {}", engine.backend());
        }
    });
}

#[test]
fn errors_name_the_operation_and_the_file() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100);
        let at = path.display();
        let mut reads = OpenOptions::new();
        reads.read(true).engine(engine);
        let file = pollster::block_on(reads.open(&path)).unwrap();
        let text = |error: Error| error.to_string();

        let error = pollster::block_on(file.write_at(vec![1; 10], 0))
            .result
            .unwrap_err();
        assert_eq!(
            text(error),
            format!("write_at {at}: Bad file descriptor (os error 9)")
        );
        let error = pollster::block_on(file.write_all_at(vec![1; 10], 0))
            .result
            .unwrap_err();
        assert_eq!(
            text(error),
            format!("write_all_at {at}: Bad file descriptor (os error 9)")
        );
        let error = file.blocking_write_all_at(&[1; 10], 0).unwrap_err();
        assert_eq!(
            text(error),
            format!("write_all_at {at}: Bad file descriptor (os error 9)")
        );
        let error = pollster::block_on(file.read_exact_at(Vec::with_capacity(200), 50));
        let error = error.result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(error.path(), Some(&*path));
        let ends = "the file ends before the buffer is full";
        assert_eq!(text(error), format!("read_exact_at {at}: {ends}"));
        let error = file.blocking_read_exact_at(&mut [0; 200], 50).unwrap_err();
        assert_eq!(text(error), format!("read_exact_at {at}: {ends}"));
        let error = pollster::block_on(file.read_at(Vec::with_capacity(10), u64::MAX));
        let error = error.result.unwrap_err();
        assert_eq!(
            text(error),
            format!("read_at {at}: Invalid argument (os error 22)")
        );

        let none = dir.path().join("none");
        let missing = "No such file or directory (os error 2)";
        for error in [
            pollster::block_on(reads.open(&none)).unwrap_err(),
            reads.blocking_open(&none).unwrap_err(),
        ] {
            assert_eq!(error.path(), Some(&*none));
            assert_eq!(
                text(error.clone()),
                format!("open {}: {missing}", none.display())
            );
            // The conversion to `io::Error` keeps kind and message.
            let io = std::io::Error::from(error);
            assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
            assert!(io.to_string().contains(missing));
        }
        let odd = Path::new("with\0nul");
        for error in [
            pollster::block_on(reads.open(odd)).unwrap_err(),
            reads.blocking_open(odd).unwrap_err(),
        ] {
            assert_eq!(
                (error.operation(), error.errno()),
                ("open", Some(libc::EINVAL))
            );
        }
        // The error of a handle without a path names the operation.
        let mut shared = engine.clone();
        let done = one(&mut shared, Fsync::new(&pipe().0));
        assert_eq!(
            text(done.result.unwrap_err()),
            "fsync: Invalid argument (os error 22)"
        );
    });
}

#[test]
fn odd_ranges_are_refused_or_empty() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100);
        let file = options(engine).blocking_open(&path).unwrap();
        let most = i64::MAX as u64;
        for mode in [Mode::Eager, Mode::Strict] {
            let file = options(engine)
                .cache_mode(mode)
                .blocking_open(&path)
                .unwrap();
            for at in [most, most + 1, u64::MAX, most - 5] {
                let done = pollster::block_on(file.read_at(Vec::with_capacity(10), at));
                let error = done.result.unwrap_err();
                assert_eq!(
                    (error.operation(), error.errno()),
                    ("read_at", Some(libc::EINVAL))
                );
                assert_eq!(done.buf.capacity(), 10, "the buffer is back");
                assert!(file.blocking_read_at(&mut [0; 10], at).is_err());
                assert!(nowait::read::cached(&file, &mut [0; 10], at).is_err());
                let done = pollster::block_on(file.write_at(vec![1; 10], at));
                assert!(done.result.is_err());
                assert_eq!(done.buf.len(), 10, "the buffer is back");
                assert!(file.blocking_write_at(&[1; 10], at).is_err());
                assert!(read::with_flags(&file, &mut [0; 10], at, RwFlags::empty()).is_err());
                assert!(write::with_flags(&file, &[1; 10], at, RwFlags::empty()).is_err());
            }
            for (at, len) in [
                (100, 10),
                (101, 10),
                (1 << 40, 10),
                (0, 0),
                (100, 0),
                (1 << 40, 0),
            ] {
                let done = pollster::block_on(file.read_at(vec![0; len].into_boxed_slice(), at));
                assert_eq!(done.result.unwrap(), 0, "{len}@{at}");
                assert_eq!(file.blocking_read_at(&mut vec![0; len], at).unwrap(), 0);
            }
            let done = pollster::block_on(file.read_exact_at(Vec::new(), 1 << 40));
            assert_eq!(done.result.unwrap(), 0, "nothing is all that was asked for");
            assert_eq!(
                pollster::block_on(file.write_at(Vec::new(), 50))
                    .result
                    .unwrap(),
                0
            );
            assert_eq!(
                pollster::block_on(file.write_all_at(Vec::new(), 50))
                    .result
                    .unwrap(),
                0
            );
        }
        assert_eq!(file.len().unwrap(), 100);
        assert_eq!(std::fs::read(&path).unwrap(), pattern(0, 100));
    });
}

#[test]
fn lists_may_be_of_any_length() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 5000);
        let open = handle_rw(&path);
        for n in [0, 1, 1024, 1025, 2048, 2500, 6000] {
            let what = format!("{}: {n} buffers", name(engine));
            for cold in [false, true] {
                if cold {
                    evict(&path);
                }
                // Each second buffer is empty.
                let rooms = |i| Box::new(vec![0u8; 2 * (i % 2)]) as _;
                let read = Readv::new(&open, (0..2 * n).map(rooms).collect(), 7);
                let done = one(engine, read);
                let got = (2 * n).min(5000 - 7);
                assert_eq!(said(&done), Ok(got), "{what}");
                let pieces = pieces_of(done);
                assert_eq!(pieces.len(), 2 * n, "{what}: the buffers are back");
                assert!(pieces.concat()[..got] == pattern(7, got), "{what}");
            }
            let bytes = |i| Box::new(pattern(i as u64 * 3, 3)) as _;
            let write = Writev::new(&open, (0..n).map(bytes).collect(), 10_000);
            assert_eq!(said(&one(engine, write)), Ok(3 * n), "{what}");
            let written = std::fs::read(&path).unwrap();
            assert!(written[..5000] == pattern(0, 5000), "{what}");
            if n > 0 {
                assert!(written[10_000..] == pattern(0, 3 * n), "{what}");
            }
            std::fs::File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.set_len(5000))
                .unwrap();
        }
    });
}

#[test]
fn long_lists_of_a_stream_follow_the_position() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = dir.path().join("file");
        let file = std::fs::File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path);
        let open = nowait::Handle::new(file.unwrap()).unwrap();
        let bytes = |i: u64| Box::new(pattern(i * 2, 2)) as _;
        for round in 1..3 {
            let write = Writev::stream(&open, (0..3000).map(bytes).collect());
            assert_eq!(said(&one(engine, write)), Ok(6000), "{}", name(engine));
            let written = std::fs::read(&path).unwrap();
            assert!(written == pattern(0, 6000).repeat(round));
        }
        // A read makes one call.
        rustix::fs::seek(&open, rustix::fs::SeekFrom::Start(0)).unwrap();
        for at in [0, 1024] {
            let rooms = (0..1500).map(|_| Box::new(vec![0u8; 1]) as _);
            let done = one(engine, Readv::stream(&open, rooms.collect()));
            assert_eq!(said(&done), Ok(1024));
            assert!(pieces_of(done).concat()[..1024] == pattern(at, 1024));
        }
        // A pipe that is full ends a write that does not wait: the bytes of the first calls count.
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let pipe = nowait::Handle::new(OwnedFd::from(writer)).unwrap();
        let page = vec![b'x'; 4096];
        let sources = (0..2000).map(|_| Box::new(page.clone()) as _);
        let done = one(engine, Writev::stream(&pipe, sources.collect()));
        let n = said(&done).unwrap();
        assert!((4096..2000 * 4096).contains(&n), "{n}");
        let mut piped = vec![0; 2000 * 4096];
        assert_eq!(rustix::io::read(&reader, &mut piped).unwrap(), n);
    });
}

#[test]
fn a_file_truncated_while_it_is_read_gives_its_bytes_or_its_end() {
    each_shared(Options::new().depth(8), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1 << 20);
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| cut_off_until(&path, 1 << 20, &over));
            for mode in [Mode::Eager, Mode::Strict] {
                let file = options(engine)
                    .cache_mode(mode)
                    .blocking_open(&path)
                    .unwrap();
                for i in 0..400u64 {
                    let (at, len) = ((i * 7919) % (1 << 20), [100, 5000, 300_000][i as usize % 3]);
                    let done = pollster::block_on(file.read_at(Vec::with_capacity(len), at));
                    let n = done.result.unwrap();
                    assert_eq!(done.buf.len(), n);
                    let want = pattern(at, n);
                    // A page that is being truncated may already be zeros.
                    let odd = done
                        .buf
                        .iter()
                        .zip(&want)
                        .filter(|(a, b)| a != b && **a != 0);
                    assert_eq!(odd.count(), 0, "read {i}: {n} of {len}@{at}");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_file_that_is_replaced_stays_the_one_that_was_opened() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100_000);
        let file = options(engine)
            .cache_mode(Mode::Strict)
            .blocking_open(&path)
            .unwrap();
        let old = std::fs::File::open(&path).unwrap();
        let new = dir.path().join("new");
        std::fs::write(&new, vec![0xee; 50]).unwrap();
        std::fs::rename(&new, &path).unwrap();
        for cold in [false, true] {
            if cold {
                slowdisk::evict(&old).unwrap();
            }
            let done = pollster::block_on(file.read_at(Vec::with_capacity(100_000), 0));
            assert!(done.buf == pattern(0, 100_000));
        }
        std::fs::remove_file(&path).unwrap();
        pollster::block_on(file.write_all_at("more", 100_000))
            .result
            .unwrap();
        assert_eq!(file.len().unwrap(), 100_004);
        assert!(!path.exists());
    });
}

#[test]
fn a_full_disk_says_so() {
    let tmpfs = TestMount::builder(Filesystem::Tmpfs).size(64 << 10).build();
    let tmpfs = require!(tmpfs);
    each(Options::new(), |engine| {
        let path = tmpfs.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let open = handle_rw(&path);
        let write = |len, at| Write::new(&open, Box::new(vec![1u8; len]), at);
        // The write fills the filesystem, then it fails.
        let done = one(engine, write(1 << 20, 0));
        let took = said(&done).unwrap();
        assert!(
            (4096..=64 << 10).contains(&took),
            "{}: {took}",
            name(engine)
        );
        assert_eq!(
            said(&one(engine, write(100_000, took as u64))),
            Err(libc::ENOSPC)
        );
        let done = one(engine, write(1 << 20, 0).all());
        assert_eq!(
            said(&done),
            Err(libc::ENOSPC),
            "{}: all or an error",
            name(engine)
        );
        assert_eq!(source_of(done).len(), 1 << 20, "the bytes are back");
        let grow = Fallocate::new(&open, FallocateMode::empty(), 0, 1 << 20);
        assert_eq!(
            said(&one(engine, grow)),
            Err(libc::ENOSPC),
            "{}",
            name(engine)
        );
        std::fs::remove_file(&path).unwrap();
    });
    each_shared(Options::new(), |engine| {
        let path = tmpfs.path().join("file");
        let file = options(engine)
            .write(true)
            .create(true)
            .blocking_open(&path)
            .unwrap();
        let done = pollster::block_on(file.write_all_at(vec![1; 1 << 20], 0));
        let error = done.result.unwrap_err();
        let want = format!(
            "write_all_at {}: No space left on device (os error 28)",
            path.display()
        );
        assert_eq!((error.to_string(), done.buf.len()), (want, 1 << 20));
        std::fs::remove_file(&path).unwrap();
    });
}

/// Each flag on reads and writes is honoured, or refused with a typed error.
fn every_flag(engine: &Engine, dir: &Path, what: &str) {
    let path = patterned(dir, "flags", 10_000);
    let file = options(engine).blocking_open(&path).unwrap();
    let mut drive = engine.clone();
    let refused = |error: &Error, flag| match (error.kind(), error.errno()) {
        (ErrorKind::Unsupported, Some(libc::EOPNOTSUPP)) => {}
        (ErrorKind::Io(_), Some(libc::EINVAL | libc::EAGAIN)) => {}
        other => panic!("{what}: {flag:?}: {other:?}: {error}"),
    };
    for flag in RwFlags::all()
        .iter()
        .chain([RwFlags::empty(), RwFlags::all()])
    {
        let mut buf = vec![0; 4096];
        let plain = read::with_flags(&file, &mut buf, 100, flag);
        match &plain {
            Ok(n) => assert_eq!(buf[..*n], pattern(100, *n), "{what}: {flag:?}"),
            Err(error) => {
                assert_eq!(error.operation(), "preadv2");
                refused(error, flag);
            }
        }
        // The engine returns what the call returns, except for "try again".
        let same = |told: Result<usize, i32>, plain: &nowait::Result<usize>| {
            let plain = plain.as_ref().map(|n| *n).map_err(|e| e.errno().unwrap());
            let now = [told, plain].iter().all(|r| *r != Err(libc::EAGAIN));
            assert!(
                told == plain || !now,
                "{what}: {flag:?}: {told:?}, the call: {plain:?}"
            );
        };
        let op = Read::new(
            file.handle(),
            Box::new(vec![0u8; 4096].into_boxed_slice()),
            100,
        );
        same(said(&one(&mut drive, op.flags(flag))), &plain);
        let done = pollster::block_on(file.read_at(Vec::with_capacity(4096), 100).flags(flag));
        match &done.result {
            Ok(n) => assert_eq!(done.buf, pattern(100, *n), "{what}: {flag:?}"),
            Err(error) => refused(error, flag),
        }

        // The bytes that the file already has.
        let bytes = pattern(4096, 4096);
        let plain = write::with_flags(&file, &bytes, 4096, flag);
        if let Err(error) = &plain {
            assert_eq!(error.operation(), "pwritev2");
            refused(error, flag);
        }
        let op = Write::new(file.handle(), Box::new(bytes.clone()), 4096).flags(flag);
        same(said(&one(&mut drive, op)), &plain);
        let done = pollster::block_on(file.write_at(bytes.clone(), 4096).flags(flag));
        if let Err(error) = &done.result {
            refused(error, flag);
        }
        assert_eq!(done.buf, bytes, "the buffer is back");
        let appended = flag.contains(RwFlags::APPEND);
        assert!(
            appended || file.len().unwrap() == 10_000,
            "{what}: {flag:?}"
        );
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(10_000).unwrap();
    }
    assert!(
        std::fs::read(&path).unwrap() == pattern(0, 10_000),
        "{what}"
    );
}

#[test]
fn each_flag_works_or_is_refused_with_a_type() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        every_flag(engine, dir.path(), "the build's filesystem");
    });
}

#[test]
fn each_flag_works_or_is_refused_on_tmpfs() {
    let tmpfs = require!(TestMount::builder(Filesystem::Tmpfs).size(16 << 20).build());
    each_shared(Options::new(), |engine| {
        every_flag(engine, tmpfs.path(), "tmpfs")
    });
}

#[test]
fn options_out_of_range_are_refused() {
    for options in [
        Options::new().depth(0),
        Options::new().depth(32_769),
        Options::new().depth(usize::MAX),
        Options::new().workers(0),
        Options::new().workers(4097),
    ] {
        for error in [
            options.build().unwrap_err(),
            options.build_local().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with("engine options: "), "{error}");
        }
    }
    each(Options::new().depth(32_768).workers(4096), |engine| {
        assert_eq!(engine.depth(), 32_768);
        one(engine, nowait::op::Nop);
    });
}

#[test]
fn a_handle_of_any_descriptor_can_be_made() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 10);
    for (fd, regular, seekable) in [
        (open(&path, OFlags::RDONLY), true, true),
        (open(dir.path(), OFlags::RDONLY), false, true),
        (open(&path, OFlags::PATH), true, true),
        (open(Path::new("/dev/null"), OFlags::RDWR), false, true),
        (std::io::pipe().unwrap().0.into(), false, false),
        (
            std::os::unix::net::UnixDatagram::unbound().unwrap().into(),
            false,
            false,
        ),
    ] {
        let made = Handle::new(fd).unwrap();
        assert_eq!((made.is_regular(), made.is_seekable()), (regular, seekable));
    }
}
