//! The parts of the JSON object. The format is described in [`super`].

use nowait_page_cache::{MappingProcess, Row, Totals};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::name::Name;
use crate::unknown::Why as Unknown;

/// One file.
#[derive(Serialize)]
pub struct Entry<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    size: u64,
    cached_bytes: Option<u64>,
    evicted_bytes: Option<u64>,
    stayed_bytes: Option<u64>,
    unknown: Option<String>,
    why: Vec<Why<'a>>,
}

#[derive(Serialize)]
struct Why<'a> {
    reason: &'static str,
    bytes: u64,
    by: Vec<By<'a>>,
}

/// A process that maps a file.
#[derive(Serialize)]
struct By<'a> {
    pid: u32,
    command: &'a str,
    locked: bool,
}

impl<'a> From<&'a MappingProcess> for By<'a> {
    fn from(process: &'a MappingProcess) -> By<'a> {
        By {
            pid: process.pid,
            command: &process.command,
            locked: process.locked,
        }
    }
}

impl<'a> Entry<'a> {
    /// The entry for this file.
    pub fn of(row: &'a Row) -> Entry<'a> {
        let counted = row.counted.ok();
        Entry {
            name: Name::of(&row.path),
            size: row.size,
            cached_bytes: counted.map(|counted| counted.before),
            evicted_bytes: counted.map(|counted| counted.evicted),
            stayed_bytes: counted.map(|counted| counted.stayed),
            unknown: row.counted.err().map(|why| why.to_string()),
            why: row
                .why
                .iter()
                .map(|why| Why {
                    reason: why.kind.word(),
                    bytes: why.bytes,
                    by: why.by.iter().map(By::from).collect(),
                })
                .collect(),
        }
    }
}

/// The totals over all files.
#[derive(Serialize)]
pub struct Sum {
    files: u64,
    cached_bytes: u64,
    evicted_bytes: u64,
    stayed_bytes: u64,
    stayed_files: u64,
    stayed: Map<String, Value>,
    unknown: Vec<Unknown>,
    unreadable_processes: Option<u64>,
    failed: u64,
    interrupted: bool,
}

impl Sum {
    /// The totals, the number of processes whose maps may not be read, and the number of failures.
    pub fn of(totals: &Totals, unreadable: Option<u64>, failed: u64, interrupted: bool) -> Sum {
        let stayed = totals.by_reason.iter();
        Sum {
            files: totals.files,
            cached_bytes: totals.cached,
            evicted_bytes: totals.evicted,
            stayed_bytes: totals.stayed,
            stayed_files: totals.stayed_files,
            stayed: stayed
                .map(|(kind, &bytes)| (kind.word().to_owned(), bytes.into()))
                .collect(),
            unknown: Unknown::all(&totals.unknown),
            unreadable_processes: unreadable,
            failed,
            interrupted,
        }
    }
}
