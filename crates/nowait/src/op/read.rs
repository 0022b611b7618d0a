//! read: one buffer, filled from a file.

use std::os::fd::{AsFd, BorrowedFd};

use io_uring::{opcode, squeue};

use super::buffer::{Buffer, IoBufMut, Space};
use super::memory::ReadMemory;
use super::window::Window;
use super::{Known, Operation, Step, is_end, ring_offset};
use crate::alignment::Alignment;
use crate::cast::to_u32;
use crate::error::ErrorKind;
use crate::flags::RwFlags;
use crate::handle::Handle;
use crate::read::Start;
use crate::retry;
use crate::sys::rw::{self, MAX_RW, Offset};
use crate::sys::{self, Errno};

/// Reads into one buffer: pread(2), or read(2) without an offset.
///
/// With an offset it is short only at the end of the file: short kernel reads are continued.
#[derive(Debug)]
pub struct Read {
    handle: Handle,
    memory: ReadMemory,
    offset: Offset,
    flags: RwFlags,
    done: usize,
    /// An error ends it with the bytes before that.
    part: bool,
    /// What a misaligned read of an O_DIRECT file goes through, from its first piece on.
    window: Option<Box<Window>>,
}

impl Read {
    /// Reads from `offset` on until the buffer is full or the file ends. Asks the buffer for its
    /// memory, once: [`IoBufMut::space`].
    #[inline]
    pub fn new(handle: &Handle, buffer: Buffer, offset: u64) -> Read {
        Read {
            handle: handle.clone(),
            memory: ReadMemory::new(buffer),
            offset: Some(offset),
            flags: RwFlags::empty(),
            done: 0,
            part: false,
            window: None,
        }
    }

    /// Reads once at the file's own position, as read(2) does.
    pub fn stream(handle: &Handle, buffer: Buffer) -> Read {
        Read {
            offset: None,
            ..Read::new(handle, buffer, 0)
        }
    }

    /// With these `RWF_*` flags.
    #[must_use]
    pub fn flags(mut self, flags: RwFlags) -> Read {
        self.flags = flags;
        self
    }

    /// An error after some bytes ends it with these, as pread(2) and read(2) do; the next read meets the
    /// error.
    #[must_use]
    pub fn or_part(mut self) -> Read {
        self.part = true;
        self
    }

    /// The buffer, filled with what was read.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        self.memory.into_buffer()
    }

    pub(crate) fn positional(&self) -> Option<u64> {
        self.offset
    }

    pub(crate) fn flagged(&self) -> RwFlags {
        self.flags
    }

    /// Whether its file was opened with O_DIRECT.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.handle.is_direct()
    }

    /// Makes it a read at this offset.
    #[cfg(feature = "tokio")]
    pub(crate) fn at(&mut self, offset: u64) {
        self.offset = Some(offset);
    }

    /// Has the read path do the caller's part of it, and notes what that brought.
    #[inline]
    pub(crate) fn start(&mut self, start: impl FnOnce(&Handle, &mut Space<'_>) -> Start) -> Start {
        let started = start(&self.handle, &mut self.memory.space());
        match &started {
            Start::Done(n, _) => self.fill(*n),
            Start::Failed(_) => self.fill(0),
            Start::Rest(rest) => self.have(rest.done),
        }
        started
    }

    /// Notes that the first `done` bytes are there, of a read that goes on.
    pub(crate) fn have(&mut self, done: usize) {
        // A buffer that was asked before may have named more room then.
        self.done = done.min(self.memory.len());
    }

    /// Ends it with the first `done` bytes filled.
    fn fill(&mut self, done: usize) {
        self.done = done;
        // SAFETY: these bytes were written by the kernel through that memory.
        unsafe { self.memory.fill(done) };
    }

    /// Address and length of its memory.
    pub(crate) fn pieces(&self) -> std::iter::Once<(usize, usize)> {
        std::iter::once(self.memory.piece())
    }

    /// Whether its file has misaligned reads go through a window.
    pub(crate) fn goes_through_window(&self) -> bool {
        self.handle.window().is_some()
    }

    /// What is still to be filled, and where it comes from.
    fn left(&self) -> (*mut u8, usize, Offset) {
        let (start, left) = self.memory.skip(self.done);
        let at = self.offset.map(|o| o.saturating_add(self.done as u64));
        (start, left, at)
    }

    /// Where the next piece goes, and where it comes from.
    fn next(&mut self) -> (*mut u8, usize, Offset) {
        let (start, left, at) = self.left();
        self.open_window();
        match (&self.window, at) {
            (Some(window), Some(at)) => {
                let (start, len, from) = window.over(at, at.saturating_add(left as u64));
                (start, len, Some(from))
            }
            _ => (start, left.min(MAX_RW), at),
        }
    }

    /// Has a misaligned read of a file that takes those go through a window.
    fn open_window(&mut self) {
        let Some((needed, offset)) = self.handle.window().zip(self.offset) else {
            return;
        };
        if self.window.is_none() && needed.refuses(true, Some(offset), self.pieces()).is_some() {
            let len = self.memory.len();
            self.window = Window::new(needed, len).map(Box::new);
        }
    }

    /// How many of the `n` bytes that the kernel read are wanted: not what else a window covers.
    pub(crate) fn brings(&self, n: usize) -> usize {
        if self.window.is_none() {
            return n;
        }
        let (_, left, at) = self.left();
        match (&self.window, at) {
            (Some(window), Some(at)) => window.wanted(n, at, left),
            _ => n,
        }
    }

    /// Takes over what `n` bytes in the window brought; says whether the file ends there.
    fn settle_window(&mut self, window: &Window, n: usize) -> bool {
        let (start, left, at) = self.left();
        let at = at.unwrap_or_default();
        let (_, len, from) = window.over(at, at.saturating_add(left as u64));
        // SAFETY: `start` and `left` lie in the buffer that this operation owns.
        self.done += unsafe { window.hand_out(n.min(len), at, start, left) };
        n == 0 || (n < len && sys::stat::ends_by(self.handle.as_fd(), from + n as u64))
    }
}

