//! The stream behind a file's AsyncRead, AsyncWrite and AsyncSeek: one thing at a time, at a position.
//!
//! ```text
//!  poll_read ─► done what was begun? ─► unread bytes? ─► read::start at the position ─ all, prefix ─► Ready
//!                                                               └ nothing ─► Reading ─► unread ─► Ready
//!  poll_write ─► done what was begun? ─► write::start at the position ─ some ─► Ready
//!                                               └ nothing ─► a copy of it: Writing ─► Ready at once
//! ```
//! A write that was accepted is on its way when `poll_write` says so; how it ended, the next call
//! says. A read whose future is dropped goes on, and the next one finds its bytes.
//!
//! Regular files are read and written at a position that we keep, so that the read path serves
//! them; the clones of a file share it, and whoever has something on its way holds it. Pipes,
//! terminals and devices, and writes that append, go by the kernel's own position.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::tokio::io::ReadBuf;
use ::tokio::sync::{Mutex, OwnedMutexGuard};
use rustix::fs::SeekFrom;

use super::as_io;
use crate::completion::Completion;
use crate::engine::{Engine, Turn};
use crate::file::{File, Trip};
use crate::flags::RwFlags;
use crate::handle::Handle;
use crate::op::buffer::{IoBufExt, Limit, downcast, downcast_source};
use crate::op::read::start_into_read_buf;
use crate::op::{Kind, Op, Read, Write};
use crate::read::{self, Start};
use crate::sys::Errno;
use crate::write;

/// Where a file's stream is, and what it is doing.
#[derive(Debug)]
pub(super) struct Stream {
    cursor: Cursor,
    doing: Doing,
    unread: Unread,
    /// A write's error that nobody was told of yet.
    failed: Option<io::Error>,
    /// Where the last seek led.
    sought: u64,
    /// Word left with a full engine.
    turn: Option<Turn>,
    regular: bool,
    append: bool,
}

#[derive(Debug)]
enum Doing {
    Nothing,
    Reading(Trip),
    /// From this position on.
    Writing(Trip, u64),
    Seeking(io::SeekFrom),
}

/// What has just come to its end.
enum Ended {
    Nothing,
    Read(io::Result<()>),
    Write(io::Result<()>),
    Seek(io::Result<u64>),
}

/// Bytes that were read and not yet taken.
#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
    taken: usize,
    /// Where in the file the next of them lies; of regular files.
    at: u64,
}

impl Unread {
    fn left(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Forgets them; the memory stays.
    fn forget(&mut self) {
        self.taken = 0;
        self.bytes.clear();
    }

    /// Forgets them, and gives the memory for other use.
    fn take_room(&mut self) -> Vec<u8> {
        self.forget();
        std::mem::take(&mut self.bytes)
    }

    /// Moves as many as there is room for.
    fn give(&mut self, dst: &mut ReadBuf<'_>) -> usize {
        let n = self.left().len().min(dst.remaining());
        dst.put_slice(&self.left()[..n]);
        self.taken += n;
        self.at += n as u64;
        n
    }
}

impl fmt::Debug for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from {} on", self.left().len(), self.at)
    }
}

/// The position of a regular file, which its clones share.
struct Cursor {
    position: Arc<Mutex<u64>>,
    held: Option<OwnedMutexGuard<u64>>,
    waiting: Option<Pin<Box<dyn Future<Output = OwnedMutexGuard<u64>> + Send>>>,
}

impl Cursor {
    fn new(position: Arc<Mutex<u64>>) -> Cursor {
        Cursor {
            position,
            held: None,
            waiting: None,
        }
    }

    /// Holds it, once no clone does.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        if let Some(held) = &self.held {
            return Poll::Ready(**held);
        }
        let held = match self.position.clone().try_lock_owned() {
            Ok(held) => held,
            Err(_) => {
                let wait = || Box::pin(self.position.clone().lock_owned()) as Pin<Box<_>>;
                ready!(self.waiting.get_or_insert_with(wait).as_mut().poll(cx))
            }
        };
        self.waiting = None;
        let position = *held;
        self.held = Some(held);
        Poll::Ready(position)
    }

    /// Moves it, and lets the clones have it.
    fn leave(&mut self, position: u64) {
        if let Some(mut held) = self.held.take() {
            *held = position;
        }
    }

    /// Lets the clones have it as it was.
    fn let_go(&mut self) {
        self.held = None;
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cursor").field(&self.position).finish()
    }
}

