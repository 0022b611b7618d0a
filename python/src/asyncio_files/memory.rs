//! Memory of Python objects that files are read into and written from.
//!
//! ```text
//!  NewBytes ─► the engine fills it ─► the result, without a copy
//!  Source   ─► bytes: the engine writes them, without a copy
//!              others: copied in the loop's thread; large ones lent to a worker, which copies them
//!  Exported ─► filled in the loop's thread; a large one is lent to a worker, which fills it
//! ```
#![allow(
    unsafe_code,
    reason = "PyO3 zeroes the memory of a bytes object before it is filled, and has no contiguous memory of a buffer of any type"
)]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nowait::buffer::UninitSlice;
use nowait::{File, IoBuf, IoBufMut};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::failure::{Failure, reserved};

/// The largest number of bytes of the program's memory that the loop's thread copies. A copy of this size
/// takes up to a millisecond if the memory is new.
pub const LARGEST: usize = 1 << 20;

/// The number of bytes that a worker copies before it looks if the memory was taken back.
const PIECE: usize = 256 << 10;

/// A `bytes` object that is being filled. Nothing else refers to it.
pub struct NewBytes {
    object: Py<PyBytes>,
    memory: Slice,
    filled: usize,
}

impl NewBytes {
    /// # Errors
    /// MemoryError.
    pub fn new(py: Python<'_>, len: usize) -> PyResult<NewBytes> {
        // The interpreter shares the objects of 0 and 1 bytes: their memory must not be written.
        let Ok(size) = isize::try_from(len.max(2)) else {
            return Err(PyOverflowError::new_err("too many bytes"));
        };
        // SAFETY: a null pointer asks for an object whose bytes are not initialised. The result is
        // an owned reference, or null with an exception set. Its memory has at least `len` bytes.
        unsafe {
            let new = pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
            let object = Bound::from_owned_ptr_or_err(py, new)?.cast_into_unchecked::<PyBytes>();
            let start = pyo3::ffi::PyBytes_AsString(object.as_ptr());
            Ok(NewBytes {
                object: object.unbind(),
                memory: Slice::new(start.cast(), len),
                filled: 0,
            })
        }
    }

    /// Calls `fill` with the memory. `fill` returns the number of leading bytes that it has written,
    /// or `None`. Returns false for `None`.
    #[inline]
    pub fn fill(
        &mut self,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<Option<usize>>,
    ) -> PyResult<bool> {
        // SAFETY: the memory lives as long as `self`, and nothing else refers to it.
        let filled = fill(unsafe { self.memory.as_uninit() })?;
        self.filled = filled.unwrap_or(0);
        Ok(filled.is_some())
    }

    /// The bytes that were filled.
    #[inline]
    pub fn filled(self, py: Python<'_>) -> Bound<'_, PyBytes> {
        // Objects of less than two bytes are copied.
        match self.filled == self.memory.len.max(2) {
            true => self.object.into_bound(py),
            // SAFETY: so many bytes were written.
            false => PyBytes::new(py, unsafe { self.memory.first(self.filled) }),
        }
    }
}

impl IoBufMut for NewBytes {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        // SAFETY: as in `fill`.
        UninitSlice::Uninit(unsafe { self.memory.as_uninit() })
    }

    unsafe fn set_filled(&mut self, n: usize) {
        self.filled = n;
    }
}

/// The bytes to write: those of an object that has a contiguous buffer.
pub enum Source {
    Bytes(SharedBytes),
    Copied(Vec<u8>),
    /// More than [`LARGEST`] bytes that the program may change.
    Large(Borrower),
}

impl Source {
    /// The source, with the buffer that is lent to its worker.
    ///
    /// # Errors
    /// TypeError for an object that has no buffer, ValueError for one that is not contiguous.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<(Source, Option<Exported>)> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            let bytes = SharedBytes::from(bytes, 0);
            return Ok((Source::Bytes(bytes), None));
        }
        let mut buffer = Exported::of(object)?;
        if buffer.len() > LARGEST {
            let large = Source::Large(buffer.lend());
            return Ok((large, Some(buffer)));
        }
        // SAFETY: the buffer is exported until the copy has ended. This thread holds the GIL, so that
        // no other one changes it.
        let bytes = unsafe { buffer.slice().first(buffer.len()) };
        Ok((Source::Copied(bytes.to_vec()), None))
    }
}

/// The bytes of a `bytes` object, which do not change.
pub struct SharedBytes {
    _object: Py<PyBytes>,
    memory: Slice,
}

impl SharedBytes {
    /// The bytes after the first `begin`.
    pub fn from(object: &Bound<'_, PyBytes>, begin: usize) -> SharedBytes {
        let bytes = object.as_bytes();
        let bytes = &bytes[begin.min(bytes.len())..];
        SharedBytes {
            _object: object.clone().unbind(),
            memory: Slice::new(bytes.as_ptr().cast_mut(), bytes.len()),
        }
    }
}

impl IoBuf for SharedBytes {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the object lives as long as `self`, and its bytes do not change.
        unsafe { self.memory.first(self.memory.len) }
    }
}

