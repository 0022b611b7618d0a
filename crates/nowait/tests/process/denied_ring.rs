//! Children with a seccomp filter that denies io_uring, preadv2(2) or cachestat(2). Everything still works,
//! and the engine reports what it does without.

use std::path::Path;
use std::time::{Duration, Instant};

use nowait::engine::{Backend, Engine, Options, Submit, Wait};
use nowait::op::{Fsync, Nop, Op, Read, Readv};
use nowait::read::{Cached, cached, cached_by_nowait};
use nowait::residency::{Answer, Reason, Source, page_map, page_size, residency};
use nowait::support::{Kernel, Support};
use nowait::{ErrorKind, File, Mode, OpenOptions, RwFlags, ServedBy};
use test_support::pages::Locked;
use test_support::{Excuse, repeat};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::completions::{finish, one};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::handles::{handle, pipe};
use crate::common::old_container::{CACHESTAT, OLD_CONTAINER};
use crate::common::results::{bytes_of, pieces_of};
use crate::common::sandbox::{NUMBER, deny, filter, load, refuse, sandboxed, unless};
use crate::common::wait::LONG;

/// The offset of the arguments in `struct seccomp_data`.
const ARGUMENTS: u32 = 16;

/// As [`deny`], but only for calls with this value in the lower 32 bits of an argument.
fn deny_with(call: libc::c_long, argument: u32, value: u32, errno: i32) {
    filter(vec![
        load(NUMBER),
        unless(call as u32, 3),
        load(ARGUMENTS + 8 * argument),
        unless(value, 1),
        refuse(errno),
    ]);
}

const SIZE: usize = 100_000;

/// Checks reads of every kind, cached and not cached.
fn reads_are_right(engine: &Engine, path: &Path, mode: Mode) {
    let mut options = OpenOptions::new();
    options.read(true).engine(engine).cache_mode(mode);
    let file = pollster::block_on(options.open(path)).unwrap();
    for cold in [false, true, false] {
        for (at, len) in [
            (0, 100),
            (4096, 4096),
            (0, SIZE),
            (SIZE - 10, 100),
            (SIZE, 5),
            (50_000, SIZE),
        ] {
            if cold {
                evict(path);
            }
            let want = len.min(SIZE - at);
            let future = file.read_at(Vec::with_capacity(len), at as u64);
            let (n, buf) = pollster::block_on(future).into_result().unwrap();
            assert!(
                (n, &buf) == (want, &pattern(at as u64, want)),
                "{mode:?} {len}@{at}"
            );
            let mut shared = engine.clone();
            let op = Read::new(file.handle(), Box::new(vec![0u8; len]), at as u64);
            assert!(bytes_of(one(&mut shared, op)) == pattern(at as u64, want));
            let half = |len: usize| Box::new(vec![0u8; len]) as nowait::buffer::Buffer;
            let pieces = vec![half(len / 2), half(len - len / 2)];
            let done = one(&mut shared, Readv::new(file.handle(), pieces, at as u64));
            assert!(pieces_of(done).concat() == pattern(at as u64, want));
        }
    }
}

fn both_modes(engine: &Engine, path: &Path) {
    reads_are_right(engine, path, Mode::Eager);
    reads_are_right(engine, path, Mode::Strict);
}

#[test]
fn without_a_ring_there_are_threads_and_the_reason() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        deny(&[libc::SYS_io_uring_setup], errno);
        let reason = std::io::Error::from_raw_os_error(errno).to_string();
        let engine = Engine::new().unwrap();
        assert_eq!(engine.backend(), Backend::Threads);
        let why = engine.why();
        assert!(why.contains("io_uring") && why.contains(&reason), "{why}");
        both_modes(&engine, &path);

        let mut local = Options::new().build_local().unwrap();
        assert_eq!(local.backend(), Backend::Threads);
        assert!(local.why().contains(&reason), "{}", local.why());
        let done = one(
            &mut local,
            Read::new(&handle(&path), Box::new(vec![0u8; 10]), 5),
        );
        assert_eq!(bytes_of(done), pattern(5, 10));

        // If the ring is demanded, the engine is refused with the reason.
        let insisted = Options::new().backend(Backend::Uring);
        for error in [
            insisted.build().unwrap_err(),
            insisted.build_local().unwrap_err(),
        ] {
            assert_eq!(
                (error.operation(), error.errno()),
                ("io_uring_setup", Some(errno))
            );
        }
        assert_eq!(Kernel::get().io_uring, Support::No(errno));
        assert_eq!(Kernel::probe().io_uring, Support::No(errno));
        // The process's engine falls back in the same way.
        let file = File::blocking_open(&path).unwrap();
        assert_eq!(file.engine().backend(), Backend::Threads);
    });
}

