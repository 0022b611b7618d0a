//! read: one buffer, filled from a file.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered, Step, is_end, ring_offset, transfer};
use crate::buffer::bounce::BounceBuffer;
use crate::buffer::memory::ReadMemory;
use crate::buffer::{Buffer, RawMemory, UninitSlice};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::sys::cast::to_u32;
use crate::sys::rw::{self, MAX_RW, Offset};
use crate::sys::{self, Errno};

/// Reads into one buffer: pread(2), or read(2) without an offset.
///
/// With an offset the read is short only at the end of the file, because short kernel reads are
/// continued.
#[derive(Debug)]
pub struct Read {
    handle: Handle,
    memory: ReadMemory,
    offset: Offset,
    flags: RwFlags,
    done: usize,
    /// True if an error after some bytes ends the read successfully with those bytes.
    part: bool,
    /// The buffer for a misaligned read of an O_DIRECT file. It is made for the first part.
    bounce: Option<Box<BounceBuffer>>,
}

impl Read {
    /// Reads from `offset` on until the buffer is full or the file ends. It calls
    /// [`IoBufMut::as_uninit`](crate::IoBufMut::as_uninit) once.
    #[inline]
    pub fn new(handle: &Handle, buffer: Buffer, offset: u64) -> Read {
        Read::into_memory(handle, ReadMemory::new(buffer), Some(offset))
    }

    /// Reads once at the file's own position, like read(2).
    pub fn stream(handle: &Handle, buffer: Buffer) -> Read {
        Read::into_memory(handle, ReadMemory::new(buffer), None)
    }

    /// Reads into memory that the program keeps, without an allocation. `None` is the file's own
    /// position. Otherwise it is like [`new`](Read::new) and [`stream`](Read::stream).
    #[inline]
    pub fn raw(handle: &Handle, memory: RawMemory, offset: Option<u64>) -> Read {
        Read::into_memory(handle, ReadMemory::raw(memory), offset)
    }

    #[inline]
    fn into_memory(handle: &Handle, memory: ReadMemory, offset: Offset) -> Read {
        Read {
            handle: handle.clone(),
            memory,
            offset,
            flags: RwFlags::empty(),
            done: 0,
            part: false,
            bounce: None,
        }
    }

    /// Makes an error after some bytes end the read successfully with those bytes, like pread(2)
    /// and read(2). The next read returns the error.
    #[must_use]
    pub fn or_part(mut self) -> Read {
        self.part = true;
        self
    }

