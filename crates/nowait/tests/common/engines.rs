//! Every engine test runs on both engines and both backends: [`each`] for operations, through
//! [`Drive`]; [`each_shared`] for futures.
#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(unsafe_code, reason = "a buffer of its own kind")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nowait::buffer::{Buffer, BufferPool, PoolBuffer, Source, Space};
use nowait::engine::{
    Backend, Chain, Engine, FileSet, LocalEngine, Options, RefusedChain, Submit, Wait,
};
use nowait::op::{Kind, Op};
use nowait::stats::Stats;
use nowait::{Completion, ErrorKind, Handle, IoBufExt, IoBufMut, Ticket};

/// Nothing here takes so long, on however busy a machine, unless it hangs.
pub const LONG: Duration = Duration::from_secs(30);

/// What a shared engine and a local one have in common.
pub trait Drive {
    fn submit(&mut self, op: Op) -> Submit;
    fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize;
    fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize>;
    fn cancel(&mut self, ticket: Ticket);
    fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>>;
    fn stats(&self) -> Stats;
    fn in_flight(&self) -> usize;
    fn depth(&self) -> usize;
    fn backend(&self) -> Backend;
    fn why(&self) -> &str;
    fn is_local(&self) -> bool;

    /// The same file, as this engine is to know it.
    fn file(&mut self, plain: &Handle) -> Handle {
        plain.clone()
    }

    /// A buffer with so much room that behaves as a vector.
    fn buffer(&mut self, room: usize) -> Buffer {
        Box::new(Vec::<u8>::with_capacity(room))
    }

    /// Bytes to be written.
    fn source(&mut self, bytes: Vec<u8>) -> Source {
        Box::new(bytes)
    }

    fn set(&mut self, capacity: usize) -> nowait::Result<FileSet>;
    fn submit_chain(&mut self, chain: Chain) -> Result<Vec<Ticket>, RefusedChain>;
}

macro_rules! drive {
    ($engine:ty, $local:expr) => {
        impl Drive for $engine {
            fn submit(&mut self, op: Op) -> Submit {
                <$engine>::submit(self, op)
            }
            fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
                <$engine>::submit_batch(self, ops)
            }
            fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize> {
                <$engine>::reap(self, out, wait)
            }
            fn cancel(&mut self, ticket: Ticket) {
                <$engine>::cancel(self, ticket);
            }
            fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>> {
                <$engine>::event_fd(self)
            }
            fn stats(&self) -> Stats {
                <$engine>::stats(self)
            }
            fn in_flight(&self) -> usize {
                <$engine>::in_flight(self)
            }
            fn depth(&self) -> usize {
                <$engine>::depth(self)
            }
            fn backend(&self) -> Backend {
                <$engine>::backend(self)
            }
            fn why(&self) -> &str {
                <$engine>::why(self)
            }
            fn is_local(&self) -> bool {
                $local
            }
            fn set(&mut self, capacity: usize) -> nowait::Result<FileSet> {
                self.file_set(capacity)
            }
            fn submit_chain(&mut self, chain: Chain) -> Result<Vec<Ticket>, RefusedChain> {
                <$engine>::submit_chain(self, chain)
            }
        }
    };
}

drive!(Engine, false);
drive!(LocalEngine, true);

/// An engine that knows its files and its buffers beforehand.
pub struct Fixed<E> {
    engine: E,
    set: FileSet,
    pool: BufferPool,
}

impl<E: Drive> Fixed<E> {
    pub fn new(options: Options, build: impl Fn(&Options) -> nowait::Result<E>) -> Fixed<E> {
        let pool = BufferPool::new(64, 32 << 10).unwrap();
        let mut engine = build(&options.buffers(&pool)).unwrap();
        Fixed {
            set: engine.set(64).unwrap(),
            engine,
            pool,
        }
    }
}

