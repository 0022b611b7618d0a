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
    /// The bytes that are done: in the page cache before, read, in holes, or given up because of the
    /// budget or an error.
    done_bytes: u64,
    /// The size of all files, with holes. None until it is counted, which begins after a second.
    total_bytes: Option<u64>,
    /// The share of the bytes that is done, from 0 to 100; None until total_bytes is known.
    percent: Option<f64>,
}

impl From<page_cache::Progress> for Progress {
    fn from(progress: page_cache::Progress) -> Progress {
        Progress {
            files: progress.files,
            read_bytes: progress.read_bytes,
            bytes_per_s: progress.bytes_per_s,
            done_bytes: progress.done_bytes,
            total_bytes: progress.total_bytes,
            percent: progress.percent(),
        }
    }
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        let of_total = match (self.total_bytes, self.percent) {
            (Some(total), Some(percent)) => format!("{total}, percent={percent:.1}"),
            _ => "None, percent=None".to_owned(),
        };
        format!(
            "Progress(files={}, read_bytes={}, bytes_per_s={}, done_bytes={}, total_bytes={of_total})",
            self.files, self.read_bytes, self.bytes_per_s, self.done_bytes
        )
    }
}
