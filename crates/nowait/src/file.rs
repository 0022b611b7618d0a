//! File: positional reads and writes on one open file, as futures and as blocking calls.
//!
//! The futures need no runtime: the engine's owner or a worker wakes them. A read that the page
//! cache serves is ready at the first poll, without an allocation or a lock. Dropping a future at
//! any point is safe: what the kernel may still touch stays with the operation until it is done.

use std::ffi::CString;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rustix::fs::OFlags;

use crate::completion::{Completion, Provenance};
use crate::engine::{Engine, Flight, Turn};
use crate::error::{Error, ErrorKind, Result};
use crate::flags::RwFlags;
use crate::handle::Handle;
use crate::op::buffer::{IoBuf, IoBufMut, Space, downcast, downcast_source};
use crate::op::read::{into_space, start_into};
use crate::op::write::from_slice;
use crate::op::{Fsync, Kind, Op, Openat2, Read, Write};
use crate::read::{self, Advice, Mode, Plan, Recent, Request, Rest, Start};
use crate::sys::{self, Errno};
use crate::write;

/// An open file on an engine. `Send`, `Sync`, and cheap to clone: clones are the same open file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("file");
/// let file = nowait::OpenOptions::new().read(true).write(true).create(true).blocking_open(&path)?;
/// pollster::block_on(async {
///     file.write_all_at("hello", 0).await.into_result()?;
///     file.sync_data().await?;
///     let (n, buf) = file.read_at(Vec::with_capacity(64), 0).await.into_result()?;
///     assert_eq!((n, &buf[..]), (5, &b"hello"[..]));
///     Ok::<(), nowait::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct File {
    handle: Handle,
    engine: Engine,
}

impl File {
    /// Opens a file for reading, on the process's engine.
    pub fn open(path: impl AsRef<Path>) -> Open {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for reading, on the process's engine; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path.
    pub fn blocking_open(path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).blocking_open(path)
    }

    /// Takes in an open descriptor (a `std::fs::File`, say), on an engine of the caller's choice.
    ///
    /// # Errors
    /// What fstat(2), fstatfs(2) or fcntl(2) say of it.
    pub fn from_fd(fd: impl Into<OwnedFd>, engine: &Engine) -> Result<File> {
        Ok(File {
            // Its engine's mode is its own from the start: a strict file is set up for it.
            handle: Handle::with(fd.into(), None, Some(engine.core().mode))?,
            engine: engine.clone(),
        })
    }

