//! A buffer that an operation owns, and the memory that it returned when it was asked.
//!
//! ```text
//!  new: asks once ─► address and length, remembered ─► the kernel ─► take_buffer: set_filled
//!  └──────────── the calling thread ─────────────┘                   └─ the calling thread ──┘
//! ```
//!
//! The buffer traits are safe to implement. An implementation may return different memory at each
//! call, free what it returned before, panic, or submit operations itself. The buffer is therefore
//! asked once, when the operation is made. No method of it is called, and it is not moved, while
//! the kernel may access its memory. The borrow of that memory lasts until then.
//!
//! [`RawMemory`] needs no owner: the program keeps it.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::io_buf::{Buffer, IoBuf, IoBufMut, Source};
use crate::sys::raw_memory::RawMemory;
use crate::sys::uninit_slice::UninitSlice;
use crate::user_code;

/// A buffer to be filled.
pub(crate) struct ReadMemory {
    /// It comes from a box, but is a raw pointer: moving a `Box` asserts unique access to its
    /// contents, and the kernel has access too. `None` for memory that the program keeps.
    buffer: Option<NonNull<dyn IoBufMut>>,
    start: NonNull<u8>,
    len: usize,
    /// True if only the kernel accesses the memory.
    is_raw: bool,
    /// The number of bytes to pass to `set_filled`.
    filled: Option<usize>,
}

// SAFETY: the buffer is `Send`, and its memory is borrowed from it.
unsafe impl Send for ReadMemory {}
// SAFETY: a shared reference gives the address and the length, and no access to the buffer.
unsafe impl Sync for ReadMemory {}

impl ReadMemory {
    /// Asks the buffer for its memory. A panic of the buffer propagates to the caller.
    #[inline]
    pub(crate) fn new(buffer: Buffer) -> ReadMemory {
        let mut buffer = NonNull::from(Box::leak(buffer));
        let mut memory = ReadMemory {
            buffer: Some(buffer),
            start: NonNull::dangling(),
            len: 0,
            is_raw: false,
            filled: None,
        };
        // SAFETY: the pointer came from a box, and there is no other pointer to the buffer.
        let mut space = unsafe { buffer.as_mut() }.as_uninit();
        memory.is_raw = space.is_raw();
        memory.len = space.len();
        memory.start = space.start();
        memory
    }

    /// Memory that the program keeps.
    #[inline]
    pub(crate) fn raw(memory: RawMemory) -> ReadMemory {
        ReadMemory {
            buffer: None,
            start: memory.slice_start(),
            len: memory.len(),
            is_raw: true,
            filled: None,
        }
    }

    /// The size of the memory in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address and length of the memory.
    pub(crate) fn piece(&self) -> (usize, usize) {
        (self.start.addr().get(), self.len)
    }

    /// The memory after the first `n` bytes.
    #[inline]
    pub(crate) fn skip(&self, n: usize) -> (*mut u8, usize) {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length.
        (unsafe { self.start.add(n) }.as_ptr(), self.len - n)
    }

    /// The memory, for a read in the calling thread, or for a copy.
    #[inline]
    pub(crate) fn as_uninit(&mut self) -> UninitSlice<'_> {
        if self.is_raw {
            // SAFETY: the obligation of `RawMemory::new`, which made this memory.
            return UninitSlice::Raw(unsafe { RawMemory::new(self.start.as_ptr(), self.len) });
        }
        let start = self.start.cast::<MaybeUninit<u8>>().as_ptr();
        // SAFETY: the buffer returned this memory and was not touched since. No operation on it is
        // in flight, because it could not be borrowed mutably then. Reads write only initialised
        // bytes.
        UninitSlice::Uninit(unsafe { std::slice::from_raw_parts_mut(start, self.len) })
    }

    /// Records that the first `n` bytes are file data, for `set_filled`.
    ///
    /// # Safety
    /// They were written through the memory that this value returned.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, n: usize) {
        self.filled = Some(n.min(self.len));
    }

    /// Calls `set_filled`, and returns the buffer. No memory is left. A panic of the buffer propagates to the caller.
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        let len = std::mem::take(&mut self.len);
        let Some(buffer) = self.buffer.take() else {
            // SAFETY: the obligation of `RawMemory::new`, which made this memory. There are no bytes if the buffer was
            // taken before.
            return Box::new(unsafe { RawMemory::new(self.start.as_ptr(), len) });
        };
        // SAFETY: the pointer came from a box, and is not used after this.
        let mut buffer = unsafe { Box::from_raw(buffer.as_ptr()) };
        if let Some(n) = self.filled {
            // SAFETY: the caller of `fill` guaranteed that these bytes were written, through the
            // memory that `as_uninit` returned at its last call.
            unsafe { buffer.set_filled(n) };
        }
        buffer
    }
}

