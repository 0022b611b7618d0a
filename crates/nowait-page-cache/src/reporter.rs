//! Reports about single files, while the other files are processed.

use std::fmt::Display;
use std::path::Path;

use nowait::ErrorKind;
use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// The receiver of reports. It is called from any thread.
pub trait Reporter: Sync {
    /// A file that was not processed, or not completely. `errno` is the error of the system call, if
    /// one failed.
    fn failure(&self, path: &Path, errno: Option<Errno>, why: &dyn Display);

    /// An event that is no failure.
    fn note(&self, path: &Path, what: &dyn Display);
}

/// Reports an error of the library. `path` is used if the error has no path. A file that was removed
/// or replaced is a failure only if it was `named` by the caller. A directory that a bind mount
/// makes its own ancestor is not reported.
pub fn report_error(reporter: &dyn Reporter, path: &Path, named: bool, error: &nowait::Error) {
    let path = error.path().unwrap_or(path);
    let errno = error.errno().map(Errno::from_raw_os_error);
    match (errno, error.kind()) {
        (Some(Errno::NOENT | Errno::NOTDIR), _) if !named => {
            reporter.note(path, &"vanished meanwhile");
        }
        // A symbolic link has replaced it.
        (Some(Errno::LOOP), _) if !named && error.operation() == "open" => {
            reporter.note(path, &"vanished meanwhile");
        }
        (Some(errno), _) => reporter.failure(path, Some(errno), &errno),
        (None, ErrorKind::Repeats) => reporter.failure(
            path,
            None,
            &"the filesystem returns the same entries again and again; the listing was stopped",
        ),
        // Everything in it is found at its other place.
        (None, ErrorKind::Cycle) if is_cycle_of_mounts(path) => {}
        (None, ErrorKind::Cycle) => report_cycle(reporter, path),
        (None, _) => reporter.failure(path, None, error),
    }
}

/// Reports a directory that is its own ancestor.
pub fn report_cycle(reporter: &dyn Reporter, path: &Path) {
    let why = "is one of its own ancestors; it is not listed again";
    reporter.failure(path, Some(Errno::LOOP), &why);
}

/// Returns true if a directory is its own ancestor because of a mount: one of the directories from
/// it up to that ancestor is the root of a mount. Kernels before Linux 5.8 do not report roots of
/// mounts.
fn is_cycle_of_mounts(path: &Path) -> bool {
    let stat = |path: &Path| {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::INO).ok()
    };
    let id = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    let is_mounted = |stat: &Statx| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let mut directories = path.ancestors().map_while(stat);
    let Some(directory) = directories.next() else {
        return false;
    };
    let mut between = directories.take_while(|above| id(above) != id(&directory));
    is_mounted(&directory) || between.any(|above| is_mounted(&above))
}
