//! Files of which nobody can say what is cached, gathered by the reason.

use nowait::residency::Reason;
use serde::Serialize;

/// Those of one visit.
#[derive(Debug, Default)]
pub struct Unknowns(pub Vec<Unknown>);

/// Those with one reason.
#[derive(Clone, Debug)]
pub struct Unknown {
    pub why: Reason,
    pub files: u64,
    /// Bytes of all of them.
    pub size: u64,
}

impl Unknowns {
    /// One more file, of so many bytes.
    pub fn add(&mut self, why: Reason, size: u64) {
        match self.0.iter_mut().find(|unknown| unknown.why == why) {
            Some(unknown) => {
                unknown.files += 1;
                unknown.size += size;
            }
            None => self.0.push(Unknown {
                why,
                files: 1,
                size,
            }),
        }
    }

    /// For programs.
    pub fn why(&self) -> Vec<Why> {
        let why = |unknown: &Unknown| Why {
            why: unknown.why.to_string(),
            files: unknown.files,
            size: unknown.size,
        };
        self.0.iter().map(why).collect()
    }
}

/// The same for programs.
#[derive(Serialize)]
pub struct Why {
    why: String,
    files: u64,
    size: u64,
}
