//! Opening: what `std::fs::OpenOptions` has and what it lacks, blocking and as a future.

use std::ffi::CString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::fs::OFlags;

use super::File;
use super::open_cached::open_cached;
use crate::completion::Completion;
use crate::engine::{Engine, OpFuture};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::mode::Mode;
use crate::op::{Kind, Op, Openat2};
use crate::retry;
use crate::sys::Errno;

/// How to open a file: [`std::fs::OpenOptions`] with its rules and its errors, and what it lacks.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("file");
/// let file = nowait::OpenOptions::new().write(true).create_new(true).blocking_open(&path)?;
/// file.blocking_write_all_at(b"hello", 0)?;
/// // Without an access mode, or with one that can't do what else is asked for: EINVAL.
/// let refused = nowait::OpenOptions::new().read(true).truncate(true).blocking_open(&path);
/// assert_eq!(refused.unwrap_err().errno(), Some(libc::EINVAL));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    mode: u32,
    direct: bool,
    unaligned: bool,
    cache_mode: Option<Mode>,
    engine: Option<Engine>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

macro_rules! set {
    ($(#[$doc:meta])* $name:ident: $to:ty) => {
        $(#[$doc])*
        pub fn $name(&mut self, to: $to) -> &mut OpenOptions {
            self.$name = to;
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
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            custom_flags: 0,
            mode: 0o666,
            direct: false,
            unaligned: false,
            cache_mode: None,
            engine: None,
        }
    }

    set!(
        /// For reading.
        read: bool
    );
    set!(
        /// For writing.
        write: bool
    );
    set!(
        /// For writing, at the end of the file whatever the offset (O_APPEND).
        append: bool
    );
    set!(
        /// Empty it; needs `write`.
        truncate: bool
    );
    set!(
        /// Make the file if it is not there; needs `write` or `append`.
        create: bool
    );
    set!(
        /// Make the file, and fail if it is there; needs `write` or `append`. `create` and `truncate`
        /// then make no difference.
        create_new: bool
    );
    set!(
        /// Further flags of open(2). Its access mode is not among them.
        custom_flags: i32
    );
    set!(
        /// The permission bits of a file that is made, before the umask. 0o666 if not set.
        mode: u32
    );
    set!(
        /// Go around the page cache (O_DIRECT). Offsets, lengths and memory must be aligned as
        /// [`Handle::alignment`] says, or are refused as
        /// [`Misaligned`](crate::ErrorKind::Misaligned); the page cache is never tried.
        direct: bool
    );
    set!(
        /// With [`direct`](OpenOptions::direct): positional reads need not be aligned. One that is not
        /// goes through aligned memory of the operation's own: whole blocks are read, and copied from. Not
        /// for reads into several buffers by one operation ([`Readv`](crate::op::Readv)), and not for
        /// writes, which would have to read first.
        ///
        /// ```
        /// let mut options = nowait::OpenOptions::new();
        /// options.read(true).direct(true).unaligned(true);
        /// // Some filesystems have no O_DIRECT.
        /// if let Ok(file) = options.blocking_open("Cargo.toml") {
        ///     let mut buf = [0; 7];
        ///     file.blocking_read_exact_at(&mut buf, 1)?;
        ///     assert_eq!(&buf, b"package");
        /// }
        /// # Ok::<(), nowait::Error>(())
        /// ```
        unaligned: bool
    );

    /// How this file's reads treat the page cache, instead of as its engine's do.
    pub fn cache_mode(&mut self, mode: Mode) -> &mut OpenOptions {
        self.cache_mode = Some(mode);
        self
    }

    /// On this engine, instead of the process's.
    pub fn engine(&mut self, engine: &Engine) -> &mut OpenOptions {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens the file on the engine: openat2(2). To read a regular file whose path is cached needs no
    /// engine, on ext4, xfs and f2fs and Linux 5.12 or newer: that is ready at the first poll.
    pub fn open(&self, path: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            path: path.as_ref().into(),
            operation: None,
        }
    }

    /// Opens the file; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path; and if no engine can be made.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path: Arc<Path> = path.as_ref().into();
        let engine = self.on()?;
        let failed = |errno| Error::os("open", errno).on(Some(&path));
        let flags = self.flags().map_err(failed)?;
        let open = || rustix::fs::open(&*path, flags, self.permissions());
        let fd = retry::interrupted(open).map_err(failed)?;
        self.take_in(fd, path, engine)
    }

    /// Whether nothing is asked for but to read what is there.
    fn only_reads(&self) -> bool {
        self.flags() == Ok(OFlags::RDONLY | OFlags::CLOEXEC)
    }

    fn take_in(&self, fd: OwnedFd, path: Arc<Path>, engine: Engine) -> Result<File> {
        let mode = self.cache_mode.unwrap_or(engine.policy().mode);
        let mut handle = Handle::with(fd, Some(path), Some(mode))?;
        if self.unaligned {
            handle = handle.with_unaligned_reads();
        }
        Ok(File { handle, engine })
    }

    fn on(&self) -> Result<Engine> {
        self.engine.clone().map_or_else(Engine::process, Ok)
    }

    /// open(2)'s flags, by the standard library's rules.
    fn flags(&self) -> std::result::Result<OFlags, Errno> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => OFlags::RDONLY,
            (false, true, false) => OFlags::WRONLY,
            (true, true, false) => OFlags::RDWR,
            (false, _, true) => OFlags::WRONLY | OFlags::APPEND,
            (true, _, true) => OFlags::RDWR | OFlags::APPEND,
            (false, false, false) => return Err(Errno::INVAL),
        };
        let changes = self.truncate || self.create || self.create_new;
        if changes && !self.write && !self.append {
            return Err(Errno::INVAL);
        }
        if self.append && self.truncate && !self.create_new {
            return Err(Errno::INVAL);
        }
        let custom = self.custom_flags & !libc::O_ACCMODE;
        let mut flags = OFlags::from_bits_retain(custom.cast_unsigned()) | access | OFlags::CLOEXEC;
        if self.create_new {
            flags |= OFlags::CREATE | OFlags::EXCL;
        } else {
            let set = |yes, flag| if yes { flag } else { OFlags::empty() };
            flags |= set(self.create, OFlags::CREATE) | set(self.truncate, OFlags::TRUNC);
        }
        if self.direct {
            flags |= OFlags::DIRECT;
        }
        Ok(flags)
    }

    fn permissions(&self) -> rustix::fs::Mode {
        rustix::fs::Mode::from_raw_mode(self.mode)
    }
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
}

