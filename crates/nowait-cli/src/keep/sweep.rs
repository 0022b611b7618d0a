//! A sweep: a look at all files, in steps, so that changes are handled in between.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::files::Files;
use super::target::Target;

/// The most files that a step looks at.
const STEP_FILES: usize = 500;

/// The time after which a step lists no further path.
const STEP_TIME: Duration = Duration::from_millis(100);

/// The place of a sweep that goes on later.
#[derive(Default)]
pub struct SweepPlace {
    /// The beginning of the sweep.
    pub began: Option<Instant>,
    /// The number of the path.
    root: usize,
    /// The last file of the path that was looked at; `None` before the path is listed.
    after: Option<(Arc<Path>, OsString)>,
}

impl SweepPlace {
    /// The files of the next step. Lists the paths when it comes to them.
    pub fn step(&mut self, files: &mut Files) -> Vec<Target> {
        let now = Instant::now();
        self.began.get_or_insert(now);
        files.renew();
        let mut found = Vec::new();
        while found.len() < STEP_FILES && !self.is_done(files) && now.elapsed() < STEP_TIME {
            if self.after.is_none() {
                files.scan(self.root);
            }
            let room = STEP_FILES - found.len();
            let next = files.roots[self.root].targets_after(self.after.as_ref());
            let before = found.len();
            found.extend(next.take(room));
            if found.len() - before < room {
                self.root += 1;
                self.after = None;
            } else {
                self.after = found
                    .last()
                    .map(|last| (last.directory.clone(), last.name.clone()));
            }
        }
        found
    }

    /// Returns true after the last step.
    pub fn is_done(&self, files: &Files) -> bool {
        self.root >= files.roots.len()
    }
}
