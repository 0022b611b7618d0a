//! Each system call of the library fails with each errno, always or once, in a forked child. Nothing hangs,
//! nothing is lost, and an operation that is reported as done was done.
#![allow(unsafe_code, reason = "fork(2), poll(2)")]

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nowait::StatxMask;
use nowait::buffer::{BufferPool, PoolBuffer, downcast};
use nowait::engine::{Backend, Engine, Options, Submit, Wait};
use nowait::op::{
    Advice, Fadvise, Fallocate, FallocateMode, Fsync, Nop, Op, Openat2, Read, Readv, Statx,
    SyncFileRange, SyncRange, Write, Writev,
};
use nowait::residency::{Probe, Source};
use nowait::scan::Xattrs;
use nowait::{Completion, File, Handle, Mode, RwFlags};
use rustix::fs::OFlags;

use crate::common::by_workers::found;
use crate::common::children::alone;
use crate::common::drive::Drive;
use crate::common::errnos::OF_FILES;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::results::{bytes_of, pieces_of};
use crate::common::wait::wait_until;
use crate::failing::{Case, Page, When, Which, failing};

const LEN: usize = 20_000;
/// The length of each write.
const PIECE: usize = 3_000;
/// The `user_data` of the read into a buffer of a pool.
const POOLED: u64 = 98;

/// Files and names to work on.
struct Ground {
    dir: tempfile::TempDir,
    file: PathBuf,
    /// The file that is written to.
    out: PathBuf,
    names: BTreeSet<OsString>,
}

impl Ground {
    fn new() -> Ground {
        let dir = scratch();
        let file = patterned(dir.path(), "file", LEN);
        let out = patterned(dir.path(), "out", 0);
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        let names: BTreeSet<OsString> = (0..20).map(|i| i.to_string().into()).collect();
        for name in &names {
            std::fs::write(dir.path().join("dir").join(name), "").unwrap();
        }
        Ground {
            dir,
            file,
            out,
            names,
        }
    }

    fn all(&self, case: Case, page: &Page) {
        let before = descriptors();
        for options in [Options::new(), Options::new().backend(Backend::Threads)] {
            let mut options = options.depth(32).workers(3);
            let pool = BufferPool::new(2, LEN).ok();
            if let Some(pool) = &pool {
                options = options.buffers(pool);
            }
            page.stage.fetch_add(1, Ordering::SeqCst);
            if let Ok(mut engine) = options.build() {
                self.futures(&engine, page);
                self.operations(&mut engine, pool.as_ref(), page);
                self.scan(&engine, case, page);
            }
            page.stage.fetch_add(1, Ordering::SeqCst);
            if let Ok(mut engine) = options.build_local() {
                self.operations(&mut engine, pool.as_ref(), page);
            }
            assert!(
                pool.is_none_or(|pool| pool.free() == 2),
                "each buffer comes back"
            );
        }
        page.stage.store(100, Ordering::SeqCst);
        // Its threads may still be ending.
        if case.call != libc::SYS_close {
            wait_until("every descriptor is closed", || descriptors() == before);
        }
    }

    fn futures(&self, engine: &Engine, page: &Page) {
        page.stage.fetch_add(100, Ordering::SeqCst);
        let open = nowait::OpenOptions::new()
            .read(true)
            .engine(engine)
            .open(&self.file);
        if let Ok(file) = pollster::block_on(open) {
            for (at, len) in [(0, LEN), (777, 9_000), (LEN - 10, 20)] {
                let done = pollster::block_on(file.read_at(Vec::with_capacity(len), at as u64));
                right(done.result, &done.buf, at, len);
                let mut buf = vec![0; len];
                let read = file.blocking_read_at(&mut buf[..], at as u64);
                right(read, &buf, at, len);
            }
            let _ = (file.residency().is_resident(0, 4096), file.len());
        }
        if let Some(file) = descriptor(&self.file, OFlags::RDONLY)
            && let Ok(probe) = Probe::only(Source::Mincore, &file)
        {
            let _ = (probe.is_resident(0, 4096), probe.page_map(0..u64::MAX));
        }
        if let Some(file) = descriptor(&self.file, OFlags::RDONLY)
            && let Ok(handle) = Handle::with_mode(file, Mode::Strict)
        {
            let file = File::from_handle(&handle, engine);
            let done = pollster::block_on(file.read_at(Vec::with_capacity(5_000), 100));
            right(done.result, &done.buf, 100, 5_000);
        }
        let out = descriptor(&self.out, OFlags::WRONLY);
        if let Some(out) = out.and_then(|out| File::from_fd(out, engine).ok()) {
            let write = |at: usize| (pattern(at as u64, PIECE), at as u64);
            let (bytes, at) = write(0);
            let done = pollster::block_on(out.write_all_at(bytes, at));
            wrote(page, 0, done.result);
            let (bytes, at) = write(PIECE);
            let done = pollster::block_on(out.write_at(bytes, at));
            wrote(page, 1, done.result);
            let _ = pollster::block_on(out.sync_all());
        }
    }