    /// Reads into `buffer` from `offset` on. The count is less than the buffer's room only at the
    /// end of the file.
    ///
    /// Follows pread(2): the file's own position does not move.
    pub fn read_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt {
            file: self,
            state: Reading::New(buffer),
            offset,
            flags: RwFlags::empty(),
            deadline: None,
            exact: false,
            len: 0,
        }
    }

    /// Fills `buffer` from `offset` on; [`ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_exact_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt {
            exact: true,
            ..self.read_at(buffer, offset)
        }
    }

    /// Reads into borrowed memory from `offset` on; blocks. The count is less than asked only at
    /// the end of the file. Plain pread(2), continued after short reads: for a thread that may
    /// wait nothing is faster.
    ///
    /// # Errors
    /// As pread(2) says; also after some bytes were read.
    pub fn blocking_read_at<'a>(&self, buf: impl Into<Space<'a>>, offset: u64) -> Result<usize> {
        let mut space = buf.into();
        self.fill("read_at", &mut space, offset)
    }

    /// Fills borrowed memory from `offset` on; blocks.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the file ends before, else as pread(2) says.
    pub fn blocking_read_exact_at<'a>(&self, buf: impl Into<Space<'a>>, offset: u64) -> Result<()> {
        let mut space = buf.into();
        let n = self.fill("read_exact_at", &mut space, offset)?;
        if n == space.len() {
            Ok(())
        } else {
            Err(self.failed("read_exact_at", ErrorKind::UnexpectedEof))
        }
    }

    fn fill(&self, operation: &'static str, space: &mut Space<'_>, offset: u64) -> Result<usize> {
        let failed = |errno| Error::os(operation, errno).on(self.handle.shared_path());
        sys::rw::checked(Some(offset), space.len()).map_err(failed)?;
        let mut done = 0;
        loop {
            let mut rest = space.skip(done);
            match into_space(
                self.handle.as_fd(),
                &mut rest,
                Some(offset + done as u64),
                0,
            ) {
                Ok(n) => {
                    done += n;
                    if done == space.len() || crate::op::is_end(n, self.handle.is_direct()) {
                        return Ok(done);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Reads what the page cache has of the range into borrowed memory, without waiting; see
    /// [`read::cached`].
    ///
    /// # Errors
    /// EBADF, EFAULT, EINVAL.
    pub fn cached_read_at<'a>(
        &self,
        buf: impl Into<Space<'a>>,
        offset: u64,
    ) -> Result<read::Cached> {
        read::cached(&self.handle, buf, offset).map_err(|e| e.on(self.handle.shared_path()))
    }

    /// Writes `buffer` at `offset`. The count may be less than its length, as pwrite(2) says.
    pub fn write_at<B: IoBuf>(&self, buffer: B, offset: u64) -> WriteAt<'_, B> {
        WriteAt {
            file: self,
            state: Writing::New(buffer),
            offset,
            flags: RwFlags::empty(),
            deadline: None,
            all: false,
        }
    }

    /// Writes all of `buffer` at `offset`.
    pub fn write_all_at<B: IoBuf>(&self, buffer: B, offset: u64) -> WriteAt<'_, B> {
        WriteAt {
            all: true,
            ..self.write_at(buffer, offset)
        }
    }

    /// Writes borrowed bytes at `offset`; blocks. The count may be less than asked.
    ///
    /// # Errors
    /// As pwrite(2) says.
    pub fn blocking_write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        loop {
            match from_slice(self.handle.as_fd(), bytes, Some(offset), 0) {
                Err(Errno::INTR) => {}
                other => {
                    return other
                        .map_err(|e| Error::os("write_at", e).on(self.handle.shared_path()));
                }
            }
        }
    }

    /// Writes all of the borrowed bytes at `offset`; blocks.
    ///
    /// # Errors
    /// As pwrite(2) says; [`ErrorKind::WriteZero`] if the kernel takes no more.
    pub fn blocking_write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.blocking_write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed("write_all_at", ErrorKind::WriteZero)),
                Ok(n) => done += n,
                Err(e) => return Err(e.named("write_all_at")),
            }
        }
        Ok(())
    }

    /// Brings data and metadata to the device: fsync(2).
    pub fn sync_all(&self) -> Sync<'_> {
        Sync {
            file: self,
            data_only: false,
            trip: None,
        }
    }

    /// Brings data, and the metadata needed to read it back, to the device: fdatasync(2).
    pub fn sync_data(&self) -> Sync<'_> {
        Sync {
            file: self,
            data_only: true,
            trip: None,
        }
    }

    /// Brings data and metadata to the device; blocks.
    ///
    /// # Errors
    /// As fsync(2) says.
    pub fn blocking_sync_all(&self) -> Result<()> {
        rustix::fs::fsync(&self.handle)
            .map_err(|e| Error::os("sync_all", e).on(self.handle.shared_path()))
    }

    /// Brings data to the device; blocks.
    ///
    /// # Errors
    /// As fdatasync(2) says.
    pub fn blocking_sync_data(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.handle)
            .map_err(|e| Error::os("sync_data", e).on(self.handle.shared_path()))
    }

    /// The file's size in bytes. Asked for in the caller: the inode of an open file is in memory
    /// (a network filesystem may revalidate it).
    ///
    /// # Errors
    /// As fstat(2) says.
    pub fn len(&self) -> Result<u64> {
        sys::stat::size(self.handle.as_fd())
            .map_err(|e| Error::os("len", e).on(self.handle.shared_path()))
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](File::len).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// How a read of `len` bytes would be served now: the decision that [`read_at`](File::read_at)
    /// would take, by what is known of the file so far. A first read may still learn that its
    /// filesystem refuses cached reads.
    ///
    /// ```
    /// use nowait::read::{Plan, Reason};
    /// let file = nowait::File::blocking_open("Cargo.toml")?;
    /// match file.plan(4096) {
    ///     Plan::CacheFirst => println!("the page cache is tried first"),
    ///     other => println!("{other:?}"),
    /// }
    /// // More than a caller should copy at once is for a worker.
    /// assert_eq!(file.plan(64 << 20), Plan::Queue(Reason::Large));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn plan(&self, len: usize) -> Plan {
        let core = self.engine.core();
        let mode = self.handle.mode().unwrap_or(core.mode);
        let request = Request {
            len,
            flags: RwFlags::empty(),
            positional: true,
            batch: false,
        };
        let advice = if self.handle.history().pays(core.costs()) {
            Advice::Try
        } else {
            Advice::Skip
        };
        let facts = self.handle.facts(mode);
        read::plan(request, facts, mode, advice, core.copy_limit)
    }

    /// What its reads have found in the page cache lately.
    pub fn history(&self) -> Recent {
        self.handle.history().recent()
    }

    /// The handle, to build operations on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The engine it is on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn failed(&self, operation: &'static str, kind: ErrorKind) -> Error {
        Error::new(operation, kind).on(self.handle.shared_path())
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// How to open a file: `std::fs::OpenOptions`, and what it lacks.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    flags: OFlags,
    permissions: u32,
    mode: Option<Mode>,
    engine: Option<Engine>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