impl<E: Drive> Drive for Fixed<E> {
    fn submit(&mut self, op: Op) -> Submit {
        self.engine.submit(op)
    }
    fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
        self.engine.submit_batch(ops)
    }
    fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize> {
        self.engine.reap(out, wait)
    }
    fn cancel(&mut self, ticket: Ticket) {
        self.engine.cancel(ticket);
    }
    fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>> {
        self.engine.event_fd()
    }
    fn stats(&self) -> Stats {
        self.engine.stats()
    }
    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }
    fn depth(&self) -> usize {
        self.engine.depth()
    }
    fn backend(&self) -> Backend {
        self.engine.backend()
    }
    fn why(&self) -> &str {
        self.engine.why()
    }
    fn is_local(&self) -> bool {
        self.engine.is_local()
    }
    fn file(&mut self, plain: &Handle) -> Handle {
        self.set.insert(plain).unwrap()
    }
    fn buffer(&mut self, room: usize) -> Buffer {
        match self.pool.take().filter(|buffer| buffer.len() >= room) {
            Some(buffer) => Box::new(Grown {
                buffer,
                room,
                len: 0,
            }),
            None => Box::new(Vec::<u8>::with_capacity(room)),
        }
    }
    fn source(&mut self, bytes: Vec<u8>) -> Source {
        match self
            .pool
            .take()
            .filter(|buffer| buffer.len() >= bytes.len())
        {
            Some(mut buffer) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Box::new(buffer.limit(bytes.len()))
            }
            None => Box::new(bytes),
        }
    }
    fn set(&mut self, _: usize) -> nowait::Result<FileSet> {
        Ok(self.set.clone())
    }
    fn submit_chain(&mut self, chain: Chain) -> Result<Vec<Ticket>, RefusedChain> {
        self.engine.submit_chain(chain)
    }
}

/// A pool's buffer that knows how much of it was filled, as a vector does.
struct Grown {
    buffer: PoolBuffer,
    room: usize,
    len: usize,
}

impl IoBufMut for Grown {
    fn space(&mut self) -> Space<'_> {
        self.len = 0;
        self.buffer.space().first(self.room)
    }

    unsafe fn set_filled(&mut self, n: usize) {
        self.len = n;
    }
}

/// The backends that can be had here; says so (or fails, see [`slowdisk::skip_or_fail`]) where the
/// ring can't.
pub fn backends() -> Vec<Backend> {
    match Options::new()
        .depth(1)
        .backend(Backend::Uring)
        .build_local()
    {
        Ok(_) => vec![Backend::Uring, Backend::Threads],
        Err(e) => {
            slowdisk::skip_or_fail(format!("no io_uring: {e}"));
            vec![Backend::Threads]
        }
    }
}

/// Runs a test on the shared and the local engine, each on both backends.
pub fn each(options: Options, test: impl Fn(&mut dyn Drive)) {
    for backend in backends() {
        let options = options.clone().backend(backend);
        {
            let _limit = Limit::new(format!("shared {backend}"));
            test(&mut options.build().unwrap());
        }
        let _limit = Limit::new(format!("local {backend}"));
        test(&mut options.build_local().unwrap());
    }
}

/// As [`each`], and on rings of other kinds: with SQPOLL, and with files and buffers known beforehand.
pub fn each_kind(options: Options, test: impl Fn(&mut dyn Drive)) {
    each(options.clone(), &test);
    each_odd_ring(options, test);
}

/// Runs a test on rings of all kinds.
pub fn each_ring(options: Options, test: impl Fn(&mut dyn Drive)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    let plain = options.clone().backend(Backend::Uring);
    {
        let _limit = Limit::new("shared uring".into());
        test(&mut plain.build().unwrap());
    }
    {
        let _limit = Limit::new("local uring".into());
        test(&mut plain.build_local().unwrap());
    }
    each_odd_ring(options, test);
}

fn each_odd_ring(options: Options, test: impl Fn(&mut dyn Drive)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    let options = options.backend(Backend::Uring);
    let sqpoll = options.clone().sqpoll(Duration::from_millis(2));
    {
        let _limit = Limit::new("shared sqpoll".into());
        test(&mut sqpoll.build().unwrap());
    }
    {
        let _limit = Limit::new("local sqpoll".into());
        test(&mut sqpoll.build_local().unwrap());
    }
    {
        let _limit = Limit::new("shared fixed".into());
        test(&mut Fixed::new(options.clone(), Options::build));
    }
    let _limit = Limit::new("local fixed".into());
    test(&mut Fixed::new(options, Options::build_local));
}

/// Runs a test on the shared engine, on both backends.
pub fn each_shared(options: Options, test: impl Fn(&Engine)) {
    for backend in backends() {
        let _limit = Limit::new(format!("shared {backend}"));
        test(&options.clone().backend(backend).build().unwrap());
    }
}

