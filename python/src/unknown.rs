//! Files whose residency is unknown.

use nowait_page_cache::Unknowns;
use pyo3::prelude::*;

/// Files whose residency the kernel does not report, and the reason.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct Unknown {
    /// The reason, with a remedy.
    reason: String,
    /// The number of files.
    files: u64,
    /// The total size of the files in bytes.
    bytes: u64,
}

impl Unknown {
    /// The files of all reasons.
    pub fn all(py: Python<'_>, unknown: &Unknowns) -> PyResult<Vec<Py<Unknown>>> {
        let all = unknown.0.iter().map(|unknown| {
            let unknown = Unknown {
                reason: unknown.why.to_string(),
                files: unknown.files,
                bytes: unknown.size,
            };
            Py::new(py, unknown)
        });
        all.collect()
    }
}

#[pymethods]
impl Unknown {
    fn __repr__(&self) -> String {
        format!(
            "Unknown(reason={:?}, files={}, bytes={})",
            self.reason, self.files, self.bytes
        )
    }
}