impl Stream {
    /// The stream of a file that was just opened or taken in: it goes on where the kernel's is.
    pub(super) fn of(handle: &Handle) -> Stream {
        let position = rustix::fs::tell(handle).unwrap_or(0);
        let append = rustix::fs::fcntl_getfl(handle)
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND));
        Stream::at(Arc::new(Mutex::new(position)), handle.is_regular(), append)
    }

    fn at(position: Arc<Mutex<u64>>, regular: bool, append: bool) -> Stream {
        Stream {
            cursor: Cursor::new(position),
            doing: Doing::Nothing,
            unread: Unread::default(),
            failed: None,
            sought: 0,
            turn: None,
            regular,
            append,
        }
    }

    /// The stream of a clone of its file.
    pub(super) fn try_clone(&self) -> Stream {
        Stream::at(self.cursor.position.clone(), self.regular, self.append)
    }

    /// Whether something is on its way.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.doing, Doing::Nothing)
    }

    /// Has the kernel's position be where ours is, for whoever uses the descriptor from now on.
    pub(super) fn tell_kernel(&self, handle: &Handle) {
        if let (true, Ok(position)) = (self.regular, self.cursor.position.try_lock()) {
            let _ = rustix::fs::seek(handle, SeekFrom::Start(*position));
        }
    }

    /// Forgets what was read ahead of its reader: the file is about to change.
    pub(super) fn forget(&mut self) {
        if self.regular {
            self.unread.forget();
        }
    }

    /// Waits for what is on its way. A write's error is kept for who writes next.
    pub(super) fn poll_settle(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<()> {
        if let Ended::Write(Err(error)) = ready!(self.poll_ended(file, cx)) {
            self.failed = Some(error);
        }
        self.cursor.let_go();
        Poll::Ready(())
    }

    pub(super) fn poll_read(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        let turn = ready!(::tokio::task::coop::poll_proceed(cx));
        let filled = dst.filled().len();
        let read = self.poll_read_in_turn(file, cx, dst, most);
        if read.is_ready() {
            turn.made_progress();
            super::charge(dst.filled().len() - filled, cx);
        }
        read
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
                Ended::Nothing if dst.remaining() == 0 => return Poll::Ready(Ok(())),
                Ended::Nothing => {
                    if let Some(read) = ready!(self.poll_begin_read(file, cx, dst, most)) {
                        return Poll::Ready(read);
                    }
                }
                Ended::Read(Ok(())) => {
                    let given = self.unread.give(dst);
                    self.cursor.leave(self.unread.at);
                    // Nothing is the end of the file, unless there was no room to give it to.
                    debug_assert!(
                        given > 0 || self.unread.left().is_empty() || dst.remaining() == 0
                    );
                    return Poll::Ready(Ok(()));
                }
                Ended::Read(Err(error)) => return Poll::Ready(Err(error)),
                Ended::Write(Err(error)) => self.failed = Some(error),
                Ended::Write(Ok(())) | Ended::Seek(_) => {}
            }
        }
    }

    /// Serves a read from what is there, or sends it on its way (`None`).
    fn poll_begin_read(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<Option<io::Result<()>>> {
        let (handle, engine) = (file.handle(), file.engine());
        let want = dst.remaining().min(most);
        if !self.regular {
            if self.unread.give(dst) > 0 {
                return Poll::Ready(Some(Ok(())));
            }
            let buffer = self.room(want);
            return Poll::Ready(self.read_on(engine, Read::stream(handle, buffer), None));
        }
        let position = ready!(self.cursor.poll_hold(cx));
        if self.unread.at == position && self.unread.give(dst) > 0 {
            self.cursor.leave(self.unread.at);
            return Poll::Ready(Some(Ok(())));
        }
        let core = engine.core();
        let tried = want.min(core.copy_limit.max(1));
        let started = start_into_read_buf(dst, tried, |space| {
            let alone = || core.is_idle();
            read::start(
                core,
                handle,
                space,
                position,
                RwFlags::empty(),
                false,
                alone,
            )
        });
        if let Some(ahead) = read::ahead(core, handle, (position, tried), &started) {
            engine.read_ahead(ahead);
        }
        let n = match started {
            Start::Done(n, _) => n,
            Start::Failed(errno) => {
                self.cursor.let_go();
                return Poll::Ready(Some(Err(errno.into())));
            }
            Start::Rest(rest) if rest.done > 0 => rest.done,
            Start::Rest(rest) => {
                let buffer = self.room(want);
                self.unread.at = position;
                let op = Read::new(handle, buffer, position).or_part();
                return Poll::Ready(self.read_on(engine, op, Some(rest)));
            }
        };
        self.cursor.leave(position + n as u64);
        Poll::Ready(Some(Ok(())))
    }

    /// Memory to read into that stays ours when the future is dropped.
    fn room(&mut self, want: usize) -> Box<Limit<Vec<u8>>> {
        let mut bytes = self.unread.take_room();
        bytes.reserve(want);
        Box::new(bytes.limit(want))
    }

    fn read_on(
        &mut self,
        engine: &Engine,
        op: Read,
        rest: Option<read::Rest>,
    ) -> Option<io::Result<()>> {
        if let Err(error) = engine.check_process("read") {
            self.cursor.let_go();
            return Some(Err(as_io(error)));
        }
        self.doing = Doing::Reading(Trip::new(Op::from(op), rest));
        None
    }

    /// Writes what `gather` gives of at most `most` bytes: in the caller where that is known not to
    /// wait, else as a copy that is on its way when this says how much it was.
    pub(super) fn poll_write(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let turn = ready!(::tokio::task::coop::poll_proceed(cx));
        loop {
            match ready!(self.poll_ended(file, cx)) {
                Ended::Nothing => break,
                Ended::Write(Err(error)) => {
                    turn.made_progress();
                    return Poll::Ready(Err(error));
                }
                // What was read, and where a seek led, shows in the position.
                Ended::Read(_) | Ended::Seek(_) | Ended::Write(Ok(())) => self.cursor.let_go(),
            }
        }
        let written = ready!(self.poll_begin_write(file, cx, bytes, most));
        turn.made_progress();
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
        let own = self.regular && !self.append;
        let mut position = 0;
        if self.regular {
            position = ready!(self.cursor.poll_hold(cx));
        } else if !self.unread.left().is_empty() {
            // The kernel's position is behind these bytes; a pipe has none, and refuses.
            let back = -self.unread.left().len().cast_signed() as i64;
            let _ = rustix::fs::seek(handle, SeekFrom::Current(back));
        }
        if own {
            let piece = &first[..first.len().min(most)];
            let n = write::start(engine.core(), handle, piece, Some(position));
            if n > 0 {
                self.unread.forget();
                self.cursor.leave(position + n as u64);
                return Poll::Ready(Ok(n));
            }
        }
        if let Err(error) = engine.check_process("write") {
            self.cursor.let_go();
            return Poll::Ready(Err(as_io(error)));
        }
        // What is said to be written must go its way whoever polls next: not without a place.
        if !engine.reserve(handle, cx.waker(), &mut self.turn) {
            self.cursor.let_go();
            return Poll::Pending;
        }
        self.turn = None;
        let mut copy = self.unread.take_room();
        for slice in slices {
            let room = most - copy.len();
            copy.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let n = copy.len();
        let write = if own {
            Write::new(handle, Box::new(copy), position)
        } else {
            Write::stream(handle, Box::new(copy))
        };
        let trip = Trip::reserved(engine, Op::from(write.all()), cx);
        self.doing = Doing::Writing(trip, position);
        Poll::Ready(Ok(n))
    }

    /// Waits until all that was written is written, as far as the kernel; says how that ended.
    pub(super) fn poll_flush(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let ended = ready!(self.poll_ended(file, cx));
        self.cursor.let_go();
        Poll::Ready(match ended {
            Ended::Write(written) => written,
            Ended::Nothing | Ended::Read(_) | Ended::Seek(_) => Ok(()),
        })
    }

    pub(super) fn start_seek(&mut self, to: io::SeekFrom) -> io::Result<()> {
        if self.is_busy() {
            return Err(io::Error::other(
                "another operation on this file is on its way: poll_complete comes first",
            ));
        }
        self.doing = Doing::Seeking(to);
        Ok(())
    }

    pub(super) fn poll_complete(
        &mut self,
        file: &File,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        loop {
            let ended = ready!(self.poll_ended(file, cx));
            self.cursor.let_go();
            match ended {
                Ended::Nothing => return Poll::Ready(Ok(self.sought)),
                Ended::Seek(sought) => return Poll::Ready(sought),
                Ended::Write(Err(error)) => self.failed = Some(error),
                Ended::Read(_) | Ended::Write(Ok(())) => {}
            }
        }
    }

    /// Goes on with what is on its way until that has ended. The position is still held then.
    fn poll_ended(&mut self, file: &File, cx: &mut Context<'_>) -> Poll<Ended> {
        let ended = match &mut self.doing {
            Doing::Nothing => return Poll::Ready(Ended::Nothing),
            Doing::Reading(trip) => {
                let done = ready!(trip.poll(file.engine(), cx));
                Ended::Read(self.have_read(done))
            }
            Doing::Writing(trip, from) => {
                let from = *from;
                let done = ready!(trip.poll(file.engine(), cx));
                Ended::Write(self.have_written(file.handle(), from, done))
            }
            Doing::Seeking(to) => {
                let to = *to;
                Ended::Seek(ready!(self.poll_seek(file.handle(), to, cx)))
            }
        };
        self.doing = Doing::Nothing;
        Poll::Ready(ended)
    }

    fn have_read(&mut self, done: Completion) -> io::Result<()> {
        let result = done.result.map(drop).map_err(as_io);
        let buffer = done.held.into_buffer().map(downcast::<Limit<Vec<u8>>>);
        if let Some(Ok(buffer)) = buffer {
            self.unread.bytes = buffer.into_inner();
            self.unread.taken = 0;
        }
        if result.is_err() {
            self.unread.forget();
            self.cursor.let_go();
        }
        result
    }

    fn have_written(&mut self, handle: &Handle, from: u64, done: Completion) -> io::Result<()> {
        if let Kind::Write(write) = done.held.into_kind() {
            self.cursor.leave(match self.append {
                // Only the kernel knows where the end was that this was put at.
                true => rustix::fs::tell(handle).unwrap_or(from),
                // Also what was written before an error.
                false => from + write.written() as u64,
            });
            if let Ok(bytes) = downcast_source::<Vec<u8>>(write.into_source()) {
                self.unread.bytes = bytes;
                self.unread.forget();
            }
        }
        done.result.map(drop).map_err(as_io)
    }

    /// lseek(2), which knows how far a file of its kind can go; in the caller, for it waits for
    /// nothing.
    fn poll_seek(
        &mut self,
        handle: &Handle,
        to: io::SeekFrom,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let position = if self.regular {
            Some(ready!(self.cursor.poll_hold(cx)))
        } else {
            None
        };
        let target = match (to, position) {
            (io::SeekFrom::Start(to), _) => Some(SeekFrom::Start(to)),
            (io::SeekFrom::End(by), _) => Some(SeekFrom::End(by)),
            (io::SeekFrom::Current(by), Some(from)) => {
                from.checked_add_signed(by).map(SeekFrom::Start)
            }
            // The kernel's position is behind what was read and not taken.
            (io::SeekFrom::Current(by), None) => by
                .checked_sub(self.unread.left().len().cast_signed() as i64)
                .map(SeekFrom::Current),
        };
        let sought = target
            .ok_or(Errno::INVAL)
            .and_then(|to| rustix::fs::seek(handle.as_fd(), to));
        match sought {
            Ok(to) => {
                self.sought = to;
                self.cursor.leave(to);
                if !self.regular || self.unread.at != to {
                    self.unread.forget();
                }
            }
            Err(_) => self.cursor.let_go(),
        }
        Poll::Ready(sought.map_err(io::Error::from))
    }
}