impl Drop for ReadMemory {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer {
            // This runs on a thread of the engine if nothing waits for the operation any more.
            // SAFETY: the pointer came from a box, and is not used after this.
            user_code::discard(unsafe { Box::from_raw(buffer.as_ptr()) });
        }
    }
}

impl fmt::Debug for ReadMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadMemory({} bytes)", self.len)
    }
}

/// Bytes to be written.
pub(crate) struct WriteMemory {
    /// A raw pointer from a box, for the same reason as in [`ReadMemory`]. `None` for memory that
    /// the program keeps.
    source: Option<NonNull<dyn IoBuf>>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the same as for `ReadMemory`.
unsafe impl Send for WriteMemory {}
// SAFETY: the same as for `ReadMemory`.
unsafe impl Sync for WriteMemory {}

impl WriteMemory {
    /// Asks the source for its bytes. A panic of the source propagates to the caller.
    #[inline]
    pub(crate) fn new(source: Source) -> WriteMemory {
        let source = NonNull::from(Box::leak(source));
        let mut memory = WriteMemory {
            source: Some(source),
            start: NonNull::dangling(),
            len: 0,
        };
        // SAFETY: the pointer came from a box, and there is no other pointer to the source.
        let bytes = unsafe { source.as_ref() }.bytes();
        memory.len = bytes.len();
        memory.start = NonNull::from(bytes).cast();
        memory
    }

    /// Memory that the program keeps.
    #[inline]
    pub(crate) fn raw(memory: RawMemory) -> WriteMemory {
        WriteMemory {
            source: None,
            start: memory.slice_start(),
            len: memory.len(),
        }
    }

    /// The address and the number of the bytes.
    pub(crate) fn piece(&self) -> (usize, usize) {
        (self.start.addr().get(), self.len)
    }

    /// The bytes after the first `n`.
    #[inline]
    pub(crate) fn skip(&self, n: usize) -> (*const u8, usize) {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length.
        (unsafe { self.start.add(n) }.as_ptr(), self.len - n)
    }

    /// Returns the source of the bytes. No bytes are left.
    #[inline]
    pub(crate) fn take_source(&mut self) -> Source {
        let len = std::mem::take(&mut self.len);
        match self.source.take() {
            // SAFETY: the pointer came from a box, and is not used after this.
            Some(source) => unsafe { Box::from_raw(source.as_ptr()) },
            // SAFETY: the obligation of `RawMemory::new`, which made this memory. There are no bytes if the source was
            // taken before.
            None => Box::new(unsafe { RawMemory::new(self.start.as_ptr(), len) }),
        }
    }
}

impl Drop for WriteMemory {
    fn drop(&mut self) {
        if let Some(source) = self.source {
            // SAFETY: the same as for `ReadMemory`.
            user_code::discard(unsafe { Box::from_raw(source.as_ptr()) });
        }
    }
}

impl fmt::Debug for WriteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteMemory({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, IoBufExt, Limit, PoolBuffer, downcast, downcast_source};

    /// An address that the kernel was given.
    struct Given(*mut u8, usize);

    // SAFETY: the operation that owns the memory stays alive meanwhile.
    unsafe impl Send for Given {}

    impl Given {
        /// Writes `bytes` there in another thread, as the kernel does.
        fn receives(self, bytes: &[u8]) {
            assert!(bytes.len() <= self.1);
            let bytes = bytes.to_vec();
            let write = move |Given(start, _)| {
                // SAFETY: there is room for as much.
                unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            };
            std::thread::spawn(move || write(self)).join().unwrap();
        }

        /// Reads what is there.
        fn gives(self, bytes: &[u8]) {
            // SAFETY: so many bytes are there.
            assert_eq!(unsafe { std::slice::from_raw_parts(self.0, self.1) }, bytes);
        }
    }

    /// Fills the buffer as a read does: a first byte in the caller, the others by the kernel, in
    /// two parts, while the operation is moved, shared and shown. The last `short` bytes are left
    /// as they are.
    fn filled(buffer: Buffer, short: usize) -> Buffer {
        let mut memory = ReadMemory::new(buffer);
        let n = memory.len() - short;
        if let UninitSlice::Uninit(space) = memory.as_uninit() {
            space[0].write(1);
        }
        let (start, room) = memory.skip(1);
        let given = Given(start, room);
        let memory = Box::new(memory);
        std::thread::scope(|s| {
            s.spawn(move || given.receives(&[2, 3]));
            assert_eq!(
                format!("{memory:?}"),
                format!("ReadMemory({} bytes)", room + 1)
            );
        });
        let mut memory = *memory;
        let (start, room) = memory.skip(3);
        let rest: Vec<u8> = (4..=n as u8).collect();
        Given(start, room).receives(&rest);
        // SAFETY: as many bytes were just written.
        unsafe { memory.fill(n) };
        memory.take_buffer()
    }

    #[test]
    fn a_buffer_holds_what_was_written_while_its_operation_moved() {
        let bytes: Vec<u8> = (1..=20).collect();
        let vector = filled(Box::new(Vec::<u8>::with_capacity(24).limit(24)), 4);
        let Ok(vector) = downcast::<Limit<Vec<u8>>>(vector) else {
            panic!("another type")
        };
        assert_eq!(vector.into_inner(), bytes);

        let slice: Box<[u8]> = Box::new([9; 24]);
        let slice = downcast::<Box<[u8]>>(filled(Box::new(slice), 4)).unwrap();
        assert_eq!(slice[..20], bytes);
        assert_eq!(slice[20..], [9; 4]);

        let array = downcast::<Box<[u8; 24]>>(filled(Box::new(Box::new([9; 24])), 4)).unwrap();
        assert_eq!(array[..20], bytes);

        let pool = BufferPool::new(1, 24).unwrap();
        let pooled = filled(Box::new(pool.take().unwrap()), 4);
        let pooled = downcast::<PoolBuffer>(pooled).unwrap();
        assert_eq!(pooled[..20], bytes);
        drop(pooled);
        assert_eq!(pool.free(), 1);
    }

    /// Its memory lies within itself.
    struct Within {
        told: usize,
        bytes: [MaybeUninit<u8>; 24],
    }

    impl IoBufMut for Within {
        fn as_uninit(&mut self) -> UninitSlice<'_> {
            UninitSlice::Uninit(&mut self.bytes)
        }

        unsafe fn set_filled(&mut self, n: usize) {
            self.told = n;
        }
    }

