//! Memory that a program in another language lends.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use rustix::pipe::{PipeFlags, pipe_with};

use super::{Errno, check, retry};

/// The number of bytes that are copied at a time: the capacity of a pipe.
const PIECE: usize = 64 << 10;

/// Memory that the program lends to operations: an address and a length. It is for interfaces of
/// other languages, whose callers keep their memory. Rust programs use a buffer that owns its
/// memory.
///
/// ```
/// use nowait::buffer::RawMemory;
/// let mut memory = vec![0u8; 9];
/// let file = nowait::File::blocking_open("Cargo.toml")?;
/// // SAFETY: the read is complete before the memory is used.
/// let buffer = unsafe { RawMemory::new(memory.as_mut_ptr(), memory.len()) };
/// pollster::block_on(file.read_exact_at(buffer, 0)).result?;
/// assert_eq!(memory, b"[package]");
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawMemory {
    start: *mut u8,
    len: usize,
}

// SAFETY: Assumption: the obligation of `RawMemory::new`. Only the kernel reads or writes the
// memory.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// Lends `len` bytes from `start` on. The kernel alone accesses them: if they are not mapped,
    /// an operation fails with EFAULT. A misaligned read of a file that was opened with
    /// [`unaligned`](crate::OpenOptions::unaligned) copies by way of a pipe, and fails with EMFILE
    /// or ENFILE if there is no descriptor for it.
    ///
    /// # Safety
    /// Until every operation with this value or a copy of it is complete, the memory is valid or
    /// not mapped at all, and the program neither writes it nor, if the operation reads into it,
    /// reads it.
    pub unsafe fn new(start: *mut u8, len: usize) -> RawMemory {
        RawMemory { start, len }
    }

    /// The address of the first byte. It is null if it was made so.
    pub fn start(self) -> *mut u8 {
        self.start
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns true if there is no byte.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns true if the start is null and the length is not 0.
    pub fn is_null(self) -> bool {
        self.start.is_null() && self.len > 0
    }

    /// The memory without its first `n` bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> RawMemory {
        let n = n.min(self.len);
        RawMemory {
            start: self.start.wrapping_add(n),
            len: self.len - n,
        }
    }

    /// At most the first `n` bytes of the memory.
    #[must_use]
    pub(crate) fn first(self, n: usize) -> RawMemory {
        RawMemory {
            len: self.len.min(n),
            ..self
        }
    }

    /// The start, for a slice: a slice must not begin at null, also not one of no bytes.
    pub(crate) fn slice_start(self) -> NonNull<u8> {
        NonNull::new(self.start).unwrap_or(NonNull::dangling())
    }

    /// Copies bytes to the start, as many as fit. The kernel writes them: a pipe gets them, and is
    /// read into the memory. process_vm_writev(2) would need no pipe, but it refuses the memory of
    /// devices, and filters of system calls deny it.
    ///
    /// # Errors
    /// EFAULT if the memory cannot be written; the errno of pipe2(2), such as EMFILE.
    pub(crate) fn copy_from(self, bytes: &[u8]) -> Result<(), Errno> {
        let mut left = self.first(bytes.len());
        let mut bytes = &bytes[..left.len];
        if bytes.is_empty() {
            return Ok(());
        }
        // A user with many pipes gets smaller ones. A write to a full one must not wait.
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(PIECE)];
            let sent = retry::interrupted(|| rustix::io::write(&writer, piece))?;
            let end = left.len - sent;
            while left.len > end {
                let (start, len) = (left.start.cast(), left.len - end);
                // SAFETY: the obligation of `RawMemory::new`. The kernel checks the address.
                let read = || check(unsafe { libc::read(reader.as_raw_fd(), start, len) } as i64);
                match retry::interrupted(read)? {
                    // The writer is open, so there is no end.
                    0 => return Err(Errno::IO),
                    n => left = left.skip(n),
                }
            }
            bytes = &bytes[sent..];
        }
        Ok(())
    }
}
