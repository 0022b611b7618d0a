//! The metadata of a file that a response needs.

use std::io;
use std::time::SystemTime;

use nowait::StatxMask;
use tower_http::services::fs;

/// The fields that `ServeDir` reads.
pub(crate) const FIELDS: StatxMask = StatxMask::TYPE
    .union(StatxMask::MTIME)
    .union(StatxMask::SIZE);

/// The type, the size and the time of the last change of a file.
#[derive(Clone, Copy, Debug)]
pub struct Metadata(nowait::Metadata);

impl Metadata {
    pub(crate) fn new(metadata: nowait::Metadata) -> Metadata {
        Metadata(metadata)
    }
}

impl fs::Metadata for Metadata {
    fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.0.modified()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}