macro_rules! flag {
    ($(#[$doc:meta])* $name:ident, $flag:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, yes: bool) -> OpenOptions {
            self.flags.set(OFlags::$flag, yes);
            self
        }
    };
}

impl OpenOptions {
    /// Nothing is allowed yet.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            flags: OFlags::empty(),
            permissions: 0o666,
            mode: None,
            engine: None,
        }
    }

    /// For reading.
    #[must_use]
    pub fn read(mut self, yes: bool) -> OpenOptions {
        self.read = yes;
        self
    }

    /// For writing.
    #[must_use]
    pub fn write(mut self, yes: bool) -> OpenOptions {
        self.write = yes;
        self
    }

    flag!(
        /// Make the file if it is not there.
        create, CREATE
    );
    flag!(
        /// Fail if it is there (with `create`).
        exclusive, EXCL
    );
    flag!(
        /// Empty it.
        truncate, TRUNC
    );
    flag!(
        /// Write at the end of the file, whatever the offset (O_APPEND).
        append, APPEND
    );
    flag!(
        /// Go around the page cache (O_DIRECT). Offsets, lengths and memory must be aligned as the
        /// filesystem demands; the page cache is never tried.
        direct, DIRECT
    );

    /// The permission bits of a file that is made, before the umask. 0o666 if not set.
    #[must_use]
    pub fn permissions(mut self, bits: u32) -> OpenOptions {
        self.permissions = bits;
        self
    }

    /// A mode of this file's own, instead of its engine's.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> OpenOptions {
        self.mode = Some(mode);
        self
    }

    /// On this engine, instead of the process's.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> OpenOptions {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens the file on the engine: openat2(2).
    pub fn open(&self, path: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            path: path.as_ref().into(),
            trip: None,
        }
    }

    /// Opens the file; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path; and if no engine can be made.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path: Arc<Path> = path.as_ref().into();
        let engine = self.on()?;
        let fd = loop {
            match rustix::fs::open(&*path, self.bits(), self.permission_bits()) {
                Err(Errno::INTR) => {}
                other => break other.map_err(|e| Error::os("open", e).on(Some(&path)))?,
            }
        };
        self.take_in(fd, path, engine)
    }

    fn take_in(&self, fd: OwnedFd, path: Arc<Path>, engine: Engine) -> Result<File> {
        let mode = self.mode.unwrap_or(engine.core().mode);
        Ok(File {
            handle: Handle::with(fd, Some(path), Some(mode))?,
            engine,
        })
    }

    fn on(&self) -> Result<Engine> {
        self.engine.clone().map_or_else(Engine::process, Ok)
    }

    fn bits(&self) -> OFlags {
        let append = self.flags.contains(OFlags::APPEND);
        let access = match (self.read, self.write || append) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        self.flags | access | OFlags::CLOEXEC
    }

    fn permission_bits(&self) -> rustix::fs::Mode {
        rustix::fs::Mode::from_raw_mode(self.permissions)
    }
}