#[test]
fn a_ring_that_is_denied_later_gives_way_to_threads() {
    sandboxed(|errno| {
        if backends().len() < 2 {
            return;
        }
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let engine = Options::new().backend(Backend::Uring).build().unwrap();
        let mut local = Options::new()
            .backend(Backend::Uring)
            .build_local()
            .unwrap();
        both_modes(&engine, &path);
        one(&mut local, Nop);
        deny(&[libc::SYS_io_uring_enter], errno);
        both_modes(&engine, &path);
        let open = handle(&path);
        for at in 0..50 {
            let mut ops: Vec<Op> = (0..4)
                .map(|i| Read::new(&open, Box::new(vec![0u8; 9000]), at * 1000 + i).into())
                .collect();
            assert_eq!(local.submit_batch(&mut ops), 4);
            assert_eq!(finish(&mut local, 4).len(), 4);
        }
        drop((engine, local));
    });
}

#[test]
fn what_a_ring_took_before_it_was_denied_is_not_done_again() {
    sandboxed(|errno| {
        if backends().len() < 2 {
            return;
        }
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let file = handle(&path);
        let mut engine = Options::new()
            .backend(Backend::Uring)
            .build_local()
            .unwrap();
        let (reader, writer) = pipe();
        let taken = Op::from(Read::stream(&reader, Box::new(vec![0u8; 1])));
        engine.submit_batch(&mut vec![taken]);
        const TO_SUBMIT: u32 = 1;
        deny_with(libc::SYS_io_uring_enter, TO_SUBMIT, 1, errno);
        engine.submit_batch(&mut vec![Op::from(Fsync::new(&file))]);
        let done = finish(&mut engine, 1).remove(0);
        assert_eq!(done.provenance.served_by, ServedBy::Worker, "{done:?}");
        assert_eq!(done.result.unwrap(), 0);
        assert_eq!(engine.in_flight(), 1, "the ring has the other");
        rustix::io::write(&writer, b"ab").unwrap();
        assert_eq!(bytes_of(finish(&mut engine, 1).remove(0)), b"a");
        assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), 1);
    });
}

#[test]
fn a_ring_that_has_no_memory_gives_way_to_threads() {
    sandboxed(|errno| {
        if backends().len() < 2 {
            return;
        }
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let options = Options::new().backend(Backend::Uring);
        let engine = options.build().unwrap();
        let mut local = options.build_local().unwrap();
        one(&mut local, Nop);
        both_modes(&engine, &path);
        let none = match errno {
            libc::EPERM => libc::EAGAIN,
            _ => libc::ENOMEM,
        };
        deny(&[libc::SYS_io_uring_enter], none);
        both_modes(&engine, &path);
        let done = one(
            &mut local,
            Read::new(&handle(&path), Box::new(vec![0u8; 10]), 5),
        );
        assert_eq!(bytes_of(done), pattern(5, 10));
    });
}

#[test]
fn what_a_full_ring_with_a_thread_had_no_room_for_is_done_by_workers() {
    sandboxed(|errno| {
        // Twice as many operations as the queue has entries.
        const DEPTH: usize = 8192;
        let options = Options::new().depth(DEPTH).backend(Backend::Uring);
        let Ok(mut engine) = options.sqpoll(Duration::from_millis(1)).build_local() else {
            return;
        };
        one(&mut engine, Nop);
        // After this time the kernel thread sleeps.
        std::thread::sleep(Duration::from_millis(200));
        deny(&[libc::SYS_io_uring_enter], errno);
        let nop = |token| Op::from(Nop).user_data(token);
        let mut ops: Vec<Op> = (0..DEPTH as u64).map(nop).collect();
        assert_eq!(engine.submit_batch(&mut ops), DEPTH);
        // The kernel thread may take the queued entries at any time. All others are done, each once.
        let (mut done, end) = (Vec::new(), Instant::now() + LONG);
        while done.len() < DEPTH / 2 {
            let wait = Wait::UpTo(Duration::from_secs(1));
            engine.reap(&mut done, wait).unwrap();
            assert!(Instant::now() < end, "{} of {DEPTH}", done.len());
        }
        let mut tokens: Vec<u64> = done.iter().map(|done| done.op.get_user_data()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), done.len());
        std::mem::forget(engine);
    });
}