impl Read {
    /// The blocking form, once, which reports EAGAIN where it would have to wait.
    pub(crate) fn run_at_once(&mut self) -> Result<usize, Errno> {
        let flags = self.flags;
        self.flags |= RwFlags::NOWAIT;
        let result = self.run();
        self.flags = flags;
        result
    }
}

impl Operation for Read {
    const OPCODE: u8 = opcode::Read::CODE;
    const NAME: &'static str = "read";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
        let (start, len, offset) = self.next();
        let (fd, len32) = (known.fd(&self.handle), to_u32(len));
        let (offset, flags) = (ring_offset(offset), self.flags.bits().cast_signed());
        match known.buffer(self.handle.is_seekable(), start, len) {
            Some(number) => opcode::ReadFixed::new(fd, start, len32, number)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            None => opcode::Read::new(fd, start, len32)
                .offset(offset)
                .rw_flags(flags)
                .build(),
        }
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let (start, len, offset) = self.next();
        rw::checked(offset, len)?;
        // SAFETY: `start` and `len` lie in the buffer that this operation owns.
        unsafe { rw::preadv2(self.handle.as_fd(), start, len, offset, self.flags.bits()) }
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        let len = self.memory.len();
        match result {
            Ok(n) => {
                let once = self.offset.is_none() || self.flags.contains(RwFlags::NOWAIT);
                let ended = if let Some(window) = self.window.take() {
                    let ended = self.settle_window(&window, n);
                    self.window = Some(window);
                    ended
                } else {
                    let asked = (len - self.done).min(MAX_RW);
                    self.done += n.min(asked);
                    n < asked && is_end(n, &self.handle)
                };
                if self.done == len || once || ended {
                    self.fill(self.done);
                    Step::Done(Ok(self.done))
                } else {
                    Step::Again
                }
            }
            Err(_) if self.part && self.done > 0 => {
                self.fill(self.done);
                Step::Done(Ok(self.done))
            }
            Err(errno) => {
                // Fewer bytes than asked would say "end of file"; the error is the answer.
                self.fill(0);
                Step::Done(Err(errno))
            }
        }
    }
}

/// One preadv2(2) into borrowed memory, for reads that stay in the caller.
pub(crate) fn into_space(
    fd: BorrowedFd<'_>,
    space: &mut Space<'_>,
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    let len = space.len();
    // SAFETY: the space is borrowed mutably for the length of the call.
    unsafe { rw::preadv2(fd, space.as_mut_ptr(), len, offset, flags) }
}

