//! Messages about files, each printed once.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nowait_page_cache::Reporter;
use rustix::io::Errno;

use crate::messages::say;
use crate::name::DisplayPath;

/// The most messages that are remembered.
const MAX_SAID: usize = 10_000;

/// Prints messages that were not printed before.
#[derive(Default)]
pub struct Reports(Mutex<HashSet<String>>);

impl Reports {
    /// Prints a message.
    pub fn say(&self, what: impl Display) {
        let line = format!("nowait: {what}");
        // A panic cannot leave the set inconsistent.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == MAX_SAID {
            said.clear();
        }
        if said.insert(line.clone()) {
            drop(said);
            say(line);
        }
    }

    /// Prints a message about a path.
    pub fn say_of(&self, path: &Path, what: impl Display) {
        self.say(format_args!("{}: {what}", DisplayPath(path)));
    }

    /// Prints all messages again, if they come again.
    pub fn forget(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Reporter for Reports {
    fn failure(&self, path: &Path, _: Option<Errno>, why: &dyn Display) {
        self.say_of(path, why);
    }

    fn note(&self, _: &Path, _: &dyn Display) {}
}

/// The same for files that are read: a file that has changed or vanished is looked at again, and is
/// no failure.
pub struct WhileReading<'a>(pub &'a Reports);

impl Reporter for WhileReading<'_> {
    fn failure(&self, path: &Path, errno: Option<Errno>, why: &dyn Display) {
        if errno.is_some_and(|errno| errno != Errno::NOENT) {
            self.0.say_of(path, why);
        }
    }

    fn note(&self, _: &Path, _: &dyn Display) {}
}
