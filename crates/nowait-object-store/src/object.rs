//! The metadata of objects.

use chrono::{DateTime, Utc};
use nowait::Metadata;

/// The entity tag of a file, without quotes: inode, time of the last change in microseconds, and size.
pub(crate) fn e_tag(metadata: &Metadata) -> String {
    let seconds = u128::try_from(metadata.mtime());
    let micros = u128::from(metadata.mtime_nsec() / 1000);
    let mtime = seconds.map_or(0, |seconds| seconds * 1_000_000 + micros);
    format!("{:x}-{mtime:x}-{:x}", metadata.ino(), metadata.len())
}

/// The time of the last change. Times that chrono cannot represent become the nearest one.
pub(crate) fn last_modified(metadata: &Metadata) -> DateTime<Utc> {
    let time = DateTime::from_timestamp(metadata.mtime(), metadata.mtime_nsec());
    time.unwrap_or(match metadata.mtime() {
        ..0 => DateTime::<Utc>::MIN_UTC,
        0.. => DateTime::<Utc>::MAX_UTC,
    })
}
