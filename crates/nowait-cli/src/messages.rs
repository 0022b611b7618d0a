//! Messages about single files. They are printed on standard error while the verb continues with
//! the other files. Failures among them make the exit code 1.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use nowait_page_cache::{Reporter, report_error};
use rustix::io::Errno;

use crate::name::{shown, without_controls};
use crate::progress::Progress;

/// Prints a line on standard error. What cannot be printed there is lost: eprintln!() would end the
/// program. Names in it are printed by [`shown`]; what has none is safe for a terminal all the same.
pub fn say(line: impl Display) {
    let line = without_controls(&line.to_string());
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
        report_error(self, path, named, error);
    }

    /// Prints a message that is not a failure.
    pub fn note(&self, path: &Path, why: impl Display) {
        let path = shown(path);
        self.without_progress(|| say(format_args!("nowait: {path}: {why}")));
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

impl Reporter for Messages {
    fn failure(&self, path: &Path, _: Option<Errno>, why: &dyn Display) {
        Messages::failure(self, path, why);
    }

    fn note(&self, path: &Path, what: &dyn Display) {
        Messages::note(self, path, what);
    }
}
