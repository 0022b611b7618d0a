//! The metadata of objects.

use std::os::unix::fs::MetadataExt;

use chrono::{DateTime, Utc};
use nowait::Metadata;

/// The entity tag of a file, without quotes: inode, time of the last change in microseconds, and
/// size.
pub(crate) fn e_tag(metadata: &Metadata) -> String {
    let micros =
        i128::from(metadata.mtime()) * 1_000_000 + i128::from(metadata.mtime_nsec() / 1000);
    let mtime = micros.max(0);
    format!("{:x}-{mtime:x}-{:x}", metadata.ino(), metadata.len())
}

/// The time of the last change. Times that chrono cannot represent become the nearest one.
pub(crate) fn last_modified(metadata: &Metadata) -> DateTime<Utc> {
    let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    let time = DateTime::from_timestamp(metadata.mtime(), nanoseconds);
    time.unwrap_or(match metadata.mtime() {
        ..0 => DateTime::<Utc>::MIN_UTC,
        0.. => DateTime::<Utc>::MAX_UTC,
    })
}
