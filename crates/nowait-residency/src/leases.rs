//! Leases (fcntl(2), `F_SETLEASE`). Opening a file breaks a lease for writing: its holder gets a signal and
//! must give the lease up, even if the open fails because of O_NONBLOCK. A file server takes such a lease
//! while one client alone uses a file.
//!
//! ```text
//!  /proc/locks ─► is the inode listed? ─► no: open(2)
//!                                         yes: a duplicate of the holder's descriptor, or nothing
//! ```
//! /proc/locks (proc_locks(5)) lists no leases of processes of other PID namespaces, except those below
//! the reader's. A lease that is taken after the list was read is not known, either. Opening breaks both.
//! Leases for reading are not broken by opening for reading, but by every other access mode.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, OFlags, Stat, Statx, StatxFlags, major, minor, statx};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys::clock::thread_time;

/// The files under lease.
#[derive(Clone, Debug)]
pub struct Leases {
    by_inode: HashMap<u64, Vec<Lease>>,
    since: Instant,
    /// The processor time that it took to read the list.
    took: Duration,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Opening the file for reading does not break it.
    pub is_for_reading: bool,
    /// The major and minor number of the filesystem's device. stat(2) has another one on some filesystems.
    device: (u32, u32),
    /// The process that has taken it. It may have ended if a child of it has the file open.
    pub pid: Option<u32>,
}

/// A list is read again after so many times what reading it took, so that it takes one percent of the
/// time. The kernel stops all calls for locks meanwhile.
const PAUSE: u32 = 100;

/// The list that all threads of this process use.
static KNOWN: Mutex<Option<Leases>> = Mutex::new(None);

impl Leases {
    /// The leases of this moment.
    pub fn now() -> Leases {
        let (since, began) = (Instant::now(), thread_time());
        let by_inode = by_inode(&fs::read_to_string("/proc/locks").unwrap_or_default());
        Leases {
            by_inode,
            since,
            took: thread_time().saturating_sub(began),
        }
    }

    /// Returns true if the file with this device and inode number may be under a lease for writing. The
    /// list is read again if it is older than 100 times what reading it took. The device is not
    /// compared, because stat(2) and /proc/locks differ on some filesystems.
    pub fn has(&mut self, (_, inode): (u64, u64)) -> bool {
        if !self.is_fresh() {
            *self = Leases::now();
        }
        let found = self.by_inode.get(&inode);
        found.is_some_and(|leases| leases.iter().any(|lease| !lease.is_for_reading))
    }

    /// The lease of a file, for writing or for reading. `is_distinct` tells if stat(2) returns the
    /// device of the file's filesystem.
    pub fn lease_of(&self, stat: &Stat, is_distinct: impl Fn() -> bool) -> Option<Lease> {
        let device = (major(stat.st_dev), minor(stat.st_dev));
        self.of(stat.st_ino, device, is_distinct)
    }

    fn is_fresh(&self) -> bool {
        self.since.elapsed() <= self.took * PAUSE
    }

    /// The lease of a file. One for writing comes before those for reading.
    fn of(&self, inode: u64, device: (u32, u32), is_distinct: impl Fn() -> bool) -> Option<Lease> {
        let leases = self.by_inode.get(&inode)?;
        let of_device = |lease: &&Lease| lease.device == device;
        let first = |found: &mut dyn Iterator<Item = &Lease>| {
            found.min_by_key(|lease| lease.is_for_reading).copied()
        };
        let same = first(&mut leases.iter().filter(of_device));
        same.or_else(|| first(&mut leases.iter()).filter(|_| !is_distinct()))
    }
}

impl Lease {
    /// The lease of a file, for writing or for reading, as far as this process knows. `is_distinct` tells
    /// if stat(2) returns the device of the file's filesystem.
    pub fn of(stat: &Stat, is_distinct: impl Fn() -> bool) -> Option<Lease> {
        with_known(|known| known.lease_of(stat, &is_distinct))
    }

    /// A duplicate of the holder's descriptor of the file (pidfd_getfd(2)), which opens nothing. It
    /// shares the holder's file position and status flags: no call may change them.
    ///
    /// # Errors
    /// EPERM or EACCES if this process may not trace the holder, ESRCH if the holder is unknown or has
    /// ended, ENOENT if it does not have the file open.
    pub fn descriptor(self, stat: &Stat) -> Result<OwnedFd, Errno> {
        let number = self.pid.ok_or(Errno::SRCH)?;
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        let failed = |e: &std::io::Error| Errno::from_io_error(e).unwrap_or(Errno::IO);
        let entries = fs::read_dir(format!("/proc/{number}/fd")).map_err(|e| failed(&e))?;
        let device = (major(stat.st_dev), minor(stat.st_dev));
        let id = |found: &Statx| ((found.stx_dev_major, found.stx_dev_minor), found.stx_ino);
        let mut why = Errno::NOENT;
        for entry in entries.flatten() {
            // Follows the link without opening the file or asking a server.
            let is_it = statx(CWD, entry.path(), AtFlags::STATX_DONT_SYNC, StatxFlags::INO)
                .is_ok_and(|found| id(&found) == (device, stat.st_ino));
            let fd = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(fd) = fd.filter(|_| is_it) else {
                continue;
            };
            match pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()) {
                Ok(fd) if is_usable(&fd, stat) => return Ok(fd),
                Ok(_) => {}
                Err(errno) => why = errno,
            }
        }
        Err(why)
    }
}

