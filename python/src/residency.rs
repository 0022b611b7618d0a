//! `residency` tells how much of a file is in the page cache.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nowait::residency::{Answer, PageMap, Probe};
use nowait_page_cache::{FileRef, OpenError, Stop};
use pyo3::prelude::*;
use rustix::fs::{FileType, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::call;
use crate::error::open_error;
use crate::hang;
use crate::paths::{descriptor, open, path};

/// How much of a file is in the page cache. Sizes and offsets are in bytes.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct Residency {
    /// The size of the file.
    size: u64,
    /// The memory of the file in the page cache: whole pages. None if it is unknown.
    cached_bytes: Option<u64>,
    /// The cached ranges in order, as pairs (start, end), within the size. None if unknown.
    ranges: Option<Vec<(u64, u64)>>,
    /// Cached memory that is changed and not yet written. None if unknown; mincore(2) does not
    /// report it.
    dirty_bytes: Option<u64>,
    /// Cached memory that is being written. None if unknown.
    writeback_bytes: Option<u64>,
    /// The source of the answer: "cachestat" or "mincore". None if the residency is unknown.
    source: Option<String>,
    /// The reason why the residency is unknown. None if it is known.
    unknown: Option<String>,
}

#[pymethods]
impl Residency {
    fn __repr__(&self) -> String {
        let or_none = |number: Option<u64>| number.map_or("None".to_owned(), |n| n.to_string());
        let text = |text: &Option<String>| match text {
            Some(text) => format!("{text:?}"),
            None => "None".to_owned(),
        };
        format!(
            "Residency(size={}, cached_bytes={}, dirty_bytes={}, writeback_bytes={}, source={}, unknown={})",
            self.size,
            or_none(self.cached_bytes),
            or_none(self.dirty_bytes),
            or_none(self.writeback_bytes),
            text(&self.source),
            text(&self.unknown),
        )
    }
}

/// Tells how much of a file is in the page cache, without reading the file.
///
/// The kernel does not report it to users who neither own the file nor may write to it. The GIL is
/// released. Ctrl-C raises KeyboardInterrupt within 0.2 seconds, also while a server does not answer.
///
/// Args:
///     file: A path (str, bytes or os.PathLike) or an open descriptor of a regular file or a block
///         device. A path is opened for reading.
///
/// Returns:
///     A Residency. If the residency is unknown, its `unknown` is the reason.
///
/// Raises:
///     OSError: The file cannot be opened, or is of another type. It has errno and filename, and is
///         of the subclass that open() raises.
///     ValueError: The path has a null byte.
///
/// >>> import tempfile
/// >>> with tempfile.TemporaryFile() as file:
/// ...     _ = file.write(bytes(100_000))
/// ...     file.flush()
/// ...     residency(file.fileno()).ranges
/// [(0, 100000)]
#[pyfunction]
pub fn residency(py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<Residency> {
    let _guard = hang::guard();
    let examined = if let Some(fd) = descriptor(file)? {
        let fd = open(file, fd)?;
        call::run(py, &Stop::default(), None, move |_| of_descriptor(fd))
    } else {
        let path = path(file)?;
        call::run(py, &Stop::default(), None, move |_| of_path(path))
    };
    examined?.map_err(|why| open_error(py, why, file))
}

/// Opens a file and examines it. Files of other types are not opened.
fn of_path(path: std::path::PathBuf) -> Result<Residency, OpenError> {
    let stat = rustix::fs::stat(&path)?;
    let kind = kind(&stat)?;
    let (file, stat): (File, Stat) = FileRef::given(path, stat.st_ino, kind).look()?;
    examine(file.as_fd(), &stat)
}

fn of_descriptor(fd: BorrowedFd<'_>) -> Result<Residency, OpenError> {
    let stat = rustix::fs::fstat(fd)?;
    kind(&stat)?;
    if rustix::fs::fcntl_getfl(fd)?.contains(OFlags::PATH) {
        return Err(Errno::BADF.into());
    }
    examine(fd, &stat)
}

/// The type of a file whose pages are in the page cache.
fn kind(stat: &Stat) -> Result<FileType, OpenError> {
    match FileType::from_raw_mode(stat.st_mode) {
        kind @ (FileType::RegularFile | FileType::BlockDevice) => Ok(kind),
        FileType::Directory => Err(Errno::ISDIR.into()),
        kind => Err(OpenError::Changed(kind)),
    }
}

fn examine(file: BorrowedFd<'_>, stat: &Stat) -> Result<Residency, OpenError> {
    let probe = Probe::new(&file)?;
    let known = probe.residency(0..u64::MAX)?;
    let bytes = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64);
    let mut examined = Residency {
        size: size(file, stat)?,
        cached_bytes: None,
        ranges: None,
        dirty_bytes: None,
        writeback_bytes: None,
        source: None,
        unknown: None,
    };
    match known {
        Answer::Unknown(reason) => examined.unknown = Some(reason.to_string()),
        Answer::Known { value, source } => {
            examined.cached_bytes = Some(bytes(value.cached));
            examined.dirty_bytes = value.dirty.map(bytes);
            examined.writeback_bytes = value.writeback.map(bytes);
            examined.source = Some(source.to_string());
            let map = probe.page_map(0..u64::MAX)?.known();
            let ranges = |map: PageMap| map.resident().map(|run| (run.start, run.end)).collect();
            examined.ranges = map.map(ranges);
        }
    }
    Ok(examined)
}

/// The size of a file or a block device. The position of the descriptor stays as it is.
fn size(file: BorrowedFd<'_>, stat: &Stat) -> Result<u64, OpenError> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(stat.st_size as u64);
    }
    // fstat(2) reports 0 for a block device, and the position belongs to the caller.
    let again: File = nowait::reopen(file, OFlags::RDONLY | OFlags::CLOEXEC)?.into();
    Ok(rustix::fs::seek(&again, SeekFrom::End(0))?)
}
