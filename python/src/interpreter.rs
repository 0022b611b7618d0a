//! The interpreter that has imported the module. Another one in the same process is refused: PyO3
//! keeps types and exceptions in statics, which belong to one interpreter.
#![allow(
    unsafe_code,
    reason = "the interpreter's number is not in PyO3's safe interface"
)]

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// No interpreter has this number.
const NONE: i64 = -1;

/// The number of the first interpreter.
static FIRST: AtomicI64 = AtomicI64::new(NONE);

/// Checks that this is the interpreter that has imported the module first.
///
/// # Errors
/// ImportError in another interpreter.
pub fn check(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached to an interpreter, which both calls need.
    let this = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    let first = FIRST.compare_exchange(NONE, this, SeqCst, SeqCst);
    match first {
        Err(first) if first != this => Err(PyImportError::new_err(
            "nowait cannot be imported in a second interpreter of a process: use threads or processes",
        )),
        _ => Ok(()),
    }
}