/// Returns true if a descriptor that was duplicated is still that of the file, and can be asked for its
/// pages.
fn is_usable(fd: &OwnedFd, stat: &Stat) -> bool {
    let is_same = rustix::fs::fstat(fd)
        .is_ok_and(|now| (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino));
    is_same && rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(OFlags::PATH))
}

/// Looks into this process's list, which is not older than 100 times what reading it took. No
/// thread waits for another one, which may not exist in a forked child.
fn with_known<T>(look: impl Fn(&Leases) -> T) -> T {
    let mut known = match KNOWN.try_lock() {
        Ok(known) => known,
        // No panic leaves the list inconsistent.
        Err(TryLockError::Poisoned(known)) => known.into_inner(),
        Err(TryLockError::WouldBlock) => return look(&Leases::now()),
    };
    match &mut *known {
        Some(leases) if leases.is_fresh() => return look(leases),
        // Other threads use the old list while this one reads.
        Some(leases) => leases.since = Instant::now(),
        None => {}
    }
    drop(known);
    let now = Leases::now();
    let found = look(&now);
    if let Ok(mut known) = KNOWN.try_lock() {
        *known = Some(now);
    }
    found
}

/// The list is read again at the next question.
#[doc(hidden)]
pub fn forget_known() {
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The leases in the text of /proc/locks, by inode number.
fn by_inode(locks: &str) -> HashMap<u64, Vec<Lease>> {
    let mut found: HashMap<u64, Vec<Lease>> = HashMap::new();
    for (inode, lease) in locks.lines().filter_map(lease) {
        found.entry(inode).or_default().push(lease);
    }
    found
}

/// The lease in a line, and the inode number of its file. A lease that is being broken counts as one for writing: its holder
/// has not given it up yet.
fn lease(line: &str) -> Option<(u64, Lease)> {
    // 2: LEASE  ACTIVE    WRITE 3568 fd:00:2531453 0 EOF
    let mut words = line.split_ascii_whitespace().skip(1);
    let (kind, state, access) = (words.next()?, words.next()?, words.next()?);
    if !matches!(kind, "LEASE" | "DELEG") {
        return None;
    }
    let is_for_reading = access == "READ" && state != "BREAKING";
    let pid = words.next()?.parse().ok().filter(|pid| *pid > 0);
    let mut file = words.next()?.split(':');
    let mut hex = || u32::from_str_radix(file.next()?, 16).ok();
    let device = (hex()?, hex()?);
    let inode = file.next()?.parse().ok()?;
    let lease = Lease {
        is_for_reading,
        device,
        pid,
    };
    Some((inode, lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_found() {
        let leases = by_inode(
            "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF\n\
             2: LEASE  ACTIVE    WRITE 3568 fd:1a:2531453 0 EOF\n\
             3: LEASE  ACTIVE    READ  3568 fd:00:2531454 0 EOF\n\
             4: LEASE  BREAKING  UNLCK 0 00:27:257 0 EOF\n\
             5: LEASE  BREAKING  READ  7 00:28:257 0 EOF\n\
             6: LEASE  ACTIVE    WRITE\n",
        );
        let lease = |device, pid| Lease {
            is_for_reading: false,
            device,
            pid,
        };
        let mut found: Vec<u64> = leases.keys().copied().collect();
        found.sort_unstable();
        assert_eq!(found, [257, 2_531_453, 2_531_454]);
        assert!(leases[&2_531_454][0].is_for_reading);
        assert_eq!(leases[&2_531_453], [lease((0xfd, 0x1a), Some(3568))]);
        let two = [lease((0, 0x27), None), lease((0, 0x28), Some(7))];
        assert_eq!(leases[&257], two);
    }

    #[test]
    fn files_with_the_same_inode_number_are_told_apart_by_their_device() {
        let text = "1: LEASE  ACTIVE    WRITE 9 00:27:257 0 EOF\n";
        let leases = Leases {
            by_inode: by_inode(text),
            since: Instant::now(),
            took: Duration::ZERO,
        };
        let pid = |inode, device, distinct| {
            let lease = leases.of(inode, device, || distinct);
            lease.and_then(|lease| lease.pid)
        };
        assert_eq!(pid(257, (0, 0x27), true), Some(9));
        assert_eq!(pid(257, (0, 0x28), true), None);
        // On btrfs, stat(2) has the device of the subvolume.
        assert_eq!(pid(257, (0, 0x28), false), Some(9));
        assert_eq!(pid(258, (0, 0x27), false), None);
    }

    /// Reading the list stops all calls for locks.
    #[test]
    fn the_list_is_read_again_after_a_multiple_of_the_time_that_reading_it_took() {
        let mut leases = Leases {
            by_inode: by_inode("1: LEASE  ACTIVE    WRITE 9 00:27:257 0 EOF\n"),
            since: Instant::now(),
            took: Duration::from_secs(3600),
        };
        // No file of this system has this inode number and a lease.
        leases
            .by_inode
            .insert(u64::MAX, leases.by_inode[&257].clone());
        assert!(leases.has((0, u64::MAX)) && leases.has((0, u64::MAX)));
        leases.took = Duration::ZERO;
        assert!(!leases.has((0, u64::MAX)));
    }
}