/// Runs a test with the process's engine on each backend, each in a child. `test` is its name.
pub fn each_process(test: &str, body: impl FnOnce(&Engine)) {
    match role() {
        None => {
            for backend in backends() {
                in_child(test, backend.name());
            }
        }
        Some(backend) => {
            let backend = match &*backend {
                "uring" => Backend::Uring,
                _ => Backend::Threads,
            };
            let _limit = Limit::new(format!("process {backend}"));
            let options = Options::new().backend(backend);
            body(&Engine::make_process(&options).unwrap());
        }
    }
}

/// Ends the process with a message if what it guards hangs: a hang must not outlive the test.
pub struct Limit(Arc<AtomicBool>);

impl Limit {
    pub fn new(what: String) -> Limit {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        eprintln!("{test}: {what}");
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        std::thread::spawn(move || {
            let end = Instant::now() + 4 * LONG;
            while !ended.load(Ordering::Relaxed) {
                if Instant::now() > end {
                    // Not by a panic: nobody would join this thread, and the hung one never ends.
                    let hung = format!("\n{test}: {what}: hangs\n");
                    let _ = rustix::io::write(std::io::stderr(), hung.as_bytes());
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Limit(over)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Who is under test, for messages.
pub fn name(engine: &dyn Drive) -> String {
    let kind = if engine.is_local() { "local" } else { "shared" };
    format!("{kind} {}", engine.backend())
}

/// Submits one operation and waits for its completion.
pub fn one(engine: &mut dyn Drive, op: impl Into<Op>) -> Completion {
    match engine.submit(op.into()) {
        Submit::Done(completion) => completion,
        Submit::Queued(ticket) => {
            let done = finish(engine, 1).remove(0);
            assert_eq!(done.ticket, Some(ticket), "{}", name(engine));
            done
        }
        Submit::Full(op) => panic!("{}: full at once: {op:?}", name(engine)),
    }
}

/// Submits one operation as a batch of one: on a ring it is tried by the kernel alone.
pub fn one_in_batch(engine: &mut dyn Drive, op: impl Into<Op>) -> Completion {
    let mut ops = vec![op.into()];
    assert_eq!(engine.submit_batch(&mut ops), 1);
    finish(engine, 1).remove(0)
}

/// Submits an operation that can't be done at once.
pub fn queued(engine: &mut dyn Drive, op: impl Into<Op>) -> Ticket {
    match engine.submit(op.into()) {
        Submit::Queued(ticket) => ticket,
        other => panic!("{}: not queued: {other:?}", name(engine)),
    }
}

/// Reaps exactly `n` completions.
pub fn finish(engine: &mut dyn Drive, n: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    let end = Instant::now() + LONG;
    while out.len() < n {
        engine
            .reap(&mut out, Wait::UpTo(Duration::from_secs(1)))
            .unwrap();
        assert!(
            Instant::now() < end,
            "{}: {} of {n} completions",
            name(engine),
            out.len()
        );
    }
    assert_eq!(out.len(), n, "{}", name(engine));
    out
}

/// Nothing is to be reaped for a while: long enough to see what was wrongly done at once.
pub fn nothing_for_a_while(engine: &mut dyn Drive) {
    let mut out = Vec::new();
    let n = engine
        .reap(&mut out, Wait::UpTo(Duration::from_millis(50)))
        .unwrap();
    assert_eq!(n, 0, "{}: {out:?}", name(engine));
}

/// Waits for something that another thread brings about.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The result as a system call would have said it: a count, or an errno.
pub fn said(completion: &Completion) -> Result<usize, i32> {
    match &completion.result {
        Ok(n) => Ok(*n),
        Err(e) => Err(e.errno().unwrap_or_else(|| panic!("not the kernel's: {e}"))),
    }
}

/// What a `libc` call returned, as [`said`] tells it.
pub fn plain(ret: isize) -> Result<usize, i32> {
    usize::try_from(ret).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())
}

/// The kind of a completion's error.
pub fn kind(completion: &Completion) -> ErrorKind {
    match &completion.result {
        Err(e) => e.kind(),
        Ok(n) => panic!("no error but {n}"),
    }
}

/// What a read has in its buffer, a vector.
pub fn bytes_of(completion: Completion) -> Vec<u8> {
    vector_of(completion.op.into_buffer().expect("it was a read"))
}

/// A buffer that is a vector, or is as one.
pub fn vector_of(buffer: Buffer) -> Vec<u8> {
    match nowait::buffer::downcast::<Vec<u8>>(buffer) {
        Ok(bytes) => bytes,
        Err(buffer) => {
            let Ok(Grown { buffer, room, len }) = nowait::buffer::downcast(buffer) else {
                panic!("neither")
            };
            let mut bytes = Vec::with_capacity(room);
            bytes.extend_from_slice(&buffer[..len]);
            bytes
        }
    }
}

/// What a write was given, a vector.
pub fn source_of(completion: Completion) -> Vec<u8> {
    let source = completion.op.into_source().expect("it was a write");
    nowait::buffer::downcast_source::<Vec<u8>>(source)
        .unwrap_or_else(|other| other.bytes().to_vec())
}

/// The vectors of a readv.
pub fn pieces_of(completion: Completion) -> Vec<Vec<u8>> {
    let Kind::Readv(op) = completion.op.into_kind() else {
        panic!("it was no readv")
    };
    op.into_buffers()
        .into_iter()
        .map(|b| nowait::buffer::downcast::<Vec<u8>>(b).expect("its buffers were vectors"))
        .collect()
}

/// A directory on a real filesystem.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The byte that [`pattern`] has at an offset: no two nearby pages are alike.
pub fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16).wrapping_mul(31)) as u8
}

/// So many bytes as a patterned file has them from `offset` on.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(byte_at).collect()
}

/// Makes a file of `len` patterned bytes.
pub fn patterned(dir: &Path, name: &str, len: usize) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, pattern(0, len)).unwrap();
    path
}

