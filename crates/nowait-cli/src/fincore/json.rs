//! The parts of the JSON object. The format is described in [`super`].

use nowait::residency::Answer;
use serde::Serialize;
use serde::ser::Serializer;

use super::row::{CachedRanges, Row, bytes};
use super::totals::Totals;
use crate::name::Name;
use crate::unknown::Why;

/// One file.
#[derive(Serialize)]
pub struct Entry<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    size: u64,
    pages: Option<u64>,
    cached_pages: Option<u64>,
    cached_bytes: Option<u64>,
    dirty_bytes: Option<u64>,
    writeback_bytes: Option<u64>,
    unqueried_pages: Option<u64>,
    source: Option<String>,
    unknown: Option<String>,
    counted: bool,
    #[serde(
        skip_serializing_if = "CachedRanges::has_no_ranges",
        serialize_with = "ranges"
    )]
    cached_ranges: &'a CachedRanges,
}

impl<'a> Entry<'a> {
    /// The entry for this file.
    pub fn of(row: &'a Row) -> Entry<'a> {
        let examined = &row.examined;
        let (known, source, unknown) = match examined.answer {
            Answer::Known { value, source } => (Some(value), Some(source.to_string()), None),
            Answer::Unknown(why) => (None, None, Some(why.to_string())),
        };
        Entry {
            name: Name::of(&row.path),
            size: examined.size(),
            pages: known.map(|known| known.pages),
            cached_pages: known.map(|known| known.cached),
            cached_bytes: known.map(|known| bytes(known.cached)),
            dirty_bytes: known.and_then(|known| known.dirty).map(bytes),
            writeback_bytes: known.and_then(|known| known.writeback).map(bytes),
            unqueried_pages: known.map(|known| known.unasked),
            source,
            unknown,
            counted: row.counted,
            cached_ranges: &examined.ranges,
        }
    }
}

/// Serializes ranges one by one, because a file can have a million of them.
fn ranges<S: Serializer>(ranges: &CachedRanges, to: S) -> Result<S::Ok, S::Error> {
    let ranges = ranges.ranges().into_iter().flatten();
    to.collect_seq(ranges.map(|range| [range.start, range.end]))
}

/// The totals over all files.
#[derive(Serialize)]
pub struct Sum {
    files: u64,
    size: u64,
    pages: u64,
    cached_pages: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
    dirty_unknown: u64,
    writeback_bytes: u64,
    unknown: Vec<Why>,
    other_names: u64,
    failed: u64,
}

impl Sum {
    /// The totals, and the number of failures.
    pub fn of(totals: &Totals, failed: u64) -> Sum {
        Sum {
            files: totals.files,
            size: totals.size,
            pages: totals.pages,
            cached_pages: totals.cached,
            cached_bytes: totals.cached_bytes(),
            dirty_bytes: bytes(totals.dirty),
            dirty_unknown: totals.dirty_unknown,
            writeback_bytes: bytes(totals.writeback),
            unknown: totals.unknown.why(),
            other_names: totals.other_names,
            failed,
        }
    }
}
