//! A sweep: a look at all files, in steps, so that changes are handled in between.

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
    after: Option<Target>,
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
            let root = &files.roots[self.root];
            let before = found.len();
            match &self.after {
                None => found.extend(root.targets().take(room)),
                Some(last) => found.extend(root.targets_after(last).take(room)),
            }
            if found.len() - before < room {
                self.root += 1;
                self.after = None;
            } else {
                self.after = found.last().cloned();
            }
        }
        found
    }

    /// Returns true after the last step.
    pub fn is_done(&self, files: &Files) -> bool {
        self.root >= files.roots.len()
    }
}
