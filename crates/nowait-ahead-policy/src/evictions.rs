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
    sum.add(Sums {
        files: 1,
        before,
        after,
        left: left.unwrap_or(0),
        unknown: 0,
    });
}

impl Sums {
    /// Adds other files. Any program may write into the memory that some of the numbers come from.
    pub fn add(&mut self, more: Sums) {
        for (own, more) in [
            (&mut self.files, more.files),
            (&mut self.before, more.before),
            (&mut self.after, more.after),
            (&mut self.left, more.left),
            (&mut self.unknown, more.unknown),
        ] {
            *own = own.saturating_add(more);
        }
    }
}

/// The sums by the directories of mounts. Those of several mounts are added: one may cover another one, and those that were
/// unmounted have the name "?".
pub fn by_name(
    sums: &HashMap<u64, Sums>,
    mounts: &HashMap<u64, PathBuf>,
) -> BTreeMap<PathBuf, Sums> {
    let mut named = BTreeMap::<PathBuf, Sums>::new();
    for (id, sums) in sums {
        let name = mounts.get(id).cloned().unwrap_or_else(|| "?".into());
        named.entry(name).or_default().add(*sums);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_with_the_same_name_are_added() {
        let of = |files| Sums {
            files,
            before: 10 * files,
            after: u64::MAX - 1,
            left: 1,
            unknown: 2,
        };
        let sums = (1..=5).map(|id| (id, of(id))).collect();
        let mounts = [(1, "/a".into()), (2, "/b".into()), (4, "/a".into())];
        let named = by_name(&sums, &HashMap::from(mounts));
        let files = named.iter().map(|(name, sums)| (name.to_str(), sums.files));
        let expected = [(Some("/a"), 5), (Some("/b"), 2), (Some("?"), 8)];
        assert!(files.eq(expected), "{named:?}");
        let unmounted = named[&PathBuf::from("?")];
        let numbers = (unmounted.before, unmounted.after, unmounted.left);
        assert_eq!(numbers, (80, u64::MAX, 2));
        assert_eq!(unmounted.unknown, 4);
    }
}
