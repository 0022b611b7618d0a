//! Files whose residency is unknown, grouped by the reason.

use nowait::residency::Reason;

/// The files of unknown residency that one run has found.
#[derive(Debug, Default)]
pub struct Unknowns(pub Vec<Unknown>);

/// The files with the same reason.
#[derive(Clone, Debug)]
pub struct Unknown {
    /// The reason.
    pub why: Reason,
    /// The number of files.
    pub files: u64,
    /// The total size of the files in bytes.
    pub size: u64,
}

impl Unknowns {
    /// Adds a file of `size` bytes.
    pub fn add(&mut self, why: Reason, size: u64) {
        match self.0.iter_mut().find(|unknown| unknown.why == why) {
            Some(unknown) => {
                unknown.files += 1;
                unknown.size = unknown.size.saturating_add(size);
            }
            None => self.0.push(Unknown {
                why,
                files: 1,
                size,
            }),
        }
    }
}