/// Why a blocking read into borrowed memory is refused before the kernel sees it.
pub(crate) fn refused(handle: &Handle, space: &mut Space<'_>, offset: u64) -> Option<ErrorKind> {
    let needed = handle.alignment().filter(|_| handle.window().is_none())?;
    needed.refuses(true, Some(offset), piece(space))
}

/// A blocking read into borrowed memory, to the end of that or of the file.
pub(crate) fn fill_space(
    handle: &Handle,
    space: &mut Space<'_>,
    offset: u64,
) -> Result<usize, Errno> {
    let len = space.len();
    rw::checked(Some(offset), len)?;
    let misaligned =
        |needed: &Alignment| needed.refuses(true, Some(offset), piece(space)).is_some();
    let window = handle.window().filter(misaligned);
    let window = window.and_then(|needed| Window::new(needed, len));
    let end = offset.saturating_add(len as u64);
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let mut rest = space.skip(done);
        let (start, asked, from) = match &window {
            Some(window) => window.over(at, end),
            None => (rest.as_mut_ptr(), len - done, at),
        };
        // SAFETY: that memory is the window's or borrowed mutably, for the length of the call.
        let read = || unsafe { rw::preadv2(handle.as_fd(), start, asked, Some(from), 0) };
        let n = retry::interrupted(read)?;
        let ended = match &window {
            Some(window) => {
                // SAFETY: what is left of the space is borrowed mutably.
                done += unsafe { window.hand_out(n, at, rest.as_mut_ptr(), len - done) };
                n == 0 || (n < asked && sys::stat::ends_by(handle.as_fd(), from + n as u64))
            }
            None => {
                done += n;
                is_end(n, handle)
            }
        };
        if ended {
            break;
        }
    }
    Ok(done)
}

/// Address and length of a read's memory.
fn piece(space: &mut Space<'_>) -> std::iter::Once<(usize, usize)> {
    std::iter::once((space.as_mut_ptr().addr(), space.len()))
}