    /// Each operation, in a batch and by itself.
    fn operations(&self, engine: &mut dyn Drive, pool: Option<&BufferPool>, page: &Page) {
        page.stage.fetch_add(100, Ordering::SeqCst);
        let open = |write: bool| {
            let path = if write { &self.out } else { &self.file };
            let file = std::fs::File::options()
                .read(!write)
                .write(write)
                .open(path);
            Handle::new(file.ok()?).ok()
        };
        let (Some(file), Some(out)) = (open(false), open(true)) else {
            return;
        };
        let path = CString::new(self.file.as_os_str().as_bytes()).unwrap();
        let read = |at: usize, len: usize| Read::new(&file, Box::new(vec![0u8; len]), at as u64);
        let write = |at: usize| Write::new(&out, Box::new(pattern(at as u64, PIECE)), at as u64);
        let keep = FallocateMode::KEEP_SIZE;
        let pieces = vec![
            Box::new(vec![0u8; 100]) as nowait::buffer::Buffer,
            Box::new(vec![0u8; 200]),
        ];
        let mut ops: Vec<Op> = vec![
            read(0, LEN).into(),
            read(LEN - 5, 10).into(),
            read(4_000, 4_000).flags(RwFlags::HIPRI).into(),
            Read::stream(&file, Box::new(vec![0u8; 16])).into(),
            Readv::new(&file, pieces, 0).into(),
            write(2 * PIECE).all().into(),
            write(3 * PIECE).flags(RwFlags::DSYNC).into(),
            Writev::new(
                &out,
                vec![Box::new(pattern(4 * PIECE as u64, PIECE))],
                4 * PIECE as u64,
            )
            .into(),
            Fsync::new(&out).into(),
            SyncFileRange::new(&out, 0, 0, SyncRange::all()).into(),
            Fallocate::new(&out, keep, 0, 50_000).into(),
            Fadvise::new(&file, 0, 4096, Advice::WillNeed).into(),
            Statx::of(&file, StatxMask::BASIC_STATS).into(),
            Statx::new(path.clone(), 0, StatxMask::SIZE).into(),
            Openat2::new(path.clone(), libc::O_RDONLY, 0).into(),
            Openat2::new(path, libc::O_RDONLY | libc::O_NONBLOCK, 0).into(),
            Op::from(Nop).deadline(Instant::now() + Duration::from_secs(60)),
        ];
        for (i, op) in ops.iter_mut().enumerate() {
            *op = std::mem::replace(op, Nop.into()).user_data(i as u64);
        }
        if let Some(buffer) = pool.and_then(BufferPool::take) {
            let read = Read::new(&file, Box::new(buffer), 0);
            ops.push(Op::from(read).user_data(POOLED));
        }
        let mut done = Vec::new();
        let taken = engine.submit_batch(&mut ops);
        assert!(ops.is_empty());
        // One by one, with a cancel.
        let mut more = 0;
        let last = Op::from(read(8_000, 1_000).flags(RwFlags::HIPRI)).user_data(99);
        match engine.submit(last) {
            Submit::Done(_) => {}
            Submit::Queued(ticket) => {
                engine.cancel(ticket);
                more += 1;
            }
            Submit::Full(op) => panic!("full: {op:?}"),
        }
        page.stage.fetch_add(1000, Ordering::SeqCst);
        while done.len() < taken + more {
            engine.reap(&mut done, Wait::For(1)).unwrap();
        }
        assert_eq!(engine.in_flight(), 0, "each comes once");
        page.stage.fetch_add(1000, Ordering::SeqCst);
        for done in done {
            judge(done, page);
        }
    }

