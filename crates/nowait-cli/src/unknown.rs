//! Files whose residency is unknown, grouped by the reason, in JSON.

use nowait_page_cache::Unknowns;
use serde::Serialize;

/// The files with the same reason.
#[derive(Serialize)]
pub struct Why {
    why: String,
    files: u64,
    size: u64,
}

impl Why {
    /// All groups.
    pub fn all(unknown: &Unknowns) -> Vec<Why> {
        let groups = unknown.0.iter().map(|unknown| Why {
            why: unknown.why.to_string(),
            files: unknown.files,
            size: unknown.size,
        });
        groups.collect()
    }
}
