//! File: the equivalent of `tokio::fs::File`, on the read path and the engine.

use std::fmt;
use std::fs::{File as StdFile, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::UnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use ::tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use ::tokio::sync::Mutex;
use once_cell::race::OnceBox;

use super::budget;
use super::description::Description;
use super::error::as_io;
use super::metadata::{self, at_once};
use super::stream::Stream;
use super::worker::on_worker;
use crate::buffer::{IoBuf, IoBufMut};
use crate::engine::Engine;
use crate::engine::completion::BufResult;
use crate::error::Result;
use crate::handle::Handle;
use crate::metadata::StatxMask;
use crate::op::Statx;
use crate::policy::provenance::ServedBy;
use crate::read::Recent;
use crate::sys;

/// The most bytes that one read or write moves, unless set otherwise: 2 MiB, as in tokio.
const MAX_BUF_SIZE: usize = 2 << 20;

/// An open file on an engine, with the interface and the behaviour of `tokio::fs::File`.
///
/// [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`] use and move the kernel's position of the open
/// file. [Clones](File::try_clone) share the position, and so do duplicates of the descriptor, such
/// as the standard output of a child process. `read_at` and the other positional methods need no
/// position: they take `&self` and run concurrently. A write is complete when the next `flush`
/// returns. Dropping the file earlier does not cancel the write. What was written is on the device
/// after [`sync_all`](File::sync_all) or [`sync_data`](File::sync_data), and `flush` does not sync.
///
/// If this library has opened the file, and its descriptor was not given out
/// ([`as_fd`](File::as_fd)), and it has no clone, then a read that is not cached goes to the engine
/// as a positional read. The poll that takes its result moves the position. A descriptor that is
/// taken while such a read is in flight has the old position until then.
///
/// The kernel locks the position during any other call that uses it, also while that call waits for
/// a device. Clones know of each other's calls, and do not touch the position while one of them
/// waits. Other holders of the open file (child processes, duplicates of the descriptor) are
/// unknown to this library. If one of them waits for a device in a call that uses the position, the
/// next read or write here that tries the page cache blocks the calling thread until that call
/// returns. After a try that was seen to take more than a millisecond, the calls of the file and its clones go to
/// workers. They go to workers permanently if the first of them finds the position locked. Each try is timed if
/// the file has clones or its descriptor was given out, and one in 16 otherwise: then only a forked child can be
/// another holder.
///
/// Dropping the file discards the error of close(2), as tokio and the standard library do. NFS, FUSE and
/// quotas may report the loss of written data only there. To receive the error of close(2), convert the file ([`into_std`](File::into_std),
/// [`nowait::File::from_fd`](crate::File::from_fd)) and call
/// [`nowait::File::close`](crate::File::close).
///
/// There are two differences from tokio. Errors keep the kernel's errno (`raw_os_error`). A seek
/// that fails keeps data that was read and not yet returned; tokio's discards it.
pub struct File {
    handle: Handle,
    /// The file on its engine: set on opening, or on the first use that needs an engine.
    on: OnceBox<crate::File>,
    description: Arc<Description>,
    stream: Mutex<Stream>,
    most: usize,
    /// The size when the file was opened, until the stream is used.
    opened_size: Option<u64>,
}

/// Calls at an offset, which are those of [`crate::File`].
macro_rules! positional {
    ($($(#[$doc:meta])* $name:ident<$trait:ident>($buffer:ident: $type:ty);)*) => {$(
        $(#[$doc])*
        pub async fn $name<B: $trait>(&self, $buffer: $type, offset: u64) -> BufResult<$type> {
            match self.file() {
                Ok(file) => in_turn(file.$name($buffer, offset)).await,
                Err(error) => BufResult::failed(error, $buffer),
            }
        }
    )*};
}

impl File {
    /// Converts an open file. The stream continues at the file's position, on the process's engine.
    pub fn from_std(std: StdFile) -> File {
        File::of(Handle::of_any(std.into()), true)
    }

    /// A newly opened descriptor on an engine.
    pub(super) fn on(handle: Handle, engine: Engine) -> File {
        let file = File::of(handle, false);
        let _ = file
            .on
            .set(Box::new(crate::File::of(file.handle.clone(), engine)));
        file
    }

    /// The same file, whose size was asked for when it was opened.
    pub(super) fn with_size(mut self, size: u64) -> File {
        self.opened_size = Some(size);
        self
    }

    /// The same file, all of which was read when it was opened.
    pub(super) fn with_contents(mut self, contents: Vec<u8>) -> File {
        *self.stream.get_mut() = Stream::with_contents(&self.description, contents);
        self
    }

    fn of(handle: Handle, is_given_out: bool) -> File {
        let description = Arc::new(Description::new(handle.clone(), is_given_out));
        File {
            stream: Mutex::new(Stream::new(&description)),
            description,
            handle,
            on: OnceBox::new(),
            most: MAX_BUF_SIZE,
            opened_size: None,
        }
    }

    /// The file on its engine.
    fn file(&self) -> Result<&crate::File> {
        file_of(&self.on, &self.handle)
    }

    /// Waits until no call of this file is queued or running, and locks the stream.
    async fn settled(&self) -> io::Result<(&crate::File, ::tokio::sync::MutexGuard<'_, Stream>)> {
        let file = self.file().map_err(as_io)?;
        let mut stream = self.stream.lock().await;
        std::future::poll_fn(|cx| stream.poll_settle(file, cx)).await;
        Ok((file, stream))
    }

    /// Runs a blocking call on the file in a worker.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&StdFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let handle = self.handle.clone();
        let engine = self.file().map_err(as_io)?.engine();
        on_worker(engine, Some(&self.handle), move || {
            sys::stat::as_std(handle.as_fd(), |file| call(file))
        })
        .await
    }

    /// Writes data and metadata to the device: fsync(2). Waits for earlier writes first.
    ///
    /// # Errors
    /// The errors of fsync(2). The error of a write is returned by `flush` or the next write.
    pub async fn sync_all(&self) -> io::Result<()> {
        let (file, _stream) = self.settled().await?;
        file.sync_all().await.map_err(as_io)
    }

    /// Writes data, and the metadata needed to read it back, to the device: fdatasync(2).
    ///
    /// # Errors
    /// As [`sync_all`](File::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        let (file, _stream) = self.settled().await?;
        file.sync_data().await.map_err(as_io)
    }

    /// Truncates the file to `size` bytes, or extends it with zeros to `size` bytes: ftruncate(2).
    /// The position does not change.
    ///
    /// # Errors
    /// The errors of ftruncate(2).
    pub async fn set_len(&self, size: u64) -> io::Result<()> {
        let (file, mut stream) = self.settled().await?;
        stream.set_len(file, size).await
    }

    /// The metadata of the file: fstat(2). The result is ready at the first poll on ext4, xfs, f2fs,
    /// btrfs and tmpfs.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub async fn metadata(&self) -> io::Result<Metadata> {
        match at_once(|| metadata::of_file(&self.handle)).await {
            Some(metadata) => metadata,
            None => self.call(StdFile::metadata).await,
        }
    }

    /// These fields of the metadata of the file: statx(2) (Linux 4.11). (tokio has no such method.)
    /// The result is ready at the first poll in the cases of [`metadata`](File::metadata), and on
    /// overlayfs if its layers are local.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub async fn statx(&self, fields: StatxMask) -> io::Result<crate::Metadata> {
        let statx = Statx::of(&self.handle, fields);
        match at_once(|| statx.try_cached().map(|it| it.map_err(as_io))).await {
            Some(metadata) => metadata,
            None => {
                let flags = libc::AT_EMPTY_PATH;
                self.call(move |file| {
                    crate::Metadata::statx(file, "", flags, fields).map_err(as_io)
                })
                .await
            }
        }
    }

    /// Returns another handle to the same open file. Reads, writes and seeks of either handle move
    /// the position of both.
    ///
    /// # Errors
    /// An error if no engine can be created.
    pub async fn try_clone(&self) -> io::Result<File> {
        let (file, _stream) = self.settled().await?;
        let on = OnceBox::with_value(Box::new(file.clone()));
        Ok(File {
            handle: self.handle.clone(),
            on,
            description: self.description.clone(),
            stream: Mutex::new(Stream::new(&self.description)),
            most: self.most,
            opened_size: None,
        })
    }

    /// Converts into the standard library's file, at the same position. Waits for calls in
    /// progress.
    pub async fn into_std(self) -> StdFile {
        let mut this = self;
        loop {
            if let Ok((_, stream)) = this.settled().await {
                drop(stream);
            }
            match this.try_into_std() {
                Ok(std) => return std,
                Err(busy) => this = busy,
            }
            // No descriptor is free to duplicate one that others still use. Wait until one is
            // released.
            ::tokio::task::yield_now().await;
        }
    }

    /// Converts into the standard library's file, at the same position.
    ///
    /// # Errors
    /// The file itself, if a call is in progress.
    #[expect(
        clippy::result_large_err,
        reason = "as in tokio: the file is the error"
    )]
    pub fn try_into_std(self) -> std::result::Result<StdFile, File> {
        if self.stream.try_lock().is_ok_and(|stream| stream.is_busy()) {
            return Err(self);
        }
        let File {
            handle,
            on,
            description,
            stream,
            most,
            opened_size,
        } = self;
        description.give_out();
        let stream = stream.into_inner();
        let engine = on.get().map(|file| file.engine().clone());
        drop(on);
        let handle = match handle.into_fd() {
            Ok(fd) => return Ok(fd.into()),
            Err(handle) => handle,
        };
        // A clone still uses the descriptor, or a read whose future was dropped. Return a duplicate
        // of the descriptor.
        if let Ok(fd) = handle.as_fd().try_clone_to_owned() {
            return Ok(fd.into());
        }
        let on = OnceBox::new();
        if let Some(engine) = engine {
            let _ = on.set(Box::new(crate::File::of(handle.clone(), engine)));
        }
        let stream = Mutex::new(stream);
        Err(File {
            handle,
            on,
            description,
            stream,
            most,
            opened_size,
        })
    }

    /// Changes the permission bits: fchmod(2).
    ///
    /// # Errors
    /// The errors of fchmod(2).
    pub async fn set_permissions(&self, to: Permissions) -> io::Result<()> {
        self.call(move |file| file.set_permissions(to)).await
    }

    /// Changes the timestamps: futimens(2).
    ///
    /// # Errors
    /// The errors of futimens(2).
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        let _stream = self.settled().await?;
        self.call(move |file| file.set_times(times)).await
    }

    /// Changes the modification time.
    ///
    /// # Errors
    /// As [`set_times`](File::set_times).
    pub async fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time)).await
    }

    /// Sets the maximum number of bytes that one read or write of the stream moves.
    ///
    /// # Panics
    /// If `bytes` is 0, as in tokio.
    #[track_caller]
    pub fn set_max_buf_size(&mut self, bytes: usize) {
        assert!(bytes > 0, "`max_buf_size` must be greater than 0");
        self.most = bytes;
    }

    /// The maximum number of bytes that one read or write of the stream moves.
    pub fn max_buf_size(&self) -> usize {
        self.most
    }

    positional! {
        /// Reads into `buffer` from `offset` on: [`File::read_at`](crate::File::read_at). Any
        /// number of these reads may run concurrently on one file, beside its stream.
        read_at<IoBufMut>(buffer: B);
        /// Fills `buffer` from `offset` on: [`File::read_exact_at`](crate::File::read_exact_at).
        read_exact_at<IoBufMut>(buffer: B);
        /// Fills the buffers in order, from `offset` on:
        /// [`File::read_vectored_at`](crate::File::read_vectored_at).
        read_vectored_at<IoBufMut>(buffers: Vec<B>);
        /// Writes `buffer` at `offset`: [`File::write_at`](crate::File::write_at).
        write_at<IoBuf>(buffer: B);
        /// Writes all of `buffer` at `offset`: [`File::write_all_at`](crate::File::write_all_at).
        write_all_at<IoBuf>(buffer: B);
        /// Writes the buffers in order, at `offset`:
        /// [`File::write_vectored_at`](crate::File::write_vectored_at).
        write_vectored_at<IoBuf>(buffers: Vec<B>);
    }

    /// The hit history of this file's reads.
    pub fn history(&self) -> Recent {
        self.handle.history().recent()
    }
}