    fn scan(&self, engine: &Engine, case: Case, page: &Page) {
        page.stage.fetch_add(100, Ordering::SeqCst);
        let dir = self.dir.path().join("dir");
        for caller in [true, false] {
            let options = nowait::scan::Options::new().engine(engine);
            let options = options
                .metadata(StatxMask::BASIC_STATS)
                .xattrs(Xattrs::Values);
            let Ok(mut scan) = options.blocking_open(&dir) else {
                continue;
            };
            let mut names = BTreeSet::new();
            let mut whole = true;
            for entry in found(&mut scan, caller) {
                match entry {
                    Ok(entry) => assert!(names.insert(entry.file_name().to_owned()), "twice"),
                    Err(_) => whole = false,
                }
            }
            // A directory that was removed has none any more.
            let removed = case.errno == libc::ENOENT && names.is_empty();
            assert!(!whole || removed || names == self.names, "{names:?}");
        }
        // Not on the process's engine, which keeps its descriptors.
        let walk = nowait::walk::Options::new().engine(engine);
        if let Ok(mut walk) = walk.blocking_open(self.dir.path()) {
            let (mut found, mut whole) = (0, true);
            while let Some(batch) = walk.blocking_batch() {
                match batch {
                    Ok(batch) => found += batch.len(),
                    Err(_) => whole = false,
                }
            }
            // The two files, the directory, and its entries. An entry that was removed or replaced by a
            // link before it is opened is left out.
            let gone = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP].contains(&case.errno);
            let all = found == 3 + self.names.len();
            assert!(all || !whole || (gone && found <= 3), "{found}");
        }
    }

    /// Checks that the file has the bytes that were reported as written.
    fn has_what_was_written(&self, page: &Page) -> Result<(), String> {
        let there = std::fs::read(&self.out).unwrap();
        for piece in 0..5 {
            let at = piece * PIECE;
            let said = page.fact.load(Ordering::SeqCst) >> piece & 1 == 1;
            if said && there.get(at..at + PIECE) != Some(&pattern(at as u64, PIECE)[..]) {
                return Err(format!("piece {piece} was not written"));
            }
        }
        Ok(())
    }
}

/// Opens a file. The standard library would repeat the call without end after EINTR.
fn descriptor(path: &Path, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).ok()
}

/// Checks that a successful read returned all bytes up to the end of the file.
fn right(result: nowait::Result<usize>, bytes: &[u8], at: usize, len: usize) {
    if let Ok(n) = result {
        assert_eq!(n, len.min(LEN - at), "{len} bytes at {at}");
        assert!(bytes[..n] == pattern(at as u64, n), "{len} bytes at {at}");
    }
}

/// Notes that a write was reported as done. A short write is ignored.
fn wrote(page: &Page, piece: u32, result: nowait::Result<usize>) {
    if result.is_ok_and(|n| n == PIECE) {
        page.fact.fetch_or(1 << piece, Ordering::SeqCst);
    }
}

fn judge(done: Completion, page: &Page) {
    if done.ticket.is_none() && done.result.is_err() {
        return;
    }
    match (done.op.get_user_data(), done.result.as_ref().copied()) {
        (_, Err(_)) => {}
        (0, Ok(n)) => right(Ok(n), &bytes_of(done), 0, LEN),
        (POOLED, Ok(n)) => {
            let buffer = done.op.into_buffer().unwrap();
            right(Ok(n), &downcast::<PoolBuffer>(buffer).unwrap(), 0, LEN);
        }
        (1, Ok(n)) => right(Ok(n), &bytes_of(done), LEN - 5, 10),
        (2, Ok(n)) => right(Ok(n), &bytes_of(done), 4_000, 4_000),
        (4, Ok(n)) => {
            assert_eq!(n, 300);
            assert_eq!(pieces_of(done).concat(), pattern(0, 300));
        }
        (5, Ok(n)) => wrote(page, 2, Ok(n)),
        (6, Ok(n)) => wrote(page, 3, Ok(n)),
        (7, Ok(n)) => wrote(page, 4, Ok(n)),
        (12 | 13, Ok(_)) => {
            let nowait::op::Kind::Statx(op) = done.op.into_kind() else {
                return;
            };
            assert_eq!(op.metadata().unwrap().len(), LEN as u64);
        }
        _ => {}
    }
}

/// The number of open descriptors below 256.
fn descriptors() -> usize {
    let mut all: [libc::pollfd; 256] = std::array::from_fn(|fd| libc::pollfd {
        fd: fd as i32,
        events: 0,
        revents: 0,
    });
    // SAFETY: the array lives through the call, which no case has fail.
    let asked = unsafe { libc::poll(all.as_mut_ptr(), 256, 0) };
    assert!(asked >= 0);
    all.iter()
        .filter(|fd| fd.revents & libc::POLLNVAL == 0)
        .count()
}

macro_rules! calls {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

type Calls = &'static [(&'static str, libc::c_long)];

