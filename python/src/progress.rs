//! The state of a call that runs.

use nowait_page_cache as page_cache;
use pyo3::prelude::*;

/// How far a call of warm() is. The callback gets it about 20 times per second.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct Progress {
    /// The number of processed files.
    files: u64,
    /// The number of bytes that were read.
    read_bytes: u64,
    /// The bytes that were read per second, since the call began.
    bytes_per_s: u64,
}

impl From<page_cache::Progress> for Progress {
    fn from(progress: page_cache::Progress) -> Progress {
        Progress {
            files: progress.files,
            read_bytes: progress.read_bytes,
            bytes_per_s: progress.bytes_per_s,
        }
    }
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        format!(
            "Progress(files={}, read_bytes={}, bytes_per_s={})",
            self.files, self.read_bytes, self.bytes_per_s
        )
    }
}