/// Runs a positional call within the task's cooperative budget.
async fn in_turn<B>(call: impl Future<Output = BufResult<B>>) -> BufResult<B> {
    budget::in_turn(call, |done| {
        let provenance = &done.provenance;
        (provenance.served_by == ServedBy::Caller).then_some(provenance.cached)
    })
    .await
}

/// The file on its engine. If no engine was set, it is the process's.
fn file_of<'a>(on: &'a OnceBox<crate::File>, handle: &Handle) -> Result<&'a crate::File> {
    if let Some(file) = on.get() {
        return Ok(file);
    }
    let engine = Engine::process()?;
    Ok(on.get_or_init(|| Box::new(crate::File::of(handle.clone(), engine))))
}

impl File {
    /// The parts that one poll of the stream needs.
    fn parts(self: Pin<&mut Self>) -> io::Result<(&crate::File, &mut Stream, usize)> {
        let this = self.get_mut();
        this.opened_size = None;
        let file = file_of(&this.on, &this.handle).map_err(as_io)?;
        Ok((file, this.stream.get_mut(), this.most))
    }
}

/// The parts of a read to the end.
impl File {
    pub(super) fn is_regular(&self) -> bool {
        self.handle.is_regular()
    }

    /// Returns true if the file is one of the kernel's own, whose size may be 0 although it has bytes.
    pub(super) fn is_in_kernel(&self) -> bool {
        self.handle.filesystem().is_in_kernel()
    }