/// What an operation on an engine is doing, seen from its future.
#[derive(Debug)]
enum Trip {
    /// Waiting for a place in the engine.
    Waiting(Box<Op>, Option<Rest>, Option<Turn>),
    /// On its way.
    Flying(Arc<Flight>),
    /// Landed; the future is used up.
    Over,
}

impl Trip {
    fn new(op: Op, rest: Option<Rest>) -> Trip {
        Trip::Waiting(Box::new(op), rest, None)
    }

    /// Goes on as far as it gets.
    fn poll(&mut self, engine: &Engine, cx: &Context<'_>) -> Poll<Completion> {
        match std::mem::replace(self, Trip::Over) {
            Trip::Waiting(op, rest, mut turn) => {
                *self = match engine.launch(op, rest, cx.waker(), &mut turn) {
                    Ok(flight) => Trip::Flying(flight),
                    Err((op, rest)) => Trip::Waiting(op, rest, turn),
                };
            }
            Trip::Flying(flight) => match flight.poll(cx) {
                Poll::Ready(completion) => return Poll::Ready(completion),
                Poll::Pending => *self = Trip::Flying(flight),
            },
            Trip::Over => {}
        }
        Poll::Pending
    }
}

/// The future of [`File::read_at`] and [`File::read_exact_at`].
///
/// Polled again after it was ready it stays pending.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct ReadAt<'a, B> {
    file: &'a File,
    state: Reading<B>,
    offset: u64,
    flags: RwFlags,
    deadline: Option<Instant>,
    exact: bool,
    /// The buffer's room, known from the first poll on.
    len: usize,
}

#[derive(Debug)]
enum Reading<B> {
    New(B),
    Away(Trip),
    Over,
}

impl<B> Unpin for ReadAt<'_, B> {}

impl<B: IoBufMut> ReadAt<'_, B> {
    /// With these `RWF_*` flags.
    pub fn flags(mut self, flags: RwFlags) -> Self {
        self.flags = flags;
        self
    }

    /// When to give up: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    fn name(&self) -> &'static str {
        if self.exact {
            "read_exact_at"
        } else {
            "read_at"
        }
    }

    /// The last word on a read: an exact one must have filled its buffer.
    fn land(&self, mut done: Completion<B>) -> Poll<Completion<B>> {
        let path = self.file.handle.shared_path();
        done.result = match done.result {
            Ok(n) if self.exact && n < self.len => {
                Err(Error::new("read_exact_at", ErrorKind::UnexpectedEof).on(path))
            }
            Ok(n) => Ok(n),
            Err(error) => Err(error.named(self.name()).on(path)),
        };
        Poll::Ready(done)
    }

    /// Boxes the buffer into an operation for the engine.
    fn rest(&self, buffer: B, rest: Rest) -> Trip {
        let mut read =
            Read::new(&self.file.handle, Box::new(buffer), self.offset).flags(self.flags);
        read.have(rest.done, rest.ahead);
        let mut op = Op::from(read);
        if let Some(deadline) = self.deadline {
            op = op.deadline(deadline);
        }
        Trip::new(op, Some(rest))
    }
}

