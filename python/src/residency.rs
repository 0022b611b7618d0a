//! `residency` tells how much of a file is in the page cache.

use std::convert::Infallible;
use std::fmt::Display;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nowait::residency::{Answer, PageMap, Probe};
use nowait_page_cache::{FileRef, Kinds, OpenError, Reporter, SeenInodes, Stop, visit};
use pyo3::prelude::*;
use rustix::fs::{FileType, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::call;
use crate::error::open_error;
use crate::hang;
use crate::paths::{descriptor_or_file, open, path};

/// How much of a file, or of the files below a directory, is in the page cache. Sizes and offsets are
/// in bytes.
#[pyclass(frozen, get_all, module = "nowait")]
#[derive(Default)]
pub struct Residency {
    /// The number of files: 1, or that of the regular files below the directory. A file with several
    /// names counts once.
    files: u64,
    /// The size of the file or the files.
    size: u64,
    /// The memory of the file in the page cache: whole pages. None if it is unknown.
    cached_bytes: Option<u64>,
    /// The cached ranges in order, as pairs (start, end), within the size. None if unknown, and for a
    /// directory.
    ranges: Option<Vec<(u64, u64)>>,
    /// Cached memory that is changed and not yet written. None if unknown; mincore(2) does not
    /// report it.
    dirty_bytes: Option<u64>,
    /// Cached memory that is being written. None if unknown.
    writeback_bytes: Option<u64>,
    /// The source of the answer: "cachestat" or "mincore". None if the residency is unknown.
    source: Option<String>,
    /// The reason why the residency is unknown. None if it is known. For a directory, the number of
    /// files that are not in `cached_bytes`, and the reason for one of them.
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
            "Residency(files={}, size={}, cached_bytes={}, dirty_bytes={}, writeback_bytes={}, source={}, unknown={})",
            self.files,
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
///     file: A path (str, bytes or os.PathLike) of a regular file, a block device or a directory; or an
///         open descriptor or an open file, of a regular file or a block device. A path is opened
///         for reading. For a directory, all regular files below it are added up.
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
/// ...     residency(file).ranges
/// [(0, 100000)]
#[pyfunction]
pub fn residency(py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<Residency> {
    let _guard = hang::guard();
    let examined = if let Some(fd) = descriptor_or_file(file)? {
        let fd = open(file, fd)?;
        call::run(py, &Stop::default(), None, move |_| of_descriptor(fd))
    } else {
        let (path, stop) = (path(file)?, Stop::default());
        let its = stop.clone();
        call::run(py, &stop, None, move |_| of_path(path, &its))
    };
    examined?.map_err(|why| open_error(py, why, file))
}

/// Opens a file and examines it. Files of other types are not opened.
fn of_path(path: PathBuf, stop: &Stop) -> Result<Residency, OpenError> {
    let stat = rustix::fs::stat(&path)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return of_directory(&path, stop);
    }
    let kind = kind(&stat)?;
    let (file, stat): (File, Stat) = FileRef::given(path, stat.st_ino, kind).look()?;
    examine(file.as_fd(), &stat)
}

/// The files below a directory that were not examined.
struct Failed<'a> {
    directory: &'a Path,
    state: Mutex<FailedFiles>,
}

#[derive(Default)]
struct FailedFiles {
    number: u64,
    /// One of the reasons.
    why: Option<String>,
    /// The error of the directory itself.
    directory: Option<Errno>,
}

impl Failed<'_> {
    fn add(&self, why: String) -> MutexGuard<'_, FailedFiles> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.number += 1;
        state.why.get_or_insert(why);
        state
    }
}

impl Reporter for Failed<'_> {
    fn failure(&self, path: &Path, errno: Option<Errno>, why: &dyn Display) {
        let mut state = self.add(why.to_string());
        if path == self.directory {
            state.directory = errno;
        }
    }

    fn note(&self, _: &Path, _: &dyn Display) {}
}

/// Adds up the regular files below a directory.
fn of_directory(path: &Path, stop: &Stop) -> Result<Residency, OpenError> {
    let failed = Failed {
        directory: path,
        state: Mutex::default(),
    };
    let mut seen = SeenInodes::new(false);
    let mut all = Residency {
        cached_bytes: Some(0),
        dirty_bytes: Some(0),
        writeback_bytes: Some(0),
        ..Residency::default()
    };
    let walking = nowait::walk::Options::new();
    let mut add = |file: FileRef| {
        let examined = file.look().and_then(|(file, stat): (File, Stat)| {
            let is_new = seen.insert(&stat);
            is_new.then(|| totals(file.as_fd(), &stat)).transpose()
        });
        match examined {
            Ok(Some(one)) => all.add(&one, &failed),
            Ok(None) => {}
            Err(why) => drop(failed.add(why.to_string())),
        }
        Ok::<(), Infallible>(())
    };
    let Ok(()) = visit(path, Kinds::Regular, walking, &failed, stop, &mut add);
    let failed = failed.state.into_inner();
    let failed = failed.unwrap_or_else(PoisonError::into_inner);
    if let Some(errno) = failed.directory {
        return Err(errno.into());
    }
    all.unknown = failed.why.map(|why| match failed.number {
        1 => format!("1 file: {why}"),
        number => format!("{number} files: {why}"),
    });
    Ok(all)
}

impl Residency {
    /// Adds a file.
    fn add(&mut self, one: &Residency, failed: &Failed<'_>) {
        self.files += 1;
        self.size = self.size.saturating_add(one.size);
        if let Some(why) = &one.unknown {
            drop(failed.add(why.clone()));
            return;
        }
        let add = |sum: Option<u64>, more: Option<u64>| Some(sum?.saturating_add(more?));
        self.cached_bytes = add(self.cached_bytes, one.cached_bytes);
        self.dirty_bytes = add(self.dirty_bytes, one.dirty_bytes);
        self.writeback_bytes = add(self.writeback_bytes, one.writeback_bytes);
        if self.source.is_none() {
            self.source.clone_from(&one.source);
        }
    }
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

/// Examines a file, with its ranges.
fn examine(file: BorrowedFd<'_>, stat: &Stat) -> Result<Residency, OpenError> {
    let mut examined = totals(file, stat)?;
    if examined.cached_bytes.is_some() {
        let map = Probe::new(&file)?.page_map(0..u64::MAX)?.known();
        let ranges = |map: PageMap| map.resident().map(|run| (run.start, run.end)).collect();
        examined.ranges = map.map(ranges);
    }
    Ok(examined)
}

/// Examines a file, without its ranges.
fn totals(file: BorrowedFd<'_>, stat: &Stat) -> Result<Residency, OpenError> {
    let known = Probe::new(&file)?.residency(0..u64::MAX)?;
    let bytes = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64);
    let mut examined = Residency {
        files: 1,
        size: size(file, stat)?,
        ..Residency::default()
    };
    match known {
        Answer::Unknown(reason) => examined.unknown = Some(reason.to_string()),
        Answer::Known { value, source } => {
            examined.cached_bytes = Some(bytes(value.cached));
            examined.dirty_bytes = value.dirty.map(bytes);
            examined.writeback_bytes = value.writeback.map(bytes);
            examined.source = Some(source.to_string());
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