    pub(super) fn is_busy(&mut self) -> bool {
        self.stream.get_mut().is_busy()
    }

    /// The size when the file was opened, if the stream was not used since.
    pub(super) fn take_opened_size(&mut self) -> Option<u64> {
        self.opened_size.take()
    }

    /// The size, if the kernel or the filesystem's server tells.
    pub(super) async fn size(&self) -> Option<u64> {
        self.statx(StatxMask::SIZE).await.ok().map(|it| it.len())
    }

    /// Returns true if the file has this size, and the calling thread need not wait to know it.
    pub(super) fn has_size(&self, size: usize) -> bool {
        let asked = Statx::of(&self.handle, StatxMask::SIZE).try_cached();
        asked.is_some_and(|asked| asked.is_ok_and(|it| it.len() == size as u64))
    }

    /// The kernel's position and the number of unread bytes before it, if the calling thread can ask for it.
    pub(super) fn position(&mut self) -> Option<(u64, usize)> {
        let file = file_of(&self.on, &self.handle).ok()?;
        self.stream.get_mut().position(file)
    }
}

impl AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (file, stream, most) = self.parts()?;
        stream.poll_read(file, cx, dst, most)
    }
}

impl AsyncWrite for File {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (file, stream, most) = self.parts()?;
        stream.poll_write(file, cx, &[io::IoSlice::new(bytes)], most)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (file, stream, most) = self.parts()?;
        stream.poll_write(file, cx, slices, most)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (file, stream, _) = self.parts()?;
        stream.poll_flush(file, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for File {
    fn start_seek(self: Pin<&mut Self>, to: io::SeekFrom) -> io::Result<()> {
        let this = self.get_mut();
        this.opened_size = None;
        let file = file_of(&this.on, &this.handle).map_err(as_io);
        this.stream.get_mut().start_seek(file, to)
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let (file, stream, _) = self.parts()?;
        stream.poll_complete(file, cx)
    }
}

impl From<StdFile> for File {
    fn from(std: StdFile) -> File {
        File::from_std(std)
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File::from_std(fd.into())
    }
}

/// Converts a file that was opened with options that only [`crate::OpenOptions`] has, such as an
/// engine or a mode.
impl From<crate::File> for File {
    fn from(file: crate::File) -> File {
        let made = File::of(file.handle().clone(), true);
        let _ = made.on.set(Box::new(file));
        made
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.description.give_out();
        self.handle.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// As in tokio. If a poll unwinds (out of a waker, for example), the file can still be dropped or
/// used. Memory that the kernel may touch belongs to the operation.
impl UnwindSafe for File {}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("nowait::tokio::File")
            .field("fd", &self.handle.as_fd().as_raw_fd())
            .field("engine", &self.on.get().map(crate::File::engine))
            .finish_non_exhaustive()
    }
}
