//! The parts of the JSON object. The format is described in [`super`].

use std::cell::Cell;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use nowait::residency::Answer;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::column::Columns;
use super::row::{Row, bytes};
use super::totals::Totals;
use crate::name::serialize_bytes;
use crate::unknown::Why;

/// One file.
pub struct Entry<'a> {
    pub row: &'a Row,
    pub columns: &'a Columns,
    /// True if only the columns are printed.
    pub selected: bool,
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let row = self.row;
        let mut map = to.serialize_map(None)?;
        if self.columns.has_names() {
            serialize_bytes(&mut map, "file", row.path.as_os_str().as_bytes())?;
        }
        for (key, value) in self.columns.json(row) {
            map.serialize_entry(&key, &value)?;
        }
        if !self.selected {
            let known = row.examined.answer.known();
            let unqueried = known.map(|known| known.unasked);
            let unknown = match row.examined.answer {
                Answer::Unknown(why) => Some(why.to_string()),
                Answer::Known { .. } => None,
            };
            map.serialize_entry("unqueried_pages", &unqueried)?;
            map.serialize_entry("unknown", &unknown)?;
            map.serialize_entry("counted", &row.counted)?;
        }
        if let Some(ranges) = row.examined.ranges.ranges() {
            map.serialize_entry("ranges", &Ranges(Cell::new(Some(ranges))))?;
        }
        map.end()
    }
}

/// Ranges, serialized one by one, because a file can have a million of them.
struct Ranges<I>(Cell<Option<I>>);

impl<I: Iterator<Item = Range<u64>>> Serialize for Ranges<I> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ranges = self.0.take().into_iter().flatten();
        to.collect_seq(ranges.map(|range| [range.start, range.end]))
    }
}

/// The totals over all files.
#[derive(Serialize)]
pub struct Sum {
    files: u64,
    size: u64,
    res: u64,
    pages: u64,
    file_pages: u64,
    dirty: u64,
    dirty_unknown: u64,
    writeback: u64,
    unknown: Vec<Why>,
    other_names: u64,
    failed: u64,
    interrupted: bool,
}

impl Sum {
    /// The totals, and the number of failures.
    pub fn of(totals: &Totals, failed: u64, interrupted: bool) -> Sum {
        Sum {
            files: totals.files,
            size: totals.size,
            res: totals.cached_bytes(),
            pages: totals.cached,
            file_pages: totals.pages,
            dirty: bytes(totals.dirty),
            dirty_unknown: totals.dirty_unknown,
            writeback: bytes(totals.writeback),
            unknown: Why::all(&totals.unknown),
            other_names: totals.other_names,
            failed,
            interrupted,
        }
    }
}
