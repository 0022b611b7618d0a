//! The locked beginning of a file: a mapping that is locked in memory (mlock(2)). The kernel ends it
//! with the process.
#![allow(unsafe_code)]

use std::fs::File;
use std::ptr::{self, NonNull};

use nowait::residency::page_size;
use nowait_page_cache::proc;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

/// The bytes that one call locks. The kernel reads missing pages meanwhile.
const WINDOW: usize = 64 << 20;

/// The mappings that a process may have, if /proc does not tell.
const MAX_MAPPINGS: u64 = 65_530;

/// A mapping of the beginning of a file, whose first bytes are locked.
#[derive(Debug)]
pub struct Lock {
    at: NonNull<u8>,
    /// The mapped bytes.
    room: usize,
    /// The locked bytes.
    len: usize,
}

// SAFETY: the mapping belongs to the process, and no reference to its bytes is made.
unsafe impl Send for Lock {}

impl Lock {
    /// Maps the first `room` bytes. None is locked yet.
    ///
    /// # Errors
    /// Of mmap(2).
    pub fn new(file: &File, room: u64) -> Result<Lock, Errno> {
        let room = usize::try_from(room).map_err(|_| Errno::NOMEM)?;
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the kernel chooses addresses that nothing uses, and the bytes are never accessed,
        // so it does not matter that other processes change or truncate the file.
        let at = unsafe { mmap(ptr::null_mut(), room, protection, flags, file, 0) }?;
        let at = NonNull::new(at.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Lock { at, room, len: 0 })
    }

    /// Locks the first bytes up to `end`. If all mapped bytes are locked already, they are locked
    /// again, with pages that were added since.
    ///
    /// # Errors
    /// Of mlock(2). ENOMEM: a limit is reached, or the file has become shorter.
    pub fn extend(&mut self, end: u64) -> Result<(), Errno> {
        let end = usize::try_from(end).map_or(self.room, |end| end.min(self.room));
        let mut done = match self.len == self.room {
            true => 0,
            false => self.len,
        };
        while done < end {
            let window = WINDOW.min(end - done);
            // SAFETY: the range lies within the mapping, which lives as long as `self`.
            unsafe { mlock(self.at.as_ptr().add(done).cast(), window) }?;
            done += window;
        }
        self.len = self.len.max(done);
        Ok(())
    }

    /// Unlocks all but the first `room` bytes.
    pub fn shrink(&mut self, room: u64) {
        let page = page_size() as usize;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let kept = room.checked_next_multiple_of(page).unwrap_or(usize::MAX);
        if kept == 0 || kept >= self.room {
            return;
        }
        // SAFETY: the range is the end of the mapping, begins at a page, and nothing refers to it.
        let unmapped = unsafe { munmap(self.at.as_ptr().add(kept).cast(), self.room - kept) };
        if unmapped.is_ok() {
            self.room = room;
            self.len = self.len.min(room);
        }
    }

    /// The number of mapped bytes.
    pub fn room(&self) -> u64 {
        self.room as u64
    }

    /// The number of locked bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to its bytes.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.room) };
    }
}

/// The limits of locking, and what sets them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of bytes in whole pages.
    pub bytes: u64,
    /// The number of mappings.
    pub mappings: usize,
    /// The bytes that may still be locked. The rest of the memory is for other programs.
    pub available: u64,
    /// True if `available` was too small for some file.
    pub is_cut: bool,
}

impl Limits {
    /// The limits of this process. The soft limit of locked memory becomes the hard one.
    pub fn here() -> Limits {
        let limit = getrlimit(Resource::Memlock);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Raising the soft limit needs no privilege. If a sandbox denies it, the soft limit holds.
        let _ = setrlimit(Resource::Memlock, raised);
        let privileged = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
        let bytes = match privileged {
            true => u64::MAX,
            false => {
                let limit = getrlimit(Resource::Memlock).current;
                limit.map_or(u64::MAX, |limit| limit - limit % page_size())
            }
        };
        let most = proc::number(proc::read("/proc/sys/vm/max_map_count").trim_ascii());
        // The other half is for the program itself, its libraries and its threads.
        let mappings = (most.unwrap_or(MAX_MAPPINGS) / 2) as usize;
        Limits {
            bytes,
            mappings,
            available: u64::MAX,
            is_cut: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The locked bytes of mappings of files with this name.
    fn locked(name: &str) -> u64 {
        let smaps = proc::read("/proc/self/smaps");
        let mut inside = false;
        let mut sum = 0;
        for line in proc::lines(&smaps) {
            if proc::begins_mapping(line) {
                inside = String::from_utf8_lossy(line).contains(name);
            } else if inside {
                sum += proc::number_of(line, "Locked:").unwrap_or(0) << 10;
            }
        }
        sum
    }

    #[test]
    fn the_beginning_of_a_file_is_locked_until_the_value_is_dropped() {
        let mut file = tempfile::NamedTempFile::with_prefix_in("keep-lock-", ".").unwrap();
        let name = file
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        file.write_all(&[1; 20_000]).unwrap();
        let mut lock = Lock::new(file.as_file(), 16384).unwrap();
        assert_eq!(locked(&name), 0);
        lock.extend(8192).unwrap();
        assert_eq!((lock.len(), locked(&name)), (8192, 8192));
        lock.extend(16384).unwrap();
        assert_eq!((lock.len(), locked(&name)), (16384, 16384));
        lock.extend(16384).unwrap();
        lock.shrink(4096);
        assert_eq!((lock.room(), lock.len(), locked(&name)), (4096, 4096, 4096));
        drop(lock);
        assert_eq!(locked(&name), 0);
        let mut longer = Lock::new(file.as_file(), 1 << 20).unwrap();
        assert!(longer.extend(1 << 20).is_err());
        assert!(Lock::new(file.as_file(), 1 << 62).is_err());
    }
}