    #[test]
    fn memory_within_a_buffer_stays_where_it_is() {
        let within = Within {
            told: 0,
            bytes: [MaybeUninit::uninit(); 24],
        };
        let Ok(within) = downcast::<Within>(filled(Box::new(within), 4)) else {
            panic!("another type")
        };
        // SAFETY: so many were written.
        let bytes = within.bytes[..within.told]
            .iter()
            .map(|byte| unsafe { byte.assume_init() });
        assert!(bytes.eq(1..=20));
    }

    /// Names other memory each time, and frees what it named before.
    struct Fickle(Vec<u8>);

    impl IoBufMut for Fickle {
        fn as_uninit(&mut self) -> UninitSlice<'_> {
            self.0 = Vec::with_capacity(24);
            UninitSlice::Uninit(&mut self.0.spare_capacity_mut()[..24])
        }

        unsafe fn set_filled(&mut self, n: usize) {
            // SAFETY: the caller's promise, of the memory named last.
            unsafe { self.0.set_len(n) };
        }
    }

    #[test]
    fn a_buffer_that_names_other_memory_each_time_is_asked_once() {
        let fickle = filled(Box::new(Fickle(Vec::new())), 4);
        let Ok(fickle) = downcast::<Fickle>(fickle) else {
            panic!("another type")
        };
        assert!(fickle.0.into_iter().eq(1..=20));
    }

    #[test]
    fn what_was_not_filled_or_not_taken_back_is_freed() {
        let unfilled = ReadMemory::new(Box::new(vec![7u8; 10])).take_buffer();
        assert_eq!(downcast::<Vec<u8>>(unfilled).unwrap(), []);
        let mut dropped = ReadMemory::new(Box::new(Vec::<u8>::with_capacity(10)));
        // SAFETY: no byte at all.
        unsafe { dropped.fill(0) };
        let (start, room) = dropped.skip(0);
        Given(start, room).receives(&[1]);
        drop(dropped);
        drop(WriteMemory::new(Box::new("bytes")));
    }

    #[test]
    fn bytes_to_be_written_can_be_read_while_their_operation_moves() {
        fn written(source: Source) -> Source {
            let memory = WriteMemory::new(source);
            let (start, len) = memory.skip(1);
            let given = Given(start.cast_mut(), len);
            let moved = Box::new(memory);
            let kernel = std::thread::spawn(move || given.gives(b"ytes"));
            assert_eq!(moved.piece().1, 5);
            assert_eq!(format!("{moved:?}"), "WriteMemory(5 bytes)");
            let mut moved = *moved;
            kernel.join().unwrap();
            moved.take_source()
        }
        let vector = written(Box::new(b"bytes".to_vec()));
        assert_eq!(downcast_source::<Vec<u8>>(vector).unwrap(), b"bytes");
        let array = written(Box::new(*b"bytes"));
        assert_eq!(downcast_source::<[u8; 5]>(array).unwrap(), *b"bytes");
        written(Box::new("bytes"));
        written(Box::new("bytes and more".to_owned().limit(5)));
    }
}