/// Calls about files.
const FILES: Calls = calls![
    SYS_openat,
    SYS_openat2,
    SYS_close,
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_preadv,
    SYS_preadv2,
    SYS_write,
    SYS_pwrite64,
    SYS_writev,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_statx,
    SYS_newfstatat,
    SYS_fstat,
    SYS_fstatfs,
    SYS_statfs,
    SYS_lseek,
    SYS_fcntl,
    SYS_ioctl,
    SYS_getdents64,
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_eventfd2,
    SYS_mincore,
    SYS_io_uring_setup,
    SYS_io_uring_register,
    SYS_mmap,
];

/// Calls about memory, threads and limits, and those that the kernel has with other errors only.
const OTHERS: Calls = calls![
    SYS_madvise,
    SYS_munmap,
    SYS_clone,
    SYS_clone3,
    SYS_prctl,
    SYS_getrusage,
    SYS_prlimit64,
    SYS_rt_sigprocmask,
    SYS_sched_getaffinity,
    SYS_ppoll,
];

const OF_OTHERS: [i32; 6] = [
    libc::EPERM,
    libc::ENOSYS,
    libc::EINTR,
    libc::EAGAIN,
    libc::ENOMEM,
    libc::EINVAL,
];

/// The errors of a futex(2) that waits. The C library ends the process after any other.
const OF_FUTEXES: [i32; 2] = [libc::EAGAIN, libc::EINTR];

/// The errnos with which a sandbox denies io_uring_enter(2).
const OF_SANDBOXES: [i32; 3] = [libc::EPERM, libc::ENOSYS, libc::EACCES];

/// Runs all cases.
fn each_case(when: When) {
    let mut cases = Vec::new();
    let mut add = |calls: Calls, errnos: &[i32]| {
        for (name, call) in calls {
            for errno in errnos {
                cases.push(Case {
                    name,
                    call: *call,
                    which: match *name {
                        // Reads and writes of eight bytes are those of eventfds, which always succeed.
                        "SYS_read" | "SYS_write" => Which::UnlessCount(8),
                        "SYS_futex" => Which::FutexWaits,
                        _ => Which::All,
                    },
                    errno: *errno,
                    when,
                });
            }
        }
    };
    add(FILES, &OF_FILES);
    add(&[("cachestat", 451)], &OF_FILES);
    add(OTHERS, &OF_OTHERS);
    add(calls![SYS_futex], &OF_FUTEXES);
    add(calls![SYS_io_uring_enter], &OF_SANDBOXES);
    // The standard library handles these by itself: it repeats an interrupted open, read or wait without
    // end, and takes EBADF for a descriptor that was closed elsewhere.
    let std = |case: &Case| match (case.name, case.errno) {
        ("SYS_openat" | "SYS_read" | "SYS_futex", libc::EINTR) => case.when == When::Always,
        ("SYS_fcntl", libc::EBADF) => true,
        _ => false,
    };
    cases.retain(|case| !std(case));
    let (ground, page) = (Ground::new(), Page::new());
    let mut wrong = Vec::new();
    for case in &cases {
        std::fs::File::options()
            .write(true)
            .truncate(true)
            .open(&ground.out)
            .unwrap();
        let ended = failing(*case, page, || ground.all(*case, page));
        let ended = ended.and_then(|_| ground.has_what_was_written(page));
        wrong.extend(ended.err());
        assert!(wrong.len() < 10, "{}", wrong.join("\n"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_call_that_always_fails_harms_nothing() {
    alone(|| each_case(When::Always));
}

#[test]
fn a_call_that_fails_the_first_time_harms_nothing() {
    alone(|| each_case(When::Nth(1)));
}

#[test]
fn a_call_that_fails_the_fourth_time_harms_nothing() {
    alone(|| each_case(When::Nth(4)));
}

/// One mapping fails, or it and all later ones: those of rings, stacks, files and pools. The allocator gets
/// its memory by brk(2), because Rust ends the process if an allocation fails.
#[test]
fn each_mapping_that_fails_harms_nothing() {
    alone(|| {
        let (ground, page) = (Ground::new(), Page::new());
        // SAFETY: no other thread allocates now. Threads would map arenas of their own.
        assert_eq!(unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) }, 1);
        for when in [When::Nth, When::From] {
            for n in 1.. {
                let case = Case {
                    name: "SYS_mmap",
                    call: libc::SYS_mmap,
                    which: Which::All,
                    errno: libc::ENOMEM,
                    when: when(n),
                };
                let counted = failing(case, page, || ground.all(case, page)).unwrap();
                ground.has_what_was_written(page).unwrap();
                if counted < n {
                    assert!(n > 10, "{counted} mappings");
                    break;
                }
            }
        }
    });
}
