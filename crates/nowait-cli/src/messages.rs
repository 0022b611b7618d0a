//! Messages about single files. They are printed on standard error while the verb continues with
//! the other files. Failures among them make the exit code 1.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use nowait::ErrorKind;
use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::name::DisplayPath;
use crate::progress::Progress;

/// Prints a line on standard error. What cannot be printed there is lost: eprintln!() would end the
/// program.
pub fn say(line: impl Display) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints messages from any thread and counts failures.
pub struct Messages {
    /// Cleared from the terminal while a message is printed.
    bar: ProgressBar,
    failures: AtomicU64,
}

impl Messages {
    /// Messages for a verb that shows this progress bar.
    pub fn beside(progress: &Progress) -> Messages {
        Messages {
            bar: progress.bar(),
            failures: AtomicU64::new(0),
        }
    }

    /// Reports a failure. The exit code becomes 1.
    pub fn failure(&self, path: &Path, why: impl Display) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.note(path, why);
    }

    /// Reports an error of the library. `path` is used if the error has no path. A file that was
    /// removed or replaced is a failure only if it was `named` on the command line. A directory
    /// that a bind mount makes its own ancestor is not reported.
    pub fn error(&self, path: &Path, named: bool, error: &nowait::Error) {
        let path = error.path().unwrap_or(path);
        let errno = error.errno().map(Errno::from_raw_os_error);
        match (errno, error.kind()) {
            (Some(Errno::NOENT | Errno::NOTDIR), _) if !named => {
                self.note(path, "vanished meanwhile");
            }
            // A symbolic link has replaced it.
            (Some(Errno::LOOP), _) if !named && error.operation() == "open" => {
                self.note(path, "vanished meanwhile");
            }
            (Some(errno), _) => self.failure(path, errno),
            (None, ErrorKind::Repeats) => self.failure(
                path,
                "the filesystem returns the same entries again and again; the listing was stopped",
            ),
            // Everything in it is found at its other place.
            (None, ErrorKind::Cycle) if is_cycle_of_mounts(path) => {}
            (None, ErrorKind::Cycle) => self.cycle(path),
            (None, _) => self.failure(path, error),
        }
    }

    /// Reports a directory that is its own ancestor.
    pub fn cycle(&self, path: &Path) {
        self.failure(path, "is one of its own ancestors; it is not listed again");
    }

    /// Prints a message that is not a failure.
    pub fn note(&self, path: &Path, why: impl Display) {
        let shown = DisplayPath(path);
        self.without_progress(|| say(format_args!("nowait: {shown}: {why}")));
    }

    /// Runs `print` while the progress bar is cleared from the terminal.
    pub fn without_progress<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// The number of failures.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The exit code: 0 without failures, otherwise 1.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.failures() > 0))
    }
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