/// The future of [`File::open`] and [`OpenOptions::open`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open {
    options: OpenOptions,
    path: Arc<Path>,
    operation: Option<(Engine, OpFuture)>,
}

impl Open {
    fn begin(&self) -> Result<(Engine, OpFuture)> {
        let engine = self.options.on()?;
        engine.check_process("open")?;
        // A path with a NUL inside names no file.
        let path = CString::new(self.path.as_os_str().as_bytes())
            .map_err(|_| Error::os("open", Errno::INVAL))?;
        let flags = self.options.flags().map_err(|e| Error::os("open", e))?;
        let op = Openat2::new(path, flags.bits().cast_signed(), self.options.mode);
        Ok((engine, OpFuture::new(Op::from(op), None)))
    }

    fn end(&self, engine: &Engine, completion: Completion) -> Result<File> {
        completion.result?;
        match completion.op.into_kind() {
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
        if this.operation.is_none() {
            if this.options.only_reads()
                && let Some(fd) = open_cached(&this.path)
            {
                let engine = this.options.on().map_err(failed)?;
                let opened = this.options.take_in(fd, this.path.clone(), engine.clone());
                this.operation = Some((engine, OpFuture::Done));
                return Poll::Ready(opened.map_err(failed));
            }
            this.operation = Some(this.begin().map_err(failed)?);
        }
        let Some((engine, mut operation)) = this.operation.take() else {
            return Poll::Pending;
        };
        match operation.poll(&engine, cx) {
            Poll::Ready(completion) => {
                let opened = this.end(&engine, completion);
                this.operation = Some((engine, OpFuture::Done));
                Poll::Ready(opened.map_err(failed))
            }
            Poll::Pending => {
                // In a forked child it would never be told.
                engine.check_process("open").map_err(failed)?;
                this.operation = Some((engine, operation));
                Poll::Pending
            }
        }
    }
}