/// A contiguous buffer of the program, exported until it is dropped: the object cannot be resized
/// meanwhile.
pub struct Exported {
    buffer: PyUntypedBuffer,
    /// The memory for a worker, and the process of the worker. No worker uses it after this was dropped.
    lent: Option<(Arc<Mutex<Option<Slice>>>, u32)>,
}

/// The memory of a buffer that is lent to a worker.
pub struct Borrower(Arc<Mutex<Option<Slice>>>);

impl Exported {
    /// # Errors
    /// TypeError for an object that has no buffer, ValueError for one that is not contiguous.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Exported> {
        let buffer = PyUntypedBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Exported { buffer, lent: None }),
            false => Err(PyValueError::new_err("the buffer must be contiguous")),
        }
    }

    /// Exports a buffer that can be written.
    ///
    /// # Errors
    /// As [`of`](Exported::of), and ValueError for a read-only one.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Exported> {
        let exported = Exported::of(object)?;
        match exported.buffer.readonly() {
            true => Err(PyValueError::new_err("the buffer must be writable")),
            false => Ok(exported),
        }
    }

    /// The object that the buffer refers to.
    pub fn object<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyAny>> {
        self.buffer.obj(py)
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.buffer.len_bytes()
    }

    fn slice(&self) -> Slice {
        Slice::new(self.buffer.buf_ptr().cast(), self.len())
    }

    /// The memory of a writable buffer.
    pub fn memory(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the buffer is contiguous and exported as long as `self` lives. The program may use the
        // same memory in another thread, as it may during a readinto() of Python's own files.
        unsafe { self.slice().as_uninit() }
    }

    /// Copies bytes to its beginning, as many as fit.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let memory = self.memory();
        let n = bytes.len().min(memory.len());
        for (to, from) in memory.iter_mut().zip(bytes) {
            to.write(*from);
        }
        n
    }

    /// Lends the memory to a worker.
    pub fn lend(&mut self) -> Borrower {
        let lent = Arc::new(Mutex::new(Some(self.slice())));
        self.lent = Some((lent.clone(), std::process::id()));
        Borrower(lent)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let Some((lent, process)) = &self.lent
            // A forked child has no worker, which may have had the lock.
            && *process == std::process::id()
        {
            // The lock waits until a worker has copied its piece.
            *lock(lent) = None;
        }
    }
}

impl Borrower {
    /// Fills the memory with bytes of a file, up to its end. Returns their number.
    pub fn fill(&self, file: &File, offset: u64) -> Result<usize, Failure> {
        let mut piece = reserved(PIECE)?;
        let mut done = 0;
        loop {
            let left = lock(&self.0).as_ref().map_or(0, |memory| memory.len - done);
            let room = &mut piece.spare_capacity_mut()[..left.min(PIECE)];
            let n = file.blocking_read_at(UninitSlice::Uninit(room), offset + done as u64)?;
            let memory = lock(&self.0);
            let Some(memory) = memory.as_ref().filter(|_| n > 0) else {
                return Ok(done);
            };
            // SAFETY: the read has filled so many bytes of the piece, and the memory has room for
            // them. It is lent as long as it is locked. See `Exported::memory` for other threads.
            unsafe { memory.at(done).copy_from_nonoverlapping(piece.as_ptr(), n) };
            done += n;
        }
    }

    /// A copy of the memory, or of its beginning if it was taken back meanwhile.
    pub fn copy(&self) -> Result<Vec<u8>, Failure> {
        let len = lock(&self.0).as_ref().map_or(0, |memory| memory.len);
        let mut copy = reserved(len)?;
        while copy.len() < len {
            let memory = lock(&self.0);
            let Some(memory) = &*memory else {
                break;
            };
            let (done, n) = (copy.len(), PIECE.min(len - copy.len()));
            // SAFETY: both have so many bytes after the first `done`. The memory is lent as long as
            // it is locked. A program that changes it meanwhile writes some of both.
            unsafe {
                let to = copy.as_mut_ptr().add(done);
                to.copy_from_nonoverlapping(memory.at(done), n);
                copy.set_len(done + n);
            }
        }
        Ok(copy)
    }
}

/// The state is consistent after each change.
fn lock(memory: &Mutex<Option<Slice>>) -> MutexGuard<'_, Option<Slice>> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a Python object.
struct Slice {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address may be in any thread. A function that uses the memory has the object, or a
// lock.
unsafe impl Send for Slice {}

impl Slice {
    fn new(start: *mut u8, len: usize) -> Slice {
        Slice {
            // An empty buffer may have no address.
            start: NonNull::new(start).unwrap_or(NonNull::dangling()),
            len,
        }
    }

    /// # Safety
    /// `n` is at most the length.
    unsafe fn at(&self, n: usize) -> *mut u8 {
        // SAFETY: of the caller.
        unsafe { self.start.as_ptr().add(n) }
    }

    /// # Safety
    /// The memory has an owner that outlives the result, and nothing else uses it meanwhile.
    unsafe fn as_uninit<'a>(&self) -> &'a mut [MaybeUninit<u8>] {
        // SAFETY: of the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len) }
    }

    /// # Safety
    /// The first `n` bytes are initialised and have an owner that outlives the result, and nothing
    /// changes them meanwhile.
    unsafe fn first<'a>(&self, n: usize) -> &'a [u8] {
        // SAFETY: of the caller.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), n) }
    }
}
