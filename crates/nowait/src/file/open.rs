//! Opening: what `std::fs::OpenOptions` has and what it lacks, blocking and as a future.

use std::ffi::CString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::fs::{AtFlags, CWD, FileType, OFlags, ResolveFlags, StatxAttributes, StatxFlags};

use super::File;
use super::trip::Trip;
use crate::completion::Completion;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::kernel::Filesystem;
use crate::op::{Kind, Op, Openat2};
use crate::read::Mode;
use crate::retry;
use crate::sys::Errno;

/// How to open a file: `std::fs::OpenOptions`, and what it lacks.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    flags: OFlags,
    unaligned: bool,
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
            unaligned: false,
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
        /// Go around the page cache (O_DIRECT). Offsets, lengths and memory must be aligned as
        /// [`Handle::alignment`] says, or are refused as
        /// [`Misaligned`](crate::ErrorKind::Misaligned); the page cache is never tried.
        direct, DIRECT
    );

    /// With [`direct`](OpenOptions::direct): positional reads need not be aligned. One that is not
    /// goes through aligned memory of the operation's own: whole blocks are read, and copied from. Not
    /// for reads into several buffers by one operation ([`Readv`](crate::op::Readv)), and not for
    /// writes, which would have to read first.
    ///
    /// ```
    /// let options = nowait::OpenOptions::new().read(true).direct(true).unaligned(true);
    /// // Some filesystems have no O_DIRECT.
    /// if let Ok(file) = options.blocking_open("Cargo.toml") {
    ///     let mut buf = [0; 7];
    ///     file.blocking_read_exact_at(&mut buf, 1)?;
    ///     assert_eq!(&buf, b"package");
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn unaligned(mut self, yes: bool) -> OpenOptions {
        self.unaligned = yes;
        self
    }

    /// A directory, to be listed.
    pub(crate) fn directory(mut self) -> OpenOptions {
        self.flags |= OFlags::DIRECTORY | OFlags::NONBLOCK;
        self.read(true)
    }

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

    /// Opens the file on the engine: openat2(2). To read a regular file whose path is cached needs no
    /// engine, on ext4, xfs and f2fs and Linux 5.12 or newer: that is ready at the first poll.
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
        let open = || rustix::fs::open(&*path, self.bits(), self.permission_bits());
        let fd = retry::interrupted(open).map_err(|e| Error::os("open", e).on(Some(&path)))?;
        self.take_in(fd, path, engine)
    }

    /// Whether nothing is asked for but to read what is there.
    fn only_reads(&self) -> bool {
        self.bits() == OFlags::RDONLY | OFlags::CLOEXEC
    }

    fn take_in(&self, fd: OwnedFd, path: Arc<Path>, engine: Engine) -> Result<File> {
        let mode = self.mode.unwrap_or(engine.core().mode);
        let mut handle = Handle::with(fd, Some(path), Some(mode))?;
        if self.unaligned {
            handle = handle.with_unaligned_reads();
        }
        Ok(File { handle, engine })
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

/// The future of [`File::open`] and [`OpenOptions::open`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open {
    options: OpenOptions,
    path: Arc<Path>,
    trip: Option<(Engine, Trip)>,
}

/// Opens a file for reading in the caller if that waits for nothing; `None` if it might, or failed:
/// then the engine opens it, and says why not.
///
/// The kernel resolves the path from its caches or gives up (`RESOLVE_CACHED`, openat2(2), 5.12).
/// That alone is not enough. To open a fifo waits for its other end, a device may have to be moved, a
/// server asked: so the path is only looked at first (O_PATH), and what is not a regular file on a
/// filesystem of which more is known is left to the engine; encrypted files and those with
/// verity too, whose keys and hashes have to be read. O_NONBLOCK keeps it from waiting for a lease
/// (fcntl(2)); nothing keeps it from waiting for whoever has to permit it (fanotify(7)).
pub(crate) fn open_at_once(path: &Path) -> Option<OwnedFd> {
    let open = |flags| {
        let none = rustix::fs::Mode::empty();
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(CWD, path, flags, none, ResolveFlags::CACHED).ok()
    };
    let seen = open(OFlags::PATH)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&seen, c"", flags, StatxFlags::TYPE).ok()?;
    let is_regular = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    let slow = StatxAttributes::ENCRYPTED | StatxAttributes::VERITY;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if !is_regular(stat.stx_mode.into())
        || stat.stx_attributes.intersects(slow)
        || !Filesystem::opens_at_once(device)
    {
        return None;
    }
    let fd = open(OFlags::RDONLY | OFlags::NONBLOCK)?;
    // It may have been replaced meanwhile. And a ring takes O_NONBLOCK at its word.
    let same = is_regular(rustix::fs::fstat(&fd).ok()?.st_mode);
    let cleared = rustix::fs::fcntl_setfl(&fd, OFlags::empty()).is_ok();
    (same && cleared).then_some(fd)
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
            if this.options.only_reads()
                && let Some(fd) = open_at_once(&this.path)
            {
                let engine = this.options.on().map_err(failed)?;
                let opened = this.options.take_in(fd, this.path.clone(), engine.clone());
                this.trip = Some((engine, Trip::Over));
                return Poll::Ready(opened.map_err(failed));
            }
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
                // In a forked child it would never be told.
                engine.check_process("open").map_err(failed)?;
                this.trip = Some((engine, trip));
                Poll::Pending
            }
        }
    }
}