impl<B: IoBufMut> Future for ReadAt<'_, B> {
    type Output = Completion<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion<B>> {
        let this = self.get_mut();
        let File { handle, engine } = this.file;
        if let Reading::New(buffer) = &mut this.state {
            let started = start_into(buffer, |space| {
                this.len = space.len();
                read::start(engine.core(), handle, space, this.offset, this.flags, false)
            });
            let Reading::New(buffer) = std::mem::replace(&mut this.state, Reading::Over) else {
                return Poll::Pending;
            };
            match started {
                Start::Done(n, provenance) => {
                    return this.land(Completion {
                        result: Ok(n),
                        held: buffer,
                        provenance,
                        ticket: None,
                    });
                }
                Start::Failed(errno) => {
                    return this.land(Completion::failed(Error::os("read_at", errno), buffer));
                }
                Start::Rest(rest) => match engine.check_process("read_at") {
                    Ok(()) => this.state = Reading::Away(this.rest(buffer, rest)),
                    Err(error) => return this.land(Completion::failed(error, buffer)),
                },
            }
        }
        let Reading::Away(trip) = &mut this.state else {
            return Poll::Pending;
        };
        match trip.poll(engine, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(completion) => {
                this.state = Reading::Over;
                match own_buffer(completion) {
                    Some(done) => this.land(done),
                    None => Poll::Pending,
                }
            }
        }
    }
}

/// The buffer that a read's operation owned, as what it was. It always is of that type.
fn own_buffer<B: IoBufMut>(completion: Completion) -> Option<Completion<B>> {
    let Completion {
        result,
        held,
        provenance,
        ticket,
    } = completion;
    let held = downcast(held.into_buffer()?).ok()?;
    Some(Completion {
        result,
        held,
        provenance,
        ticket,
    })
}

/// The future of [`File::write_at`] and [`File::write_all_at`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct WriteAt<'a, B> {
    file: &'a File,
    state: Writing<B>,
    offset: u64,
    flags: RwFlags,
    deadline: Option<Instant>,
    all: bool,
}

#[derive(Debug)]
enum Writing<B> {
    New(B),
    Away(Trip),
    Over,
}

impl<B> Unpin for WriteAt<'_, B> {}

impl<B: IoBuf> WriteAt<'_, B> {
    /// With these `RWF_*` flags.
    pub fn flags(mut self, flags: RwFlags) -> Self {
        self.flags = flags;
        self
    }

    /// When to give up: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    fn name(&self) -> &'static str {
        if self.all { "write_all_at" } else { "write_at" }
    }

    /// The last word on a write: one of everything must have written everything.
    fn land(&self, mut done: Completion<B>) -> Poll<Completion<B>> {
        let path = self.file.handle.shared_path();
        done.result = match done.result {
            Ok(n) if self.all && n < done.held.bytes().len() => {
                Err(Error::new("write_all_at", ErrorKind::WriteZero).on(path))
            }
            Ok(n) => Ok(n),
            Err(error) => Err(error.named(self.name()).on(path)),
        };
        Poll::Ready(done)
    }

    /// Boxes the bytes into an operation for the engine, `done` of them being written.
    fn rest(&self, buffer: B, done: usize) -> Trip {
        let mut write =
            Write::new(&self.file.handle, Box::new(buffer), self.offset).flags(self.flags);
        if self.all {
            write = write.all();
        }
        write.have(done);
        let mut op = Op::from(write);
        if let Some(deadline) = self.deadline {
            op = op.deadline(deadline);
        }
        Trip::new(op, None)
    }
}

