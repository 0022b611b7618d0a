//! Opening: [`std::fs::OpenOptions`] with further options, blocking and as a future.

use std::ffi::CString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::OFlags;

use super::File;
use super::keep_cache::KeepCache;
use super::open_cached::open_cached;
use super::open_regular::open_regular;
use crate::engine::completion::Completion;
use crate::engine::{Engine, OpFuture, SpawnBlocking};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::metadata::Metadata;
use crate::op::{Kind, Op, Openat2};
use crate::policy::mode::Mode;
use crate::sys::Errno;
use crate::sys::retry;

/// Options for opening a file: those of [`std::fs::OpenOptions`], with its rules and errors, and
/// further ones.
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
    regular: bool,
    keep_cache: bool,
    cache_mode: Option<Mode>,
    engine: Option<Engine>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

macro_rules! set {
    ($($(#[$doc:meta])* $name:ident: $to:ty,)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, to: $to) -> &mut OpenOptions {
            self.$name = to;
            self
        }
    )*};
}

impl OpenOptions {
    /// Options with nothing set. At least one access mode must be set before opening.
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
            regular: false,
            keep_cache: false,
            cache_mode: None,
            engine: None,
        }
    }

    set! {
        /// Opens the file for reading.
        read: bool,
        /// Opens the file for writing.
        write: bool,
        /// Opens the file for appending: writes go to the end of the file, whatever their offset
        /// (O_APPEND).
        append: bool,
        /// Truncates the file to length 0; needs `write`.
        truncate: bool,
        /// Creates the file if it does not exist; needs `write` or `append`.
        create: bool,
        /// Creates the file, and fails if it exists; needs `write` or `append`. `create` and
        /// `truncate` then have no effect.
        create_new: bool,
        /// Sets further flags of open(2). Access modes in them are ignored.
        custom_flags: i32,
        /// Sets the permission bits of a created file, before the umask is applied. 0o666 if not
        /// set.
        mode: u32,
        /// Bypasses the page cache (O_DIRECT). Offsets, lengths and memory must be aligned as
        /// returned by [`Handle::alignment`]; otherwise the operation fails with
        /// [`Misaligned`](crate::ErrorKind::Misaligned). The page cache is never tried.
        direct: bool,
        /// With [`direct`](OpenOptions::direct): permits positional reads that are not aligned.
        /// Such a read goes through an aligned buffer of the operation: whole blocks are read into
        /// it, and the requested bytes are copied from it. Reads into several buffers by one
        /// operation ([`Readv`](crate::op::Readv)) and writes, which would have to read first, must
        /// still be aligned.
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
        unaligned: bool,
        /// Opens a regular file only. Without this option, opening a FIFO wakes the program at its
        /// other end or waits for one, and opening a device may have an effect. With it, a file of
        /// another type is not opened: the error is [`NotRegular`](crate::ErrorKind::NotRegular),
        /// or EISDIR for a directory. The file is checked and opened by one lookup of the path, if
        /// /proc is mounted. It cannot be combined with options that create the file (EINVAL).
        ///
        /// ```
        /// let refused = nowait::OpenOptions::new().read(true).regular(true).blocking_open("/dev/null");
        /// assert_eq!(refused.unwrap_err().kind(), nowait::ErrorKind::NotRegular);
        /// ```
        regular: bool,
        /// Leaves the page cache as it was. Pages that a read or write of this file makes resident
        /// are evicted behind it, with POSIX_FADV_DONTNEED of posix_fadvise(2), in windows of 8
        /// MiB. Pages that were resident before stay, and cached data is returned at once.
        ///
        /// - The kernel is asked which pages of a window are resident before the first read or write
        ///   of the window. If it does not tell, nothing is evicted: see
        ///   [`File::keeps_cache`]. Nor is it asked about a file of NFS, FUSE and the like, where the
        ///   question may wait for a server ([`Handle::is_served`](crate::Handle::is_served)).
        /// - A window is evicted when eight others were used after it. The rest is evicted when the
        ///   last [`File`] of the inode that was opened with this option is closed. Files of the
        ///   process that are opened with it share what is known of the inode.
        /// - The file that is dropped last evicts in its thread. If it was used by futures and has
        ///   more than one window, a worker evicts. A process that ends earlier leaves the pages in
        ///   the cache.
        /// - Written data is evicted once it is written back. When the file is closed, a worker
        ///   waits for that, at most for 8 seconds, and for at most 256 files at a time. To be sure,
        ///   call [`sync_data`](File::sync_data) before. Meanwhile the worker has a descriptor of the
        ///   file, of O_PATH.
        /// - Pages that another process reads first while the window is not yet evicted may be
        ///   evicted, too. Pages that another process maps, locks or has changed stay.
        /// - On overlayfs the kernel does not report a page that it is reading. Pages that become
        ///   resident after the eviction may come from a readahead of this process. They are evicted
        ///   if they were not resident before and become resident within 5 milliseconds. Within half
        ///   a second they are evicted if they lie directly behind pages that were resident before,
        ///   or directly behind evicted pages that are not resident again. Pages that another process
        ///   reads in that time and in that place are therefore evicted, too.
        /// - The process keeps its locks of fcntl(2) on the file. On overlayfs it loses them, because
        ///   the file is opened and closed for each question to the kernel.
        /// - It applies to the reads and writes of [`File`]. It does not apply to operations on
        ///   its handle, mappings, and the tokio file.
        ///
        /// ```
        /// use nowait::residency::residency;
        /// # let dir = tempfile::tempdir_in(".")?;
        /// # let path = dir.path().join("file");
        /// # std::fs::write(&path, vec![7; 100_000])?;
        /// let before = residency(std::fs::File::open(&path)?, 0..u64::MAX)?;
        /// let file = nowait::OpenOptions::new().read(true).keep_cache(true).blocking_open(&path)?;
        /// if let Err(reason) = file.keeps_cache() {
        ///     println!("{reason}");
        /// }
        /// let mut buf = [0; 4096];
        /// assert_eq!(file.blocking_read_at(&mut buf, 50_000)?, 4096);
        /// drop(file);
        /// let after = residency(std::fs::File::open(&path)?, 0..u64::MAX)?;
        /// assert_eq!(before.known().map(|it| it.cached), after.known().map(|it| it.cached));
        /// # Ok::<(), std::io::Error>(())
        /// ```
        keep_cache: bool,
    }

    /// Sets how this file's reads treat the page cache, instead of the engine's mode.
    pub fn cache_mode(&mut self, mode: Mode) -> &mut OpenOptions {
        self.cache_mode = Some(mode);
        self
    }

    /// Uses this engine instead of the process's.
    pub fn engine(&mut self, engine: &Engine) -> &mut OpenOptions {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens the file on the engine: openat2(2). If a regular file is opened for reading only and
    /// its path is cached, no engine is needed, and the future is ready at the first poll. This
    /// needs Linux 5.12 and ext4, xfs or f2fs; or Linux 6.8 and btrfs, tmpfs or overlayfs whose layers
    /// are on one local filesystem. A file of the same mount must have been opened before.
    pub fn open(&self, path: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            path: path.as_ref().into(),
            state: Opening::New,
        }
    }

    /// Opens the file. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path; or an error if no engine can be created.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<File> {
        let engine = self.on()?;
        let handle = self.blocking_handle(path.as_ref().into(), &engine)?;
        self.take_in(handle, engine)
    }

    pub(super) fn blocking_handle(&self, path: Arc<Path>, engine: &Engine) -> Result<Handle> {
        let failed = |errno| Error::os("open", errno).on(Some(&path));
        let flags = self.flags().map_err(failed)?;
        let fd = if self.regular {
            open_regular(&path, flags).map_err(|e| e.on(Some(&path)))?
        } else {
            let open = || rustix::fs::open(&*path, flags, self.permissions());
            retry::interrupted(open).map_err(failed)?
        };
        Handle::with(fd, Some(path), Some(self.mode_on(engine)))
    }

    /// Returns true if no option except `read` is set.
    fn only_reads(&self) -> bool {
        self.flags() == Ok(OFlags::RDONLY | OFlags::CLOEXEC)
    }

    /// Returns true if a worker may read the file when it opens it. O_DIRECT is found by the handle.
    pub(super) fn may_be_read(&self) -> bool {
        self.read && !self.keep_cache
    }

    /// Opens a file in the calling thread, if these options permit it and it does not block. Returns its basic
    /// metadata, too.
    pub(super) fn open_cached(&self, path: &Arc<Path>) -> Result<Option<(File, Metadata)>> {
        if !self.only_reads() {
            return Ok(None);
        }
        let failed = |errno| Error::os("open", errno);
        let Some(opened) = open_cached(path).transpose().map_err(failed)? else {
            return Ok(None);
        };
        let engine = self.on()?;
        let (metadata, mode) = (opened.metadata, self.mode_on(&engine));
        let handle = opened.into_handle(Some(path.clone()), Some(mode));
        let file = self.take_in(handle.map_err(failed)?, engine)?;
        Ok(Some((file, metadata)))
    }

    pub(super) fn mode_on(&self, engine: &Engine) -> Mode {
        self.cache_mode.unwrap_or(engine.policy().mode)
    }

    pub(super) fn take_in(&self, mut handle: Handle, engine: Engine) -> Result<File> {
        if self.unaligned {
            handle = handle.with_unaligned_reads();
        }
        let mut file = File::of(handle, engine);
        if self.keep_cache {
            file.keep_cache = KeepCache::new(&file.handle, &file.engine);
        }
        Ok(file)
    }

    pub(super) fn on(&self) -> Result<Engine> {
        self.engine.clone().map_or_else(Engine::process, Ok)
    }

    /// The flags of open(2), by the standard library's rules.
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
        if self.regular && (self.create || self.create_new) {
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
    /// Opens a file for reading, on the process's engine. Returns a future: write `File::open(path).await?`.
    /// Without an executor, [`blocking_open`](Self::blocking_open) does the same.
    pub fn open(path: impl AsRef<Path>) -> Open {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for reading, on the process's engine. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path.
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
    state: Opening,
}

#[derive(Debug)]
enum Opening {
    New,
    /// openat2(2), on the ring or a worker.
    Operation(Engine, OpFuture),
    /// A worker opens a regular file, or identifies a file that was opened: some filesystems ask a server.
    Handle(Engine, SpawnBlocking<Result<Handle>>),
    Done,
}

impl Open {
    fn begin(&self) -> Result<Opening> {
        let engine = self.options.on()?;
        engine.check_process("open")?;
        let failed = |errno| Error::os("open", errno);
        let flags = self.options.flags().map_err(failed)?;
        if self.options.regular {
            let (path, mode) = (self.path.clone(), Some(self.options.mode_on(&engine)));
            let open = move || Handle::with(open_regular(&path, flags)?, Some(path), mode);
            let open = engine.spawn_blocking(open);
            return Ok(Opening::Handle(engine, open));
        }
        // A path that contains a NUL byte names no file.
        let path =
            CString::new(self.path.as_os_str().as_bytes()).map_err(|_| failed(Errno::INVAL))?;
        let op = Openat2::new(path, flags.bits().cast_signed(), self.options.mode);
        Ok(Opening::Operation(engine, OpFuture::new(Op::from(op))))
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<File>> {
        let options = &self.options;
        if matches!(self.state, Opening::New) {
            if let Some((file, _)) = options.open_cached(&self.path)? {
                return Poll::Ready(Ok(file));
            }
            self.state = self.begin()?;
        }
        if let Opening::Operation(engine, operation) = &mut self.state {
            let fd = match operation.poll(engine, cx) {
                Poll::Ready(done) => opened(done)?,
                Poll::Pending => return pending(engine),
            };
            let (path, mode) = (Some(self.path.clone()), Some(options.mode_on(engine)));
            match Handle::with_at_once(fd, path.clone(), mode) {
                Ok(handle) => return Poll::Ready(options.take_in(handle, engine.clone())),
                Err(fd) => {
                    let identify = engine.spawn_blocking(move || Handle::with(fd, path, mode));
                    self.state = Opening::Handle(engine.clone(), identify);
                }
            }
        }
        let Opening::Handle(engine, handle) = &mut self.state else {
            return Poll::Pending;
        };
        match Pin::new(handle).poll(cx) {
            Poll::Ready(handle) => Poll::Ready(options.take_in(handle??, engine.clone())),
            Poll::Pending => pending(engine),
        }
    }
}

/// In a forked child the future would never be woken.
fn pending(engine: &Engine) -> Poll<Result<File>> {
    engine
        .check_process("open")
        .map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending)
}

/// The descriptor that an openat2(2) has opened.
fn opened(done: Completion) -> Result<OwnedFd> {
    done.result?;
    match done.op.into_kind() {
        Kind::Openat2(op) => op.into_fd(),
        _ => None,
    }
    .ok_or(Error::os("open", Errno::BADF))
}

impl Future for Open {
    type Output = Result<File>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<File>> {
        let this = self.get_mut();
        let opened = ready!(this.poll_open(cx));
        this.state = Opening::Done;
        Poll::Ready(opened.map_err(|error| error.named("open").on(Some(&this.path))))
    }
}
