//! `os.stat_result` of the metadata that the library has.

use std::os::unix::fs::MetadataExt;

use nowait::Metadata;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// The metadata as os.stat() returns it.
pub fn stat_result(py: Python<'_>, of: &Metadata) -> PyResult<Py<PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.import(py, "os", "stat_result")?;
    let times = [
        (of.atime(), of.atime_nsec()),
        (of.mtime(), of.mtime_nsec()),
        (of.ctime(), of.ctime_nsec()),
    ];
    let numbers = [
        u64::from(of.mode()),
        of.ino(),
        of.dev(),
        of.nlink(),
        u64::from(of.uid()),
        u64::from(of.gid()),
        of.size(),
    ];
    let mut fields = Vec::with_capacity(19);
    for number in numbers {
        fields.push(number.into_bound_py_any(py)?);
    }
    for (seconds, _) in times {
        fields.push(seconds.into_bound_py_any(py)?);
    }
    for (seconds, nanoseconds) in times {
        let seconds = seconds as f64 + 1e-9 * nanoseconds as f64;
        fields.push(seconds.into_bound_py_any(py)?);
    }
    for (seconds, nanoseconds) in times {
        let nanoseconds = i128::from(seconds) * SECOND + i128::from(nanoseconds);
        fields.push(nanoseconds.into_bound_py_any(py)?);
    }
    for number in [of.blksize(), of.blocks(), of.rdev()] {
        fields.push(number.into_bound_py_any(py)?);
    }
    let fields = PyTuple::new(py, fields)?;
    Ok(class.call1((fields,))?.unbind())
}
