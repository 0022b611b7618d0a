//! The names of files: a second one, and one that no other file has.
//!
//! All functions block. Each call is tried each time: a filesystem may be mounted over another one,
//! and directories of a store may be on several.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use crate::durable::Directory;
use crate::error::Error;

/// Gives a file a second name, if no file has it. A symbolic link stands for the file that it
/// points to.
pub(crate) fn link(from: &Path, to: &Path) -> Result<(), Error> {
    linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(|errno| match errno {
        Errno::EXIST => already_exists(to, errno),
        _ => Error::io("link", to)(errno.into()),
    })
}

/// Moves a file from the name `staged` to the name `to`, if no file has it. Both are in
/// `directory`.
pub(crate) fn publish_new(directory: &Directory, staged: &Path, to: &Path) -> Result<(), Error> {
    match link(staged, to) {
        Ok(()) => {
            let _ = fs::remove_file(staged);
            Ok(())
        }
        Err(error) if error.is_without_link() => rename_new([directory; 2], staged, to),
        Err(error) => Err(error),
    }
}

/// Renames a file, if no file has the new name. `directories` are those of both names.
pub(crate) fn rename_new(
    directories: [&Directory; 2],
    from: &Path,
    to: &Path,
) -> Result<(), Error> {
    let ((from_at, from), (to_at, name)) = (directories[0].at(from), directories[1].at(to));
    let renamed = renameat_with(from_at, from, to_at, name, RenameFlags::NOREPLACE);
    renamed.map_err(|errno| match errno {
        Errno::EXIST => already_exists(to, errno),
        // The filesystem has no flags of renameat2(2), or the kernel has no such call.
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => Error::NotSupported {
            path: to.to_owned(),
            source: errno.into(),
        },
        _ => Error::io("rename", to)(errno.into()),
    })
}

fn already_exists(path: &Path, errno: Errno) -> Error {
    Error::AlreadyExists {
        path: path.to_owned(),
        source: io::Error::from(errno),
    }
}
