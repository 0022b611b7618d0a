//! A str that is made of pieces.
#![allow(unsafe_code, reason = "PyO3 has no safe form of PyUnicode_Append")]

use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Pieces of text, joined. The memory grows in place, so that a piece takes no longer if there are
/// many: `str.join` would copy all of them at once. A piece of wider characters than those before
/// copies these.
#[pyclass(frozen, module = "nowait.asyncio_files")]
pub struct Text(Mutex<Option<Py<PyString>>>);

#[pymethods]
impl Text {
    #[new]
    fn new() -> Text {
        Text(Mutex::new(None))
    }

    /// Appends a piece.
    fn append(&self, piece: &Bound<'_, PyString>) -> PyResult<()> {
        let py = piece.py();
        let Some(text) = self.take() else {
            self.put(piece.clone().unbind());
            return Ok(());
        };
        let mut text = text.into_ptr();
        // SAFETY: both are str objects. The function takes over the reference, and returns another
        // one, or null with an exception set.
        let text = unsafe {
            ffi::PyUnicode_Append(&raw mut text, piece.as_ptr());
            Bound::from_owned_ptr_or_err(py, text)?.cast_into_unchecked::<PyString>()
        };
        self.put(text.unbind());
        Ok(())
    }

    /// Takes the text, which is empty afterwards.
    fn join<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        let text = self.take().map(|text| text.into_bound(py));
        text.unwrap_or_else(|| PyString::new(py, ""))
    }
}

impl Text {
    fn take(&self) -> Option<Py<PyString>> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.take()
    }

    fn put(&self, text: Py<PyString>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}
