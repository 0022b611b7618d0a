//! The report of what was evicted, and of what is not known.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::surveyed_file::SurveyedFile;

/// The page cache of the program's files, for each mount.
#[derive(Debug, Default)]
pub struct Evictions {
    /// The directory of each mount, with its sums.
    pub mounts: BTreeMap<PathBuf, Sums>,
    /// Programs whose calls the library has not seen, with the bytes that they have read from disks,
    /// at least.
    pub unseen: BTreeMap<PathBuf, u64>,
    /// The number of events that were lost.
    pub lost: u64,
    /// A process has reported that it has loaded the library.
    pub has_reports: bool,
    /// A process had other rights than `nowait run`. Its files were not evicted.
    pub has_other_rights: bool,
    /// A process had a filter of system calls. Its files were not surveyed.
    pub is_filtered: bool,
}

/// The files of a mount of which parts were not resident before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The number of files.
    pub files: u64,
    /// The bytes that were resident before the program opened them.
    pub before: u64,
    /// The bytes that are resident after the program.
    pub after: u64,
    /// The bytes of these that were not resident before.
    pub left: u64,
    /// The number of files whose residency is not known any more. The other numbers are without
    /// them.
    pub unknown: u64,
}

/// Adds a file of which these bytes are left, if that is known. A file that was resident completely is not added.
pub fn add_sums(sums: &mut HashMap<u64, Sums>, file: &SurveyedFile, left: Option<u64>) {
    if file.surveyed.missing.is_empty() {
        return;
    }
    let sum = sums.entry(file.mount).or_default();
    let Some((before, after)) = file.before_and_after() else {
        sum.unknown += 1;
        return;
    };
    sum.files += 1;
    sum.before += before;
    sum.left += left.unwrap_or(0);
    sum.after += after;
}
