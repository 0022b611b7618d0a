//! The entries of a cached directory for walk(). A scan with its workers takes longer for a few entries.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait::{FileType, Metadata, StatxMask};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::dir_entry::{DirEntry, Directory, Listed};
use crate::error::os_error;
use crate::hang;
use crate::paths;

/// The lists of directories and of other files, and the names of the directories: None, or "link" for a
/// link that is not followed.
type Lists<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, Bound<'py, PyDict>);

/// The entries of a directory.
#[derive(Default)]
struct Found {
    /// Directories, and links to them, which are marked.
    directories: Vec<(Listed, bool)>,
    others: Vec<Listed>,
}

/// Lists a directory in the calling thread. Returns None if it was not cached, or the metadata of its
/// first entry was not: it then took longer than `slow` seconds and `slow_entry` for each entry.
#[pyfunction]
pub fn list_cached<'py>(
    path: &Bound<'py, PyAny>,
    follow_links: bool,
    slow: f64,
    slow_entry: f64,
) -> PyResult<Option<Lists<'py>>> {
    let _guard = hang::guard();
    let py = path.py();
    let root = paths::path(path)?;
    let begun = Instant::now();
    let is_slow = |entries: usize| {
        let limit = Duration::try_from_secs_f64(slow + slow_entry * entries as f64);
        begun.elapsed() > limit.unwrap_or_default()
    };
    let listed = py.detach(|| list(&root, is_slow));
    let Some(found) = listed.map_err(|errno| os_error(py, errno, None, path))? else {
        return Ok(None);
    };
    let root = root.as_os_str().as_encoded_bytes();
    let directory = Arc::new(Directory::of_path(root, path.is_instance_of::<PyBytes>()));
    let entry = |listed| Bound::new(py, DirEntry::new(py, &directory, listed)?);
    let names = PyDict::new(py);
    let directories = PyList::empty(py);
    for (listed, is_link) in found.directories {
        let entry = entry(listed)?;
        let number = (is_link && !follow_links).then(|| intern!(py, "link"));
        names.set_item(entry.get().name.bind(py), number)?;
        directories.append(entry)?;
    }
    let others = found.others.into_iter().map(entry);
    let others = PyList::new(py, others.collect::<PyResult<Vec<_>>>()?)?;
    Ok(Some((directories, others, names)))
}

fn list(path: &Path, is_slow: impl Fn(usize) -> bool) -> Result<Option<Found>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let mut found = Found::default();
    let mut count = 0;
    let mut buffer = [MaybeUninit::uninit(); 8 << 10];
    let mut entries = RawDir::new(&directory, &mut buffer);
    loop {
        // The next entry takes a system call.
        if entries.is_buffer_empty() && is_slow(count) {
            return Ok(None);
        }
        let Some(entry) = entries.next() else {
            return Ok(Some(found));
        };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let statx = |flags| {
            let statx =
                Metadata::statx(&directory, OsStr::from_bytes(name), flags, StatxMask::TYPE);
            statx.map(|metadata| metadata.file_type())
        };
        let mut kind = kind(entry.file_type());
        if count == 0 || kind == FileType::Unknown {
            kind = statx(nix::libc::AT_SYMLINK_NOFOLLOW).unwrap_or(kind);
        }
        // A link that leads nowhere is no directory. It is resolved by its whole path, as os.walk() does:
        // at most 40 links of a path are followed, so that a circle of links ends at the same level.
        let is_link = kind == FileType::Symlink;
        let target = || {
            let path = path.join(OsStr::from_bytes(name));
            Metadata::statx(CWD, path, 0, StatxMask::TYPE)
        };
        let is_directory = match is_link {
            true => target().is_ok_and(|target| target.is_dir()),
            false => kind == FileType::Dir,
        };
        let listed = Listed::Named {
            name: name.into(),
            ino: entry.ino(),
            kind,
        };
        if is_directory {
            found.directories.push((listed, is_link));
        } else {
            found.others.push(listed);
        }
        count += 1;
    }
}

/// The type that the directory has.
fn kind(listed: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Of;
    match listed {
        Of::RegularFile => FileType::File,
        Of::Directory => FileType::Dir,
        Of::Symlink => FileType::Symlink,
        Of::Fifo => FileType::Fifo,
        Of::Socket => FileType::Socket,
        Of::CharacterDevice => FileType::CharDevice,
        Of::BlockDevice => FileType::BlockDevice,
        Of::Unknown => FileType::Unknown,
    }
}