/// Has the read path do the caller's part of a read into `buffer`, and marks what it filled.
pub(crate) fn start_into(
    buffer: &mut dyn IoBufMut,
    start: impl FnOnce(&mut Space<'_>) -> Start,
) -> Start {
    let started = start(&mut buffer.space());
    let filled = match &started {
        Start::Done(n, _) => *n,
        Start::Failed(_) => 0,
        Start::Rest(_) => return started,
    };
    // SAFETY: "done" says how many bytes the kernel wrote through that space.
    unsafe { buffer.set_filled(filled) };
    started
}

/// Has the read path do the caller's part of a read into what is free of a `ReadBuf`, at most
/// `most` bytes of it, and marks what it filled: also the first part of a read that has a rest.
#[cfg(feature = "tokio")]
pub(crate) fn start_into_read_buf(
    dst: &mut ::tokio::io::ReadBuf<'_>,
    most: usize,
    start: impl FnOnce(&mut Space<'_>) -> Start,
) -> Start {
    // SAFETY: nothing here, and no read, makes initialised bytes uninitialised.
    let free = unsafe { dst.unfilled_mut() };
    let started = start(&mut Space::Uninit(free).first(most));
    let filled = match &started {
        Start::Done(n, _) => *n,
        Start::Rest(rest) => rest.done,
        Start::Failed(_) => 0,
    };
    // SAFETY: "done" says how many bytes the kernel wrote through that space.
    unsafe { dst.assume_init(filled) };
    dst.advance(filled);
    started
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::Provenance;
    use crate::engine::Route;
    use crate::op::buffer::{IoBufExt, Limit, downcast};
    use crate::read::{Rest, Start};

    fn this_file() -> (Handle, Vec<u8>) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let file = std::fs::File::open(path).unwrap();
        (Handle::new(file).unwrap(), std::fs::read(path).unwrap())
    }

    /// Carries a read out in pieces that the kernel makes as short as it likes.
    fn carried_out(mut read: Read, bytes: &[u8], shortest: usize) -> (usize, Buffer) {
        loop {
            let (start, len, at) = read.next();
            let from = (at.unwrap() as usize).min(bytes.len());
            let n = len.min(shortest).min(bytes.len() - from);
            // SAFETY: the operation named so much room.
            unsafe { start.copy_from_nonoverlapping(bytes[from..].as_ptr(), n) };
            // It is the engine's to move between two entries.
            let mut moved = Box::new(read);
            match moved.settle(Ok(n)) {
                Step::Again => read = *moved,
                Step::Done(n) => return (n.unwrap(), moved.into_buffer()),
            }
        }
    }

    #[test]
    fn a_buffer_is_told_of_the_bytes_that_were_read_and_of_no_other() {
        let (handle, bytes) = this_file();
        let end = bytes.len();
        for (offset, room) in [(0, 100), (7, end), (end - 3, 100), (end, 10), (end + 1, 1)] {
            for shortest in [1, 30, usize::MAX] {
                let buffer = Vec::<u8>::with_capacity(room);
                let read = Read::new(&handle, Box::new(buffer.limit(room)), offset as u64);
                let (n, buffer) = carried_out(read, &bytes, shortest);
                let Ok(limited) = downcast::<Limit<Vec<u8>>>(buffer) else {
                    panic!("another type")
                };
                let there = &bytes[offset.min(end)..];
                assert_eq!(limited.into_inner(), there[..room.min(there.len())]);
                assert_eq!(n, room.min(there.len()));
            }
        }
    }

    #[test]
    fn a_read_goes_on_behind_what_its_caller_brought() {
        let (handle, bytes) = this_file();
        let mut read = Read::new(&handle, Box::new(Vec::<u8>::with_capacity(50).limit(50)), 4);
        let begun = read.start(|_, space| {
            let mut part = space.skip(0).first(20);
            let n = fill_space(&handle, &mut part, 4).unwrap();
            Start::Rest(Rest {
                done: n,
                provenance: Provenance::default(),
                missed: true,
                route: Route::Ring,
            })
        });
        assert!(matches!(begun, Start::Rest(rest) if rest.done == 20));
        let (n, buffer) = carried_out(read, &bytes, 7);
        let Ok(limited) = downcast::<Limit<Vec<u8>>>(buffer) else {
            panic!("another type")
        };
        assert_eq!((n, &limited.into_inner()[..]), (50, &bytes[4..54]));
    }

    #[test]
    fn an_error_leaves_no_byte_that_can_be_seen() {
        let (handle, bytes) = this_file();
        let mut read = Read::new(&handle, Box::new(Vec::<u8>::with_capacity(50)), 0);
        let (start, ..) = read.next();
        // SAFETY: there is room for 50.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), 10) };
        assert!(matches!(read.settle(Ok(10)), Step::Again));
        assert!(matches!(
            read.settle(Err(Errno::IO)),
            Step::Done(Err(Errno::IO))
        ));
        assert_eq!(downcast::<Vec<u8>>(read.into_buffer()).unwrap(), []);
    }

    #[test]
    fn borrowed_memory_is_filled_to_the_end_of_the_file() {
        let (handle, bytes) = this_file();
        let mut room = vec![std::mem::MaybeUninit::uninit(); bytes.len() + 10];
        let n = fill_space(&handle, &mut Space::from(&mut room[..]), 3).unwrap();
        assert_eq!(n, bytes.len() - 3);
        // SAFETY: so many were read.
        let read = room[..n].iter().map(|byte| unsafe { byte.assume_init() });
        assert!(read.eq(bytes[3..].iter().copied()));
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_read_buf_is_told_of_what_was_read_before_the_rest() {
        let (handle, bytes) = this_file();
        let mut room = [std::mem::MaybeUninit::uninit(); 40];
        let mut dst = ::tokio::io::ReadBuf::uninit(&mut room);
        dst.put_slice(b"before");
        let mut read = |most, part: usize, rest: bool| {
            start_into_read_buf(&mut dst, most, |space| {
                let mut space = space.skip(0).first(part);
                let n = fill_space(&handle, &mut space, 0).unwrap();
                let provenance = Provenance::default();
                if !rest {
                    return Start::Done(n, provenance);
                }
                Start::Rest(Rest {
                    done: n,
                    provenance,
                    missed: true,
                    route: Route::Ring,
                })
            })
        };
        assert!(matches!(read(30, 10, true), Start::Rest(_)));
        assert!(matches!(read(5, 10, false), Start::Done(5, _)));
        let failed = start_into_read_buf(&mut dst, 1, |_| Start::Failed(Errno::IO));
        assert!(matches!(failed, Start::Failed(_)));
        let expected = [b"before", &bytes[..10], &bytes[..5]].concat();
        assert_eq!((dst.filled(), dst.initialized().len()), (&expected[..], 21));
    }
}
