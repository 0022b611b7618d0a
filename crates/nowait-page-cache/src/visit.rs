//! The files that a caller names: given files, and the regular files below given directories.
//! Anything else is reported, and the other files are still visited.
//!
//! The library walks trees. Memory does not grow with the number of files: it holds a bounded number
//! of entries and batches, and the directories that are not yet open.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use nowait::scan::DirEntry;
use nowait::{FileType, walk};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::batches::Batches;
use crate::file_ref::{FileRef, TreeRoot, failed};
use crate::pseudo::PseudoMounts;
use crate::reporter::{Reporter, report_error};
use crate::stop::Stop;

/// The types of given files that are processed. Trees have regular files only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// Regular files.
    Regular,
    /// Regular files and block devices.
    RegularAndBlockDevices,
}

/// The file or directory at a given path.
#[derive(Debug)]
pub enum Given {
    /// A file to process.
    File(FileRef),
    /// A directory to walk.
    Directory,
}

/// Looks at a given path. Symbolic links are followed. Reports a failure and returns `None` if it is
/// neither a directory nor one of these kinds.
pub fn given(path: &Path, kinds: Kinds, reporter: &dyn Reporter) -> Option<Given> {
    let stat = match std::fs::metadata(path) {
        Ok(stat) => stat,
        Err(e) => {
            reporter.failure(path, Errno::from_io_error(&e), &e);
            return None;
        }
    };
    let kind = stat.file_type();
    let is_wanted_device = kinds == Kinds::RegularAndBlockDevices && kind.is_block_device();
    if kind.is_file() || is_wanted_device {
        let kind = rustix::fs::FileType::from_raw_mode(stat.mode());
        let found = FileRef::given(path.to_path_buf(), stat.ino(), kind);
        return Some(Given::File(found));
    }
    if kind.is_dir() {
        return Some(Given::Directory);
    }
    let what = if kind.is_fifo() {
        "is a FIFO, not a regular file"
    } else if kind.is_socket() {
        "is a socket, not a regular file"
    } else {
        "is a device, not a regular file"
    };
    reporter.failure(path, None, &what);
    None
}

/// Calls `each` for a given file, or for every regular file below a given directory in the order of
/// the walk, until it returns an error or a stop is requested.
pub fn visit<E>(
    path: &Path,
    kinds: Kinds,
    walking: walk::Options,
    reporter: &dyn Reporter,
    stop: &Stop,
    each: &mut dyn FnMut(FileRef) -> Result<(), E>,
) -> Result<(), E> {
    match given(path, kinds, reporter) {
        None => Ok(()),
        Some(Given::File(found)) => each(found),
        Some(Given::Directory) => tree(path, walking, reporter, stop, |root, entry| {
            each(FileRef::found(root, entry))
        }),
    }
}

/// Calls `each` with the root and the entry of every regular file below a given directory, as
/// [`visit`] does.
pub(crate) fn tree<E>(
    root: &Path,
    walking: walk::Options,
    reporter: &dyn Reporter,
    stop: &Stop,
    mut each: impl FnMut(&Arc<TreeRoot>, &DirEntry) -> Result<(), E>,
) -> Result<(), E> {
    let pseudo = PseudoMounts::below(root);
    let options = pseudo.skipped_by(walking);
    // The root is resolved once, so that the walk and its files have the same one. It stays open
    // during the walk.
    let opened = TreeRoot::open(root).and_then(|(tree, open)| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let listed = rustix::fs::openat(&*open, ".", flags, Mode::empty())?;
        Ok((tree, open, listed))
    });
    let (tree, _open, listed) = match opened {
        Ok(opened) => opened,
        Err(why) => {
            failed(reporter, root, true, why.into());
            return Ok(());
        }
    };
    let batches = match options.from_fd_at(listed, root) {
        Ok(walk) => Batches::of(walk, stop),
        Err(error) => {
            report_error(reporter, root, true, &error);
            return Ok(());
        }
    };
    for found in batches {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                report_error(reporter, root, false, &error);
                continue;
            }
        };
        for entry in found.iter() {
            if stop.asked() {
                return Ok(());
            }
            // Links are not followed here. Other types of files are skipped without a message.
            if kind(&entry, reporter) == FileType::File {
                each(&tree, &entry)?;
            }
        }
    }
    pseudo.report(reporter);
    Ok(())
}

/// The type of an entry. It is queried where the filesystem does not list it.
fn kind(entry: &DirEntry, reporter: &dyn Reporter) -> FileType {
    match entry.file_type() {
        FileType::Unknown => {
            let path = entry.path();
            match rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => rustix::fs::FileType::from_raw_mode(stat.st_mode).into(),
                Err(why) => {
                    failed(reporter, &path, false, why.into());
                    FileType::Unknown
                }
            }
        }
        kind => kind,
    }
}