/// Cuts a patterned file off and makes it whole again, until told that it is over.
pub fn cut_off_until(path: &Path, len: usize, over: &AtomicBool) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let bytes = pattern(0, len);
    while !over.load(Ordering::Relaxed) {
        for len in [300_000, 5000, 0] {
            file.set_len(len).unwrap();
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    }
}

/// Whether a descriptor is readable now, or at its end.
pub fn readable(fd: impl AsFd) -> bool {
    let mut poll = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut poll, Some(&now)).unwrap() == 1
}

/// Opens a file for operations, read-only.
pub fn handle(path: &Path) -> Handle {
    Handle::new(std::fs::File::open(path).unwrap()).unwrap()
}

/// Opens a file for operations, for reading and writing.
pub fn handle_rw(path: &Path) -> Handle {
    let file = std::fs::File::options().read(true).write(true).open(path);
    Handle::new(file.unwrap()).unwrap()
}

/// A pipe: what reads it, and what writes to it.
pub fn pipe() -> (Handle, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Handle::new(reader).unwrap(), writer.into())
}

/// Writes a file's pages back and drops them from the page cache.
pub fn evict(path: &Path) {
    slowdisk::evict(&std::fs::File::open(path).unwrap()).unwrap();
}

/// A second descriptor of the same open file.
pub fn dup(fd: impl AsFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd, 0).unwrap()
}

/// A role that this process is to play: it is a child that a test made by [`in_child`].
pub fn role() -> Option<String> {
    std::env::var("NOWAIT_TEST_ROLE").ok()
}

/// Runs one test of this binary again in a process of its own, with a role. Returns what it wrote
/// to standard error.
///
/// # Panics
/// If it fails, is killed, or hangs.
pub fn in_child(test: &str, role: &str) -> String {
    in_child_by(std::process::Command::new(this_program()), test, role)
}

/// As [`in_child`], in a process of the user nobody: root may do everything.
pub fn in_child_as_nobody(test: &str) -> String {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    // The test program may lie where that user may not go.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let program = dir.path().join("program");
    std::fs::copy(this_program(), &program).unwrap();
    rustix::fs::chmod(dir.path(), 0o755.into()).unwrap();
    let mut command = std::process::Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    in_child_by(command, test, "nobody")
}

/// As [`in_child`], by a command prepared by the caller (limits, another user).
pub fn in_child_by(mut command: std::process::Command, test: &str, role: &str) -> String {
    let output = std::fs::File::from(memory_file());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("NOWAIT_TEST_ROLE", role)
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap());
    let end = Instant::now() + 5 * LONG;
    let mut child = loop {
        match command.spawn() {
            Ok(child) => break child,
            // A copy of this program that was just written is open for writing in the child that
            // another test is about to have, until that one has become its program.
            Err(e)
                if e.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < end =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => panic!("{command:?}: {e}"),
        }
    };
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > end => {
                let _ = child.kill();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut text = vec![0; output.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&output, &mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(status.success(), "{test} as {role}: {status}\n{text}");
    assert!(
        text.contains("1 passed"),
        "no test of the name {test}\n{text}"
    );
    text
}

/// This test binary.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}
