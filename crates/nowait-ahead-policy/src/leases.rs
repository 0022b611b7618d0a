//! The leases that a file must not be opened under, since that breaks them: those for writing; see
//! fcntl(2) and proc_locks(5).

use std::collections::HashSet;
use std::fs;

use crate::directory::Id;

/// The inode numbers of the files under lease. proc(5) has another device than stat(2) on some
/// filesystems.
pub struct Leases(HashSet<u64>);

impl Leases {
    /// The leases of this moment.
    pub fn now() -> Leases {
        Leases::of(&fs::read_to_string("/proc/locks").unwrap_or_default())
    }

    /// Returns true if the file may be under lease.
    pub fn has(&self, (_, inode): Id) -> bool {
        self.0.contains(&inode)
    }

    fn of(locks: &str) -> Leases {
        let inode = |line: &str| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (kind, _, access) = (words.next()?, words.next()?, words.next()?);
            let is_broken_by_readers = matches!(kind, "LEASE" | "DELEG") && access != "READ";
            is_broken_by_readers.then(|| words.nth(1)?.rsplit(':').next()?.parse().ok())?
        };
        Leases(locks.lines().filter_map(inode).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_for_writing_are_found() {
        let leases = Leases::of(
            "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF\n\
             2: LEASE  ACTIVE    WRITE 3568 fd:00:2531453 0 EOF\n\
             3: LEASE  ACTIVE    READ  3568 fd:00:2531454 0 EOF\n\
             4: LEASE  BREAKING  UNLCK 3568 00:27:257 0 EOF\n",
        );
        let mut found: Vec<u64> = leases.0.into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, [257, 2_531_453]);
    }
}