impl<B: IoBuf> Future for WriteAt<'_, B> {
    type Output = Completion<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion<B>> {
        let this = self.get_mut();
        let File { handle, engine } = this.file;
        if let Writing::New(_) = &this.state {
            let Writing::New(buffer) = std::mem::replace(&mut this.state, Writing::Over) else {
                return Poll::Pending;
            };
            let len = buffer.bytes().len();
            if let Err(errno) = sys::rw::checked(Some(this.offset), len) {
                return this.land(Completion::failed(Error::os("write_at", errno), buffer));
            }
            let tries = this.flags.is_empty();
            let done = if tries {
                write::start(engine.core(), handle, buffer.bytes(), this.offset)
            } else {
                0
            };
            if done > 0 && done == len {
                let provenance = Provenance::default();
                return this.land(Completion {
                    result: Ok(done),
                    held: buffer,
                    provenance,
                    ticket: None,
                });
            }
            match engine.check_process("write_at") {
                Ok(()) => this.state = Writing::Away(this.rest(buffer, done)),
                Err(error) => return this.land(Completion::failed(error, buffer)),
            }
        }
        let Writing::Away(trip) = &mut this.state else {
            return Poll::Pending;
        };
        match trip.poll(engine, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(completion) => {
                this.state = Writing::Over;
                match own_source(completion) {
                    Some(done) => this.land(done),
                    None => Poll::Pending,
                }
            }
        }
    }
}

/// The bytes that a write's operation owned, as what they were.
fn own_source<B: IoBuf>(completion: Completion) -> Option<Completion<B>> {
    let Completion {
        result,
        held,
        provenance,
        ticket,
    } = completion;
    let held = downcast_source(held.into_source()?).ok()?;
    Some(Completion {
        result,
        held,
        provenance,
        ticket,
    })
}

/// The future of [`File::sync_all`] and [`File::sync_data`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Sync<'a> {
    file: &'a File,
    data_only: bool,
    trip: Option<Trip>,
}

impl Future for Sync<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let File { handle, engine } = this.file;
        let (name, op) = if this.data_only {
            ("sync_data", Fsync::data as fn(&Handle) -> Fsync)
        } else {
            ("sync_all", Fsync::new as fn(&Handle) -> Fsync)
        };
        if this.trip.is_none() {
            engine.check_process(name)?;
        }
        let trip = this
            .trip
            .get_or_insert_with(|| Trip::new(Op::from(op(handle)), None));
        trip.poll(engine, cx).map(|completion| {
            completion
                .result
                .map(|_| ())
                .map_err(|error| error.named(name).on(handle.shared_path()))
        })
    }
}

/// The future of [`File::open`] and [`OpenOptions::open`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open {
    options: OpenOptions,
    path: Arc<Path>,
    trip: Option<(Engine, Trip)>,
}

impl Open {
    fn begin(&self) -> Result<(Engine, Trip)> {
        let engine = self.options.on()?;
        engine.check_process("open")?;
        // A path with a NUL inside names no file.
        let path = CString::new(self.path.as_os_str().as_bytes())
            .map_err(|_| Error::os("open", Errno::INVAL))?;
        let op = Openat2::new(path, self.options.bits(), self.options.permission_bits());
        Ok((engine, Trip::new(Op::from(op), None)))
    }

    fn end(&self, engine: &Engine, completion: Completion) -> Result<File> {
        completion.result?;
        match completion.held.into_kind() {
            Kind::Openat2(op) => {
                let fd = op.into_fd().ok_or(Error::os("open", Errno::BADF))?;
                self.options.take_in(fd, self.path.clone(), engine.clone())
            }
            _ => Err(Error::os("open", Errno::BADF)),
        }
    }
}

impl Future for Open {
    type Output = Result<File>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<File>> {
        let this = self.get_mut();
        let failed = |error: Error| error.named("open").on(Some(&this.path));
        if this.trip.is_none() {
            this.trip = Some(this.begin().map_err(failed)?);
        }
        let Some((engine, mut trip)) = this.trip.take() else {
            return Poll::Pending;
        };
        match trip.poll(&engine, cx) {
            Poll::Ready(completion) => {
                let opened = this.end(&engine, completion);
                this.trip = Some((engine, Trip::Over));
                Poll::Ready(opened.map_err(failed))
            }
            Poll::Pending => {
                this.trip = Some((engine, trip));
                Poll::Pending
            }
        }
    }
}
