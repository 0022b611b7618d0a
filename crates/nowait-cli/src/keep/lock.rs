//! The locked beginning of a file: a mapping that is locked in memory (mlock(2)). The kernel ends it
//! with the process.
#![allow(unsafe_code)]

use std::fs::File;
use std::ptr::{self, NonNull};

use nowait_page_cache::proc;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The bytes that one call locks. The kernel reads missing pages meanwhile.
const WINDOW: usize = 64 << 20;

/// CAP_IPC_LOCK of capabilities(7).
const CAP_IPC_LOCK: u64 = 14;

/// The mappings that a process may have, if /proc does not tell.
const MAX_MAPPINGS: u64 = 65_530;

/// A locked range that begins at the first byte of a file.
#[derive(Debug)]
pub struct Lock {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, and no reference to its bytes is made.
unsafe impl Send for Lock {}

impl Lock {
    /// Maps and locks the first `len` bytes.
    ///
    /// # Errors
    /// Of mmap(2) and mlock(2). ENOMEM: a limit is reached, or the file has become shorter.
    pub fn new(file: &File, len: u64) -> Result<Lock, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the kernel chooses addresses that nothing uses, and the bytes are never accessed,
        // so it does not matter that other processes change or truncate the file.
        let at = unsafe { mmap(ptr::null_mut(), len, protection, flags, file, 0) }?;
        let at = NonNull::new(at.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let lock = Lock { at, len };
        lock.again()?;
        Ok(lock)
    }

    /// Locks the range again, with pages that were added since.
    ///
    /// # Errors
    /// Of mlock(2).
    pub fn again(&self) -> Result<(), Errno> {
        let mut done = 0;
        while done < self.len {
            let window = WINDOW.min(self.len - done);
            // SAFETY: the range lies within the mapping, which lives as long as `self`.
            unsafe { mlock(self.at.as_ptr().add(done).cast(), window) }?;
            done += window;
        }
        Ok(())
    }

    /// The number of locked bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to its bytes.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// The limits of locking, and what sets them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of bytes in whole pages.
    pub bytes: u64,
    /// The number of mappings.
    pub mappings: usize,
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
        let status = proc::read("/proc/thread-self/status");
        let effective = proc::value_of(&status, "CapEff:")
            .and_then(|hex| u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let privileged = effective.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1);
        let bytes = match privileged {
            true => u64::MAX,
            false => getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX),
        };
        let most = proc::number(proc::read("/proc/sys/vm/max_map_count").trim_ascii());
        // The other half is for the program itself, its libraries and its threads.
        let mappings = (most.unwrap_or(MAX_MAPPINGS) / 2) as usize;
        Limits { bytes, mappings }
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
        let lock = Lock::new(file.as_file(), 8192).unwrap();
        assert_eq!((lock.len(), locked(&name)), (8192, 8192));
        lock.again().unwrap();
        drop(lock);
        assert_eq!(locked(&name), 0);
        assert!(Lock::new(file.as_file(), 1 << 62).is_err());
    }
}
