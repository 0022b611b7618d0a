//! What could not be done with single files: said on standard error while the rest goes on, and
//! the exit code that follows from it.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use nowait::ErrorKind;
use rustix::io::Errno;

use crate::name::Shown;
use crate::progress::Progress;

/// Takes remarks, from any thread.
pub struct Remarks {
    /// Makes room on the terminal while something is said.
    bar: ProgressBar,
    failures: AtomicU64,
}

impl Remarks {
    /// Remarks that are said beside a progress bar.
    pub fn beside(progress: &Progress) -> Remarks {
        Remarks {
            bar: progress.bar(),
            failures: AtomicU64::new(0),
        }
    }

    /// Something that was asked for can't be done; the exit code will say so.
    pub fn failure(&self, path: &Path, why: impl Display) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.note(path, why);
    }

    /// What the library could not do, at `path` if it does not say where. What is not there any
    /// more, or is something else now, is a failure only if it was `named`.
    pub fn error(&self, path: &Path, named: bool, error: &nowait::Error) {
        let path = error.path().unwrap_or(path);
        let errno = error.errno().map(Errno::from_raw_os_error);
        match (errno, error.kind()) {
            (Some(Errno::NOENT | Errno::NOTDIR), _) if !named => {
                self.note(path, "vanished meanwhile");
            }
            // A link has taken its place.
            (Some(Errno::LOOP), _) if !named && error.operation() == "open" => {
                self.note(path, "vanished meanwhile");
            }
            (Some(errno), _) => self.failure(path, errno),
            (None, ErrorKind::Repeats) => self.failure(
                path,
                "its listing goes round in a circle and was ended: its filesystem is broken",
            ),
            (None, ErrorKind::Cycle) => self.cycle(path),
            (None, _) => self.failure(path, error),
        }
    }

    /// A directory that would lead round in a circle.
    pub fn cycle(&self, path: &Path) {
        self.failure(path, "is one of its own ancestors: not entered again");
    }

    /// Something that a reader should know and that nobody has asked for by name.
    pub fn note(&self, path: &Path, why: impl Display) {
        let shown = Shown(path);
        self.aside(|| eprintln!("nowait: {shown}: {why}"));
    }

    /// Says something on standard output, which may be the terminal that the bar is drawn on.
    pub fn aside<T>(&self, say: impl FnOnce() -> T) -> T {
        self.bar.suspend(say)
    }

    /// How much could not be done.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// 0 if all was done, 1 if something could not be.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.failures() > 0))
    }
}