#[test]
fn without_preadv2_reads_are_right() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        deny(&[libc::SYS_preadv2], errno);
        assert_eq!(Kernel::get().preadv2, Support::No(errno));
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            both_modes(&engine, &path);
        }
        // If cached reads are requested explicitly, the refusal is reported.
        let file = std::fs::File::open(&path).unwrap();
        match cached_by_nowait(&file, &mut [0; 10], 0).unwrap() {
            Cached::Unsupported(error) => assert_eq!(error.errno(), Some(errno)),
            other => panic!("{other:?}"),
        }
        // The file was just written, and its residency is known.
        let mut buffer = [0; 10];
        let said = cached(&file, &mut buffer, 7).unwrap();
        assert!(matches!(said, Cached::All(10)), "{said:?}");
        assert_eq!(buffer[..], pattern(7, 10));
        let error = nowait::read::with_flags(&file, &mut [0; 10], 0, RwFlags::HIPRI).unwrap_err();
        assert_eq!((error.operation(), error.errno()), ("preadv2", Some(errno)));
        if errno == libc::ENOSYS {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    });
}

#[test]
fn without_pwritev2_writes_are_right() {
    sandboxed(|errno| {
        let dir = scratch();
        deny(&[libc::SYS_pwritev2], errno);
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            let path = dir.path().join(backend.name());
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).engine(&engine);
            let file = options.blocking_open(&path).unwrap();
            pollster::block_on(async {
                file.write_all_at(pattern(0, SIZE), 0)
                    .await
                    .into_result()
                    .unwrap();
                file.write_all_at("tail", SIZE as u64)
                    .await
                    .into_result()
                    .unwrap();
                file.sync_data().await.unwrap();
            });
            assert!(std::fs::read(&path).unwrap() == [&pattern(0, SIZE)[..], b"tail"].concat());
        }
    });
}

#[test]
fn without_cachestat_strict_reads_are_right_and_still_find_the_cache() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        deny(&[CACHESTAT], errno);
        assert!(!Kernel::get().cachestat.is_yes());
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            both_modes(&engine, &path);
            // mincore(2) reports the pages of an own file, too.
            std::fs::read(&path).unwrap();
            let mut options = OpenOptions::new();
            options.read(true).engine(&engine).cache_mode(Mode::Strict);
            let file = options.blocking_open(&path).unwrap();
            let before = engine.stats();
            for i in 0..20 {
                let done = pollster::block_on(file.read_at(Vec::with_capacity(4096), i * 4096));
                assert_eq!(done.buf, pattern(i * 4096, 4096));
            }
            assert_eq!(
                engine.stats().hits - before.hits,
                20,
                "{:?}",
                engine.stats()
            );
        }
    });
}

#[test]
fn without_cachestat_and_mincore_strict_reads_are_right() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        deny(&[CACHESTAT, libc::SYS_mincore], errno);
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            reads_are_right(&engine, &path, Mode::Strict);
        }
    });
}

/// A file of which every other page is cached.
struct EveryOther {
    file: std::fs::File,
    _locked: Locked,
    _dir: tempfile::TempDir,
}

impl EveryOther {
    const PAGES: u64 = 2048;

    fn new() -> EveryOther {
        let (page, dir) = (page_size(), scratch());
        let path = patterned(dir.path(), "file", (Self::PAGES * page) as usize);
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        evict(&path);
        let pages = || (1..Self::PAGES).step_by(2).map(|p| p * page);
        for at in pages() {
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0], at).unwrap();
        }
        // The kernel may reclaim pages that are not locked.
        let _locked = Locked::new(&path, pages().map(|at| at..at + page));
        EveryOther {
            file,
            _locked,
            _dir: dir,
        }
    }

    /// The system call that reported the right pages.
    fn told_by(&self) -> Source {
        let Answer::Known { value, source } = page_map(&self.file, 0..u64::MAX).unwrap() else {
            panic!("unknown");
        };
        let sum = residency(&self.file, 0..u64::MAX).unwrap().known().unwrap();
        assert_eq!(sum.dirty.is_some(), source == Source::Cachestat);
        let seen = (0..Self::PAGES).filter(|p| value.is_resident(p * page_size()));
        assert!(seen.eq((1..Self::PAGES).step_by(2)));
        assert_eq!((sum.pages, sum.cached), (Self::PAGES, Self::PAGES / 2));
        source
    }
}

