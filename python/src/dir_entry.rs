//! Entries of directories, with the interface of os.DirEntry.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use nowait::{FileType, Metadata, Scan, StatxMask, scan};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};
use rustix::fs::{CWD, Mode, OFlags};

use crate::error::library_error;
use crate::hang;
use crate::stat_result::stat_result;

/// The directory of entries, from which their names and paths are made.
pub struct Directory {
    /// The descriptor, if the program has given one. Paths are then names.
    fd: Option<OwnedFd>,
    /// The path with a slash at its end, or nothing.
    prefix: Vec<u8>,
    /// The length of the path as it was given.
    path_len: usize,
    /// True if names and paths are `bytes`.
    bytes: bool,
}

impl Directory {
    /// A directory with this path.
    pub fn of_path(path: &[u8], bytes: bool) -> Directory {
        let mut prefix = path.to_vec();
        if !prefix.is_empty() && !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        Directory {
            fd: None,
            prefix,
            path_len: path.len(),
            bytes,
        }
    }

    /// An open directory.
    pub fn of_descriptor(fd: OwnedFd) -> Directory {
        Directory {
            fd: Some(fd),
            prefix: Vec::new(),
            path_len: 0,
            bytes: false,
        }
    }

    /// Begins to list it. Blocks.
    pub fn open(&self, options: &scan::Options) -> nowait::Result<Scan> {
        let Some(fd) = &self.fd else {
            return options.blocking_open(OsStr::from_bytes(&self.prefix[..self.path_len]));
        };
        // Opening it again leaves the descriptor's position as it is.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(fd, c".", flags, Mode::empty()) {
            Ok(own) => options.from_fd(own),
            // The directory was removed, or may be read and not searched.
            Err(_) => options.blocking_open(format!("/proc/self/fd/{}", fd.as_raw_fd())),
        }
    }

    /// A name or path as the program gave that of the directory.
    pub fn object<'py>(&self, py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match self.bytes {
            true => Ok(PyBytes::new(py, name).into_any()),
            false => OsStr::from_bytes(name).into_bound_py_any(py),
        }
    }

    /// The bytes of the path of an entry.
    pub fn join(&self, name: &[u8]) -> Vec<u8> {
        [&self.prefix, name].concat()
    }

    /// Calls statx(2) for an entry.
    fn statx(&self, name: &[u8], follow: bool) -> nowait::Result<Metadata> {
        let flags = match follow {
            true => 0,
            false => nix::libc::AT_SYMLINK_NOFOLLOW,
        };
        let path = PathBuf::from(OsString::from_vec(self.join(name)));
        match &self.fd {
            Some(fd) => Metadata::statx(fd, path, flags, StatxMask::BASIC_STATS),
            None => Metadata::statx(CWD, path, flags, StatxMask::BASIC_STATS),
        }
    }
}

/// An entry as it was listed.
pub enum Listed {
    Scanned(scan::DirEntry),
    /// Without metadata.
    Named {
        name: Box<[u8]>,
        ino: u64,
        kind: FileType,
    },
}

impl Listed {
    fn name(&self) -> &[u8] {
        match self {
            Listed::Scanned(entry) => entry.file_name().as_bytes(),
            Listed::Named { name, .. } => name,
        }
    }

    fn ino(&self) -> u64 {
        match self {
            Listed::Scanned(entry) => entry.ino(),
            Listed::Named { ino, .. } => *ino,
        }
    }

    fn kind(&self) -> FileType {
        match self {
            Listed::Scanned(entry) => entry.file_type(),
            Listed::Named { kind, .. } => *kind,
        }
    }
}

/// An entry of a directory. It is made by scandir() and walk(), and has the methods of os.DirEntry.
///
/// stat() returns what the file was when the directory was listed, without a system call. It makes one
/// for a symbolic link that is followed, if scandir() was called with `stat=False`, and for an entry of
/// walk() in a cached directory.
#[pyclass(frozen, weakref, module = "nowait")]
pub struct DirEntry {
    directory: Arc<Directory>,
    listed: Listed,
    pub name: Py<PyAny>,
    /// The results of stat(), of the entry and of the target of a link.
    results: [PyOnceLock<Py<PyAny>>; 2],
}

