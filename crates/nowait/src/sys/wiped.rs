//! Memory that is zeroed in a forked child: madvise(2), `MADV_WIPEONFORK` (Linux 4.14).
#![allow(unsafe_code)]

use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU64};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::Errno;

/// A type that may be in such memory.
///
/// # Safety
/// Zeroed memory is a valid value, also if it is zeroed while it is used. It has no destructor, and
/// its alignment is at most that of a page.
pub(crate) unsafe trait Wipe: Sync {}

// SAFETY: 0 is a valid number.
unsafe impl Wipe for AtomicI32 {}
// SAFETY: as above.
unsafe impl Wipe for AtomicU64 {}

/// Values that are zeroed at first, and zeroed again in a forked child.
#[derive(Debug)]
pub(crate) struct Wiped<T: Wipe> {
    start: NonNull<T>,
    count: usize,
}

// SAFETY: it owns its memory, and gives shared access only, which `T` allows in every thread.
unsafe impl<T: Wipe> Send for Wiped<T> {}
// SAFETY: as above.
unsafe impl<T: Wipe> Sync for Wiped<T> {}

impl<T: Wipe> Wiped<T> {
    /// No values.
    pub(crate) fn none() -> Wiped<T> {
        Wiped {
            start: NonNull::dangling(),
            count: 0,
        }
    }

    /// Makes `count` values. Pages that are never written take no memory.
    pub(crate) fn new(count: usize) -> Result<Wiped<T>, Errno> {
        if count == 0 {
            return Ok(Wiped::none());
        }
        let len = count.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses, unknown to other threads.
        let start = unsafe {
            let start = mmap_anonymous(null_mut(), len, access, flags)?;
            if let Err(errno) = madvise(start, len, Advice::LinuxWipeOnFork) {
                let _ = munmap(start, len);
                return Err(errno);
            }
            start
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Wiped { start, count })
    }

    /// The first value, if there is any.
    pub(crate) fn start(&self) -> NonNull<T> {
        self.start
    }
}

impl<T: Wipe> Deref for Wiped<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: mapped by `new` with room for `count` values, aligned to a page, and zeroed. A
        // pointer to no values is only aligned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Wipe> Drop for Wiped<T> {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        // SAFETY: mapped by `new`, and unmapped once.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * size_of::<T>()) };
    }
}