#[test]
fn without_cachestat_mincore_tells_of_a_fragmented_cache() {
    sandboxed(|errno| {
        let file = EveryOther::new();
        file.told_by();
        deny(&[CACHESTAT], errno);
        assert_eq!(file.told_by(), Source::Mincore);
    });
}

#[test]
fn without_mincore_cachestat_tells_of_a_fragmented_cache() {
    sandboxed(|errno| {
        let file = EveryOther::new();
        deny(&[libc::SYS_mincore], errno);
        if Kernel::get().cachestat.is_yes() {
            assert_eq!(file.told_by(), Source::Cachestat);
        }
        // Without both calls the answer is unknown.
        deny(&[CACHESTAT], errno);
        let Answer::Unknown(reason) = residency(&file.file, 0..u64::MAX).unwrap() else {
            panic!("known");
        };
        assert_eq!(reason, Reason::NoCall(errno));
        assert!(reason.to_string().contains("sandbox"), "{reason}");
    });
}

#[test]
fn without_openat2_files_are_opened() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        deny(&[libc::SYS_openat2], errno);
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            let open = |path| {
                let mut options = OpenOptions::new();
                options.read(true).engine(&engine);
                pollster::block_on(options.open(path))
            };
            assert_eq!(open(path.clone()).unwrap().len().unwrap(), SIZE as u64);
            let error = open(dir.path().join("none")).unwrap_err();
            assert_eq!(error.errno(), Some(libc::ENOENT));
        }
    });
}

#[test]
fn as_in_an_old_container() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        deny(&OLD_CONTAINER, errno);
        let engine = Engine::new().unwrap();
        both_modes(&engine, &path);
        let op = Read::new(&handle(&path), Box::new(vec![0u8; 10]), 0);
        match engine.submit(op.into()) {
            Submit::Queued(_) => assert_eq!(engine.reap(&mut Vec::new(), Wait::For(1)).unwrap(), 1),
            other => panic!("no source of residency is left: {other:?}"),
        }
    });
}

/// Kernels have had the fault that NOWAIT reads of resident pages fail.
#[test]
fn nowait_that_stops_working_is_noticed() {
    const NOWAIT: u32 = RwFlags::NOWAIT.bits();
    const READS: usize = 1_000;
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let files = backends().into_iter().map(|backend| {
            let engine = Options::new().backend(backend).build().unwrap();
            let mut options = OpenOptions::new();
            options
                .read(true)
                .engine(&engine)
                .blocking_open(&path)
                .unwrap()
        });
        let files: Vec<File> = files.collect();
        let read = |file: &File, number: usize| {
            let at = number as u64 * 4096 % 90_000;
            let done = pollster::block_on(file.read_at(vec![0; 4096], at));
            let caller = done.provenance.served_by == ServedBy::Caller;
            assert_eq!(done.into_result().unwrap().1, pattern(at, 4096));
            caller
        };
        let stopped = |file: &File| file.engine().stats().stopped;
        // A try that was preempted looks like one that waited for the device: others are avoided for a second.
        let preempted = [Excuse::Preempted];
        let are_hits = |file: &File| {
            repeat("hits", &preempted, || {
                match (0..READS).find(|number| !read(file, *number) && *number >= READS / 2) {
                    Some(missed) => Err(missed),
                    None => Ok(()),
                }
            });
        };
        for file in &files {
            // Reads that are not cached are no reason, nor are hits.
            for number in 0..READS {
                evict(&path);
                read(file, number);
            }
            are_hits(file);
            assert_eq!(stopped(file), 0);
        }
        deny_with(libc::SYS_preadv2, 5, NOWAIT, libc::EAGAIN);
        for file in &files {
            repeat("misses", &preempted, || {
                (0..READS).for_each(|number| {
                    read(file, number);
                });
                match stopped(file) {
                    0 => Err("it is not noticed"),
                    _ => Ok(()),
                }
            });
            assert_eq!(stopped(file), 1);
            // The file's history counts hits from then on.
            are_hits(file);
            assert_eq!(stopped(file), 1);
        }
    });
}