impl DirEntry {
    pub fn new(py: Python<'_>, directory: &Arc<Directory>, listed: Listed) -> PyResult<DirEntry> {
        let name = directory.object(py, listed.name())?;
        Ok(DirEntry {
            directory: directory.clone(),
            listed,
            name: name.unbind(),
            results: [PyOnceLock::new(), PyOnceLock::new()],
        })
    }

    /// The file type, of the target if links are followed. `None` if there is no such file.
    fn kind(&self, py: Python<'_>, follow: bool) -> PyResult<Option<FileType>> {
        let _guard = hang::guard();
        let kind = self.listed.kind();
        match kind {
            FileType::Unknown => {}
            FileType::Symlink if follow => {}
            kind => return Ok(Some(kind)),
        }
        match py.detach(|| self.directory.statx(self.listed.name(), follow)) {
            Ok(metadata) => Ok(Some(metadata.file_type())),
            Err(error) if error.errno() == Some(nix::libc::ENOENT) => Ok(None),
            Err(error) => Err(self.failed(py, &error)),
        }
    }

    fn failed(&self, py: Python<'_>, error: &nowait::Error) -> PyErr {
        match self.path(py) {
            Ok(path) => library_error(py, error, &path),
            Err(error) => error,
        }
    }

    /// The metadata that the listing has.
    fn listed(&self, py: Python<'_>, follow: bool) -> Option<PyResult<Metadata>> {
        if follow && self.listed.kind() == FileType::Symlink {
            return None;
        }
        match &self.listed {
            Listed::Scanned(entry) => {
                let metadata = entry.metadata()?.copied();
                Some(metadata.map_err(|error| self.failed(py, &error)))
            }
            Listed::Named { .. } => None,
        }
    }
}

#[pymethods]
impl DirEntry {
    /// The name, relative to the directory: `bytes` if scandir() was called with `bytes`.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The path: os.path.join(directory, name).
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let path = self.directory.join(self.listed.name());
        self.directory.object(py, &path)
    }

    /// The path.
    fn __fspath__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.path(py)
    }

    /// The inode number.
    fn inode(&self) -> u64 {
        self.listed.ino()
    }

    /// True for a directory. With `follow_symlinks`, also for a link to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        Ok(self.kind(py, follow_symlinks)? == Some(FileType::Dir))
    }

    /// True for a regular file. With `follow_symlinks`, also for a link to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        Ok(self.kind(py, follow_symlinks)? == Some(FileType::File))
    }

    /// True for a symbolic link.
    fn is_symlink(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.kind(py, false)? == Some(FileType::Symlink))
    }

    /// False: there are no junctions on Linux.
    fn is_junction(&self) -> bool {
        false
    }

    /// The metadata as os.stat_result.
    ///
    /// Raises:
    ///     OSError: As os.stat().
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Py<PyAny>> {
        let _guard = hang::guard();
        let result = self.results[usize::from(follow_symlinks)].get_or_try_init(py, || {
            let metadata = match self.listed(py, follow_symlinks) {
                Some(listed) => listed?,
                None => {
                    let name = self.listed.name();
                    let stat = py.detach(|| self.directory.statx(name, follow_symlinks));
                    stat.map_err(|error| self.failed(py, &error))?
                }
            };
            stat_result(py, &metadata)
        })?;
        Ok(result.clone_ref(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<DirEntry {}>", self.name.bind(py).repr()?))
    }

    /// As os.DirEntry, it may be subscripted in annotations.
    #[classmethod]
    fn __class_getitem__(
        class: &Bound<'_, PyType>,
        item: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let _guard = hang::guard();
        let alias = class.py().import("types")?.getattr("GenericAlias")?;
        Ok(alias.call1((class, item))?.unbind())
    }
}
