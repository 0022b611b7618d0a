//! The stream of a file, behind its AsyncRead, AsyncWrite and AsyncSeek. It makes one call at a
//! time, at the kernel's position.
//!
//! ```text
//!  poll_read ─► call in progress ended? ─► unread bytes? ─► read::start at the position ─ some ─► Ready
//!                                              └ none ─► the engine or a worker reads ─► unread ─► Ready
//!  poll_write ─► call in progress ended? ─► write::start at the position ─ some ─► Ready
//!                                            └ none ─► a worker writes a copy; Ready immediately
//! ```
//! A write that was accepted is in progress when `poll_write` returns. The next call returns its
//! result. A read whose future is dropped continues, and the next read returns its bytes.
//!
//! [`Description`] orders the calls at the position of a seekable file. Pipes, sockets and
//! terminals have no position: their reads and writes are operations of the engine, so that a ring
//! can wait for them.
//!
//! If no other holder of the position is possible, a read is an operation of the engine, too: at
//! the offset where the position is. The poll that takes its result moves the position.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use ::tokio::io::ReadBuf;

use super::budget::poll_turn;
use super::description::{Asked, Description};
use super::error::as_io;
use super::read_buf::start_into_read_buf;
use super::transfer::{self, Ended, Transfer};
use super::unread::Unread;
use crate::engine::OpFuture;
use crate::engine::completion::Completion;
use crate::engine::{Engine, Reserved, Watch};
use crate::file::File;
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::{Kind, Op};
use crate::read::start::Start;
use crate::write;

/// The state of a file's stream.
#[derive(Debug)]
pub(super) struct Stream {
    description: Arc<Description>,
    doing: Doing,
    contents: Option<Contents>,
    unread: Unread,
    /// The error of a write that has not been returned yet.
    failed: Option<io::Error>,
    /// The result of the last seek.
    sought: u64,
    /// The registration with a full engine.
    watch: Option<Watch>,
}

/// All bytes of a file, which were read when it was opened.
struct Contents {
    bytes: Vec<u8>,
    /// The position, unless another holder has moved it.
    position: u64,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.bytes.len(), self.position)
    }
}

#[derive(Debug)]
enum Doing {
    Nothing,
    /// An operation on a file without a position.
    Operation(OpFuture),
    /// A read at the offset where the position is.
    ReadAt(OpFuture, u64),
    /// A call at the position.
    Call(Asked),
    /// A seek that has ended.
    Sought(io::Result<u64>),
    /// A seek that waits for a permit in the engine.
    Seek(io::SeekFrom),
}

impl Stream {
    pub(super) fn new(description: &Arc<Description>) -> Stream {
        Stream {
            description: description.clone(),
            doing: Doing::Nothing,
            contents: None,
            unread: Unread::default(),
            failed: None,
            sought: 0,
            watch: None,
        }
    }

    /// The stream of a file that was just opened, with its contents.
    pub(super) fn with_contents(description: &Arc<Description>, contents: Vec<u8>) -> Stream {
        Stream {
            contents: Some(Contents {
                bytes: contents,
                position: 0,
            }),
            ..Stream::new(description)
        }
    }