    /// Returns the buffer, with the bytes that were read.
    #[inline]
    pub fn into_buffer(mut self) -> Buffer {
        self.take_buffer()
    }

    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        self.memory.take_buffer()
    }

    #[inline]
    pub(crate) fn file(&self) -> &Handle {
        &self.handle
    }

    /// The size of its memory in bytes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.memory.len()
    }

    /// Returns true if its file was opened with O_DIRECT.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.handle.is_direct()
    }

    /// Makes it a read at this offset.
    #[cfg(feature = "tokio")]
    pub(crate) fn at(&mut self, offset: u64) {
        self.offset = Some(offset);
    }

    /// Lends the buffer's memory to a read in the calling thread.
    #[inline]
    pub(crate) fn with_space<T>(
        &mut self,
        read: impl FnOnce(&Handle, &mut UninitSlice<'_>) -> T,
    ) -> T {
        read(&self.handle, &mut self.memory.as_uninit())
    }

    /// Ends the read if its first kernel read, of `n` bytes, has filled the buffer. Does nothing otherwise.
    #[inline]
    pub(crate) fn end_if_filled_by(&mut self, n: usize) -> bool {
        let is_first = self.done == 0 && self.bounce.is_none();
        let is_filled = is_first && n == self.memory.len() && self.offset.is_some();
        if is_filled {
            self.done = n;
            self.end();
        }
        is_filled
    }

    /// Records that the first `done` bytes were read, of a read that continues.
    pub(crate) fn advance(&mut self, done: usize) {
        // The buffer may have returned more memory at an earlier call.
        self.done = done.min(self.memory.len());
    }

    /// Ends the read with the first `done` bytes filled.
    ///
    /// # Safety
    /// The kernel has written these bytes through the memory that this operation passed to it.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, done: usize) {
        // The program may submit the operation again.
        self.done = 0;
        // SAFETY: the caller's obligation.
        unsafe { self.memory.fill(done) };
    }

    /// The offset and the length of the remaining part, of a read with an offset.
    pub(crate) fn left_range(&self) -> Option<(u64, usize)> {
        let (_, left, at) = self.left();
        Some((at?, left))
    }

    /// The address and length of its memory.
    pub(crate) fn pieces(&self) -> std::iter::Once<(usize, usize)> {
        std::iter::once(self.memory.piece())
    }

    /// Returns true if misaligned reads of its file use a bounce buffer.
    pub(crate) fn uses_bounce_buffer(&self) -> bool {
        self.handle.bounce_alignment().is_some()
    }

    /// The memory, length and offset of the remaining part.
    fn left(&self) -> (*mut u8, usize, Offset) {
        let (start, left) = self.memory.skip(self.done);
        let at = self.offset.map(|o| o.saturating_add(self.done as u64));
        (start, left, at)
    }

    /// The memory, length and offset of the next kernel read.
    #[inline]
    fn next(&mut self) -> (*mut u8, usize, Offset) {
        let (start, left, at) = self.left();
        self.make_bounce_buffer();
        match (&self.bounce, at) {
            (Some(bounce), Some(at)) => {
                let (start, len, from) = bounce.over(at, at.saturating_add(left as u64));
                (start, len, Some(from))
            }
            _ => (start, left.min(MAX_RW), at),
        }
    }

    /// Makes the bounce buffer for a misaligned read, if the file uses one.
    fn make_bounce_buffer(&mut self) {
        let Some((needed, offset)) = self.handle.bounce_alignment().zip(self.offset) else {
            return;
        };
        if self.bounce.is_none() && needed.refuses(true, Some(offset), self.pieces()).is_some() {
            let len = self.memory.len();
            self.bounce = BounceBuffer::new(needed, len).map(Box::new);
        }
    }

    /// The number of the `n` bytes read by the kernel that were requested. A bounce buffer may
    /// cover more.
    pub(crate) fn brings(&self, n: usize) -> usize {
        if self.bounce.is_none() {
            return n;
        }
        let (_, left, at) = self.left();
        match (&self.bounce, at) {
            (Some(bounce), Some(at)) => bounce.wanted(n, at, left),
            _ => n,
        }
    }

    /// Ends the read with the bytes that the kernel has returned, and returns their number.
    #[inline]
    fn end(&mut self) -> usize {
        let done = self.done;
        // SAFETY: `done` is the number of bytes in the kernel's results.
        unsafe { self.fill(done) };
        done
    }

    /// Copies the requested part of `n` bytes out of the bounce buffer. Returns true if the file
    /// ends there.
    fn settle_bounce(&mut self, bounce: &BounceBuffer, n: usize) -> Result<bool, Errno> {
        let (_, left, at) = self.left();
        let at = at.unwrap_or_default();
        let (_, len, from) = bounce.over(at, at.saturating_add(left as u64));
        let mut space = self.memory.as_uninit();
        // SAFETY: the kernel has returned `n` bytes.
        let copied = unsafe { bounce.copy_to(n.min(len), at, &mut space.skip(self.done)) };
        self.done += copied?;
        Ok(n == 0 || (n < len && sys::stat::ends_by(self.handle.as_fd(), from + n as u64)))
    }

    /// Returns true if the file is known to end after the bytes that were read.
    fn ends_here(&self) -> bool {
        let at = self.offset.and_then(|at| at.checked_add(self.done as u64));
        at.is_some_and(|at| self.handle.ends_at(at))
    }

    /// Counts `n` bytes that the kernel has read. Returns true if the read is complete.
    #[inline]
    fn arrived(&mut self, n: usize) -> Result<bool, Errno> {
        let len = self.memory.len();
        let once = self.offset.is_none() || self.flags.contains(RwFlags::NOWAIT);
        let ended = if let Some(bounce) = self.bounce.take() {
            let ended = self.settle_bounce(&bounce, n);
            self.bounce = Some(bounce);
            ended?
        } else {
            let asked = (len - self.done).min(MAX_RW);
            self.done += n.min(asked);
            n < asked && (is_end(n, &self.handle) || self.ends_here())
        };
        Ok(self.done == len || once || ended)
    }
}

impl Read {
    /// The blocking form, once. It returns EAGAIN if it would have to wait.
    pub(crate) fn run_at_once(&mut self) -> Result<usize, Errno> {
        let flags = self.flags;
        self.flags |= RwFlags::NOWAIT;
        let result = self.run();
        self.flags = flags;
        result
    }
}

transfer!(Read);

impl Operation for Read {
    const OPCODE: u8 = opcode::Read::CODE;
    const NAME: &'static str = "read";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    #[inline]
    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
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
        // SAFETY: `start` and `len` are within the buffer that this operation owns.
        unsafe { rw::preadv2_raw(self.handle.as_fd(), start, len, offset, self.flags.bits()) }
    }

    #[inline]
    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        match result.and_then(|n| self.arrived(n)) {
            Ok(true) => Step::Done(Ok(self.end())),
            Ok(false) => Step::Again,
            Err(_) if self.part && self.done > 0 => Step::Done(Ok(self.end())),
            Err(errno) => {
                // A smaller count would mean the end of the file, so the error is returned.
                // SAFETY: no byte is marked as filled.
                unsafe { self.fill(0) };
                Step::Done(Err(errno))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{IoBufExt, Limit, downcast};
    use crate::read::blocking::fill_space;
    use crate::test_file::TestFile;

    fn this_file() -> (Handle, Vec<u8>) {
        let mut test = TestFile::new();
        let file = std::fs::File::open(&test.path).unwrap();
        (Handle::new(file).unwrap(), std::mem::take(&mut test.bytes))
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
        let done = read.with_space(|handle, space| {
            let mut part = space.skip(0).first(20);
            fill_space(handle, &mut part, 4).unwrap()
        });
        assert_eq!(done, 20);
        read.advance(done);
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
}
