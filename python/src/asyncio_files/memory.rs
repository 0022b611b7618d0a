//! Memory of Python objects that is filled: a new `bytes`, and a buffer of the program.
#![allow(
    unsafe_code,
    reason = "PyO3 zeroes the memory of a bytes object before it is filled, and has no contiguous memory of a buffer of any type"
)]

use std::mem::MaybeUninit;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Makes a `bytes` object of `len` bytes, and calls `fill` with its memory. `fill` returns the
/// number of leading bytes that it has written, or `None` if no object is wanted.
///
/// # Errors
/// MemoryError, and that of `fill`.
pub fn filled<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<Option<usize>>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Ok(size) = isize::try_from(len) else {
        return Err(PyOverflowError::new_err("too many bytes"));
    };
    if len <= 1 {
        // The interpreter shares these objects: their memory must not be written.
        return small(py, len, fill);
    }
    // SAFETY: a null pointer asks for an object whose bytes are not initialised. The result is an
    // owned reference, or null with an exception set.
    let bytes = unsafe {
        let new = pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        Bound::from_owned_ptr_or_err(py, new)?.cast_into_unchecked::<PyBytes>()
    };
    // SAFETY: the object is a new one of more than one byte, so that nothing else refers to it. Its
    // memory has `len` bytes, and lives as long as `bytes`.
    let memory = unsafe {
        let begin = pyo3::ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>();
        std::slice::from_raw_parts_mut(begin, len)
    };
    match fill(memory)? {
        None => Ok(None),
        Some(n) if n == len => Ok(Some(bytes)),
        // SAFETY: `fill` has written the first `n` bytes.
        Some(n) => Ok(Some(PyBytes::new(py, unsafe { written(memory, n) }))),
    }
}

fn small<'py>(
    py: Python<'py>,
    len: usize,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> PyResult<Option<usize>>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let mut memory = [MaybeUninit::new(0)];
    let n = fill(&mut memory[..len])?;
    // SAFETY: all bytes were initialised above.
    Ok(n.map(|n| PyBytes::new(py, unsafe { written(&memory, n) })))
}

/// # Safety
/// The first `n` bytes are initialised.
unsafe fn written(memory: &[MaybeUninit<u8>], n: usize) -> &[u8] {
    // SAFETY: of the caller.
    unsafe { &*(&raw const memory[..n] as *const [u8]) }
}

/// A writable contiguous buffer of the program, exported until it is dropped: the object cannot be
/// resized meanwhile.
pub struct Writable(PyUntypedBuffer);

impl Writable {
    /// # Errors
    /// TypeError for an object that has no buffer, ValueError for one that is read-only or not
    /// contiguous.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Writable> {
        let buffer = PyUntypedBuffer::get(object)?;
        match buffer.is_c_contiguous() && !buffer.readonly() {
            true => Ok(Writable(buffer)),
            false => Err(PyValueError::new_err(
                "the buffer must be writable and contiguous",
            )),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// The memory.
    pub fn memory(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: the buffer is contiguous and writable, and exported as long as `self` lives. The
        // program may use the same memory in another thread, as it may during a readinto() of
        // Python's own files.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.len()) }
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
}

/// The bytes of an object that has a contiguous buffer.
///
/// # Errors
/// TypeError for an object that has no buffer, ValueError for one that is not contiguous.
pub fn copied(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer must be contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the buffer is contiguous, and exported until the copy has ended. This thread holds the
    // GIL, so that no other one changes it.
    let bytes =
        unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) };
    Ok(bytes.to_vec())
}
