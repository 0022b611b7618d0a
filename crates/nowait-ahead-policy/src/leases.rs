//! The leases that a file must not be opened under, since that breaks them: those for writing; see
//! fcntl(2) and proc_locks(5).

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::directory::Id;

/// The files under lease.
pub struct Leases {
    /// Their inode numbers. proc(5) has another device than stat(2) on some filesystems.
    inodes: HashSet<u64>,
    since: Instant,
}

/// The time after which the leases are asked for again. A program may take one at any time.
const FRESH: Duration = Duration::from_micros(50);

impl Leases {
    /// The leases of this moment.
    pub fn now() -> Leases {
        let since = Instant::now();
        let inodes = inodes(&fs::read_to_string("/proc/locks").unwrap_or_default());
        Leases { inodes, since }
    }

    /// Returns true if the file may be under lease at this moment.
    pub fn has(&mut self, (_, inode): Id) -> bool {
        if self.since.elapsed() > FRESH {
            *self = Leases::now();
        }
        self.inodes.contains(&inode)
    }
}

fn inodes(locks: &str) -> HashSet<u64> {
    let inode = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, _, access) = (words.next()?, words.next()?, words.next()?);
        let is_broken_by_readers = matches!(kind, "LEASE" | "DELEG") && access != "READ";
        is_broken_by_readers.then(|| words.nth(1)?.rsplit(':').next()?.parse().ok())?
    };
    locks.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_for_writing_are_found() {
        let leases = inodes(
            "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF\n\
             2: LEASE  ACTIVE    WRITE 3568 fd:00:2531453 0 EOF\n\
             3: LEASE  ACTIVE    READ  3568 fd:00:2531454 0 EOF\n\
             4: LEASE  BREAKING  UNLCK 3568 00:27:257 0 EOF\n",
        );
        let mut found: Vec<u64> = leases.into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, [257, 2_531_453]);
    }
}