    /// Returns true if a call is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.doing, Doing::Nothing)
    }

    /// Waits for the call in progress. The error of a write is kept for the next write or flush.
    pub(super) fn poll_settle(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(Ended::Write(Err(error), _)) = ready!(self.poll_ended(file, cx)) {
            self.failed = Some(error);
        }
        Poll::Ready(())
    }

    /// The kernel's position, and the number of unread bytes before it. `None` if a call of a clone is queued or running.
    pub(super) fn position(&self, file: &File) -> Option<(u64, usize)> {
        let tell = || rustix::fs::tell(file.handle()).ok();
        let position = self.description.at_once(file.engine(), tell)??;
        Some((position, self.unread.len()))
    }

    pub(super) fn poll_read(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        let turn = ready!(poll_turn(cx));
        let filled = dst.filled().len();
        let read = ready!(self.poll_read_in_turn(file, cx, dst, most));
        turn.copied(dst.filled().len() - filled, cx);
        Poll::Ready(read)
    }

    fn poll_read_in_turn(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        loop {
            match ready!(self.poll_ended(file, cx)) {
                None => {
                    if self.unread.give(dst) > 0 || dst.remaining() == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    let want = dst.remaining().min(most);
                    if let Some(read) = self.read_contents(file, dst, want) {
                        return Poll::Ready(read);
                    }
                    if let Some(read) = self.read_at_once(file, dst, want) {
                        return Poll::Ready(read);
                    }
                    ready!(self.poll_begin_read(file, cx, want))?;
                }
                Some(Ended::Read(read, _)) => {
                    self.unread.give(dst);
                    return Poll::Ready(read);
                }
                Some(Ended::Write(Err(error), _)) => self.failed = Some(error),
                Some(_) => {}
            }
        }
    }

    /// Serves a read from the contents that were read when the file was opened, and moves the position. Discards the
    /// contents if there may be another holder of the position, or if it was moved.
    fn read_contents(
        &mut self,
        file: &File,
        dst: &mut ReadBuf<'_>,
        want: usize,
    ) -> Option<io::Result<()>> {
        let mut contents = self.contents.take()?;
        let position = self.description.private_position()?;
        let start = usize::try_from(position).ok()?;
        let rest = contents.bytes.get(start..)?;
        if position != contents.position || rest.is_empty() {
            return None;
        }
        let n = want.min(rest.len());
        match self.description.advance(file.engine(), position, n) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        dst.put_slice(&rest[..n]);
        contents.position += n as u64;
        self.contents = (n < rest.len()).then_some(contents);
        Some(Ok(()))
    }

    /// Serves a read from the page cache.
    fn read_at_once(
        &mut self,
        file: &File,
        dst: &mut ReadBuf<'_>,
        want: usize,
    ) -> Option<io::Result<()>> {
        let (handle, engine) = (file.handle(), file.engine());
        if !handle.is_regular() {
            return None;
        }
        let tried = want.min(engine.policy().copy_limit.max(1));
        let started = self.description.at_once(engine, || {
            start_into_read_buf(dst, tried, |space| {
                let path = engine.read_path();
                path.start(handle, space, None, RwFlags::empty())
            })
        })?;
        match started {
            Start::Failed(errno) => Some(Err(errno.into())),
            Start::Rest(rest) if rest.done == 0 => None,
            Start::Rest(_) | Start::Done(..) => Some(Ok(())),
        }
    }

    fn poll_begin_read(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        want: usize,
    ) -> Poll<io::Result<()>> {
        let (handle, engine) = (file.handle(), file.engine());
        let permit = ready!(self.poll_permit(file, cx, "read"))?;
        let room = self.unread.take_room();
        self.doing = if !handle.is_seekable() {
            let read = transfer::read(handle, room, want);
            Doing::Operation(OpFuture::reserved(engine, Op::from(read), permit))
        } else if let Some(at) = self.description.private_position_for_ring() {
            let mut read = transfer::read(handle, room, want);
            read.at(at);
            Doing::ReadAt(OpFuture::reserved(engine, Op::from(read), permit), at)
        } else {
            self.ask(engine, Transfer::read(handle, room, want), permit)
        };
        Poll::Ready(Ok(()))
    }

    /// Reserves a permit in the engine.
    fn poll_permit<'e>(
        &mut self,
        file: &'e File,
        cx: &Context<'_>,
        what: &'static str,
    ) -> Poll<io::Result<Reserved<'e>>> {
        let (handle, engine) = (file.handle(), file.engine());
        engine.check_process(what).map_err(as_io)?;
        match engine.reserve(handle, cx.waker(), &mut self.watch) {
            Some(permit) => Poll::Ready(Ok(permit)),
            None => Poll::Pending,
        }
    }

    fn ask(&self, engine: &Engine, transfer: Transfer, permit: Reserved<'_>) -> Doing {
        Doing::Call(self.description.ask(engine, transfer, permit))
    }

    /// Writes the slices, at most `most` bytes: in the calling thread if that is known not to
    /// block. Otherwise it starts a write of a copy and returns the number of bytes copied.
    pub(super) fn poll_write(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let turn = ready!(poll_turn(cx));
        loop {
            match ready!(self.poll_ended(file, cx)) {
                None => break,
                Some(Ended::Write(Err(error), _)) => {
                    turn.called();
                    return Poll::Ready(Err(error));
                }
                // The position reflects the results of reads and seeks.
                Some(_) => {}
            }
        }
        let written = ready!(self.poll_begin_write(file, cx, slices, most));
        turn.copied(*written.as_ref().unwrap_or(&0), cx);
        Poll::Ready(written)
    }

    fn poll_begin_write(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let (handle, engine) = (file.handle(), file.engine());
        let Some(first) = slices.iter().find(|slice| !slice.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        if handle.is_regular() && self.unread.is_empty() && !handle.nowait_write().is_refused() {
            let piece = &first[..first.len().min(most)];
            let start = || write::start(engine.policy(), handle, piece, None);
            if let Some(n @ 1..) = self.description.at_once(engine, start) {
                return Poll::Ready(Ok(n));
            }
        }
        // A write that was accepted must complete even if it is never polled again. It therefore
        // needs a permit.
        let permit = ready!(self.poll_permit(file, cx, "write"))?;
        let back = self.unread.len();
        let mut copy = self.unread.take_room();
        for slice in slices {
            let room = most - copy.len();
            copy.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let n = copy.len();
        self.doing = if handle.is_seekable() || back > 0 {
            self.ask(engine, Transfer::write(handle, copy, back), permit)
        } else {
            let write = transfer::write(handle, copy);
            Doing::Operation(OpFuture::reserved(engine, Op::from(write), permit))
        };
        Poll::Ready(Ok(n))
    }

    /// Waits until the kernel has accepted all written bytes, and returns the result.
    pub(super) fn poll_flush(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(match ready!(self.poll_ended(file, cx)) {
            Some(Ended::Write(written, _)) => written,
            _ => Ok(()),
        })
    }

    /// Starts a seek immediately, or as soon as a worker is available.
    pub(super) fn start_seek(
        &mut self,
        file: io::Result<&File>,
        to: io::SeekFrom,
    ) -> io::Result<()> {
        if self.is_busy() {
            return Err(io::Error::other(
                "another operation on this file is in progress; call poll_complete before start_seek",
            ));
        }
        self.doing = Doing::Seek(to);
        if let Ok(file) = file {
            // Without a permit in the engine the seek begins at the next poll.
            let _ = self.poll_begin_seek(file, &Context::from_waker(Waker::noop()), to);
        }
        Ok(())
    }

    fn poll_begin_seek(&mut self, file: &File, cx: &Context<'_>, to: io::SeekFrom) -> Poll<()> {
        let (handle, engine) = (file.handle(), file.engine());
        let waits = handle.is_seekable() && !seeks_at_once(handle, to);
        let seek = || Transfer::seek(to, self.unread.len()).make(handle);
        let sought = match waits {
            true => None,
            false => self.description.at_once(engine, seek),
        };
        self.doing = match sought {
            Some(Ended::Seek(sought)) => Doing::Sought(sought),
            _ => match ready!(self.poll_permit(file, cx, "seek")) {
                Ok(permit) => {
                    let seek = Transfer::seek(to, self.unread.len());
                    self.ask(engine, seek, permit)
                }
                Err(error) => Doing::Sought(Err(error)),
            },
        };
        Poll::Ready(())
    }

    pub(super) fn poll_complete(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        loop {
            match ready!(self.poll_ended(file, cx)) {
                None => return Poll::Ready(Ok(self.sought)),
                Some(Ended::Seek(sought)) => return Poll::Ready(sought),
                Some(Ended::Write(Err(error), _)) => self.failed = Some(error),
                Some(_) => {}
            }
        }
    }

    /// Changes the file's size. Unread bytes are discarded, because they may no longer be in the
    /// file.
    pub(super) async fn set_len(&mut self, file: &File, size: u64) -> io::Result<()> {
        let poll = |cx: &mut Context<'_>| self.poll_permit(file, cx, "set_len");
        let permit = std::future::poll_fn(poll).await?;
        let transfer = Transfer::set_len(size, self.unread.len());
        self.unread.forget();
        self.doing = self.ask(file.engine(), transfer, permit);
        match std::future::poll_fn(|cx| self.poll_ended(file, cx)).await {
            Some(Ended::SetLen(set)) => set,
            _ => Ok(()),
        }
    }

    /// Drives the call in progress until it has ended. Returns `None` if there is none.
    fn poll_ended(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<Option<Ended>> {
        if let Doing::Seek(to) = self.doing {
            ready!(self.poll_begin_seek(file, cx, to));
        }
        let ended = match &mut self.doing {
            Doing::Nothing | Doing::Seek(_) => return Poll::Ready(None),
            Doing::Operation(operation) => ended(ready!(operation.poll(file.engine(), cx))),
            Doing::ReadAt(operation, at) => {
                let done = ready!(operation.poll(file.engine(), cx));
                let n = *done.result.as_ref().unwrap_or(&0);
                let moved = self.description.advance(file.engine(), *at, n);
                let mut ended = ended(done);
                if let (Ended::Read(result, _), Err(error)) = (&mut ended, moved) {
                    *result = Err(error);
                }
                ended
            }
            Doing::Call(asked) => ready!(asked.poll(cx)),
            Doing::Sought(sought) => {
                let sought = std::mem::replace(sought, Ok(0));
                Ended::Seek(sought)
            }
        };
        self.doing = Doing::Nothing;
        Poll::Ready(Some(self.take_in(ended)))
    }

    /// Takes back the memory that a call used, with the bytes it read.
    fn take_in(&mut self, mut ended: Ended) -> Ended {
        match &mut ended {
            Ended::Read(_, read) => self.unread = Unread::new(std::mem::take(read)),
            Ended::Write(_, written) => {
                self.unread = Unread::new(std::mem::take(written));
                self.unread.forget();
            }
            Ended::Seek(Ok(to)) => {
                self.sought = *to;
                // After the first read, a seek reads the file again.
                self.contents = self.contents.take().filter(|it| it.position == 0);
                if let Some(contents) = &mut self.contents {
                    contents.position = *to;
                }
                self.unread.forget();
            }
            // As in tokio.
            Ended::SetLen(Ok(())) => self.sought = 0,
            Ended::Seek(Err(_)) | Ended::SetLen(Err(_)) => {}
        }
        ended
    }
}

/// Returns true if lseek(2) waits for nothing but the position lock. That is the case on some known
/// filesystems, and on those that support NOWAIT reads. Others may ask a server for the end of the
/// file, or wait for a lock of the file that a copy holds.
fn seeks_at_once(handle: &Handle, to: io::SeekFrom) -> bool {
    let nowhere = matches!(to, io::SeekFrom::Start(0) | io::SeekFrom::Current(0));
    let local = handle.nowait_read().works() || handle.filesystem().stats_at_once();
    handle.is_regular() && (nowhere || local)
}

/// Converts the completion of an operation on a file without a position.
fn ended(done: Completion) -> Ended {
    let result = done.result.map_err(as_io);
    match done.op.into_kind() {
        Kind::Read(read) => Ended::of_read(result, read),
        Kind::Write(write) => Ended::of_write(result, write),
        _ => Ended::SetLen(result.map(drop)),
    }
}
