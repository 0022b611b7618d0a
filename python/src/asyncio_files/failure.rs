//! The failure of a request in the engine.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use crate::error::call_error;

pub enum Failure {
    /// No memory for the bytes.
    Memory,
    Call(nowait::Error),
}

impl From<nowait::Error> for Failure {
    fn from(error: nowait::Error) -> Failure {
        Failure::Call(error)
    }
}

impl Failure {
    pub fn for_python(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Memory => PyMemoryError::new_err(()),
            Failure::Call(error) => call_error(py, &error),
        }
    }
}

/// Memory for `len` bytes.
pub fn reserved(len: usize) -> Result<Vec<u8>, Failure> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(len).map_err(|_| Failure::Memory)?;
    Ok(memory)
}
