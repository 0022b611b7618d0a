//! The identity of this process, which differs from that of its parent and of its forked children.
//!
//! A process ID is not enough, because a parent and its child may have the same ID in different PID
//! namespaces. This module uses a page of memory that the kernel zeroes in a forked child
//! (madvise(2), `MADV_WIPEONFORK`, Linux 4.14), however the child was made.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::Errno;

/// The page with the number of this process. The number is 0 if none was assigned yet, as in a
/// zeroed page. The page is made at first use and never unmapped.
static GENERATION: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Used instead of the page if none can be made. It stays 0.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// The last number that was assigned in this process or an ancestor. A child inherits it, and takes
/// a larger number.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Set in numbers that are process IDs, which are used without a page.
const PID: u64 = 1 << 63;

/// The number of this process. It takes no lock, and makes no system call after the first use in a
/// process.
fn generation() -> u64 {
    // SAFETY: every pointer that was stored there is valid until the process ends.
    match unsafe { GENERATION.load(Ordering::Acquire).as_ref() } {
        Some(page) => match page.load(Ordering::Relaxed) {
            0 => settle(page),
            known => known,
        },
        None => settle(page()),
    }
}

/// Assigns the number of the process, once.
#[cold]
fn settle(page: &'static AtomicU64) -> u64 {
    if std::ptr::eq(page, &raw const NO_PAGE) {
        return PID | u64::from(std::process::id());
    }
    let new = LAST.fetch_add(1, Ordering::SeqCst) + 1;
    match page.compare_exchange(0, new, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => new,
        // Another thread assigned it first.
        Err(known) => known,
    }
}

/// Makes the page, or returns `NO_PAGE` if the kernel does not support `MADV_WIPEONFORK`.
#[cold]
fn page() -> &'static AtomicU64 {
    let made = map().unwrap_or((&raw const NO_PAGE).cast_mut());
    let known = GENERATION.compare_exchange(null_mut(), made, Ordering::SeqCst, Ordering::SeqCst);
    if known.is_err() && !std::ptr::eq(made, &raw const NO_PAGE) {
        // Another thread was first.
        // SAFETY: mapped above, and no other thread has the address.
        let _ = unsafe { munmap(made.cast(), page_size()) };
    }
    // SAFETY: the pointer was null before, so it is now one that is never unmapped.
    unsafe { &*known.err().unwrap_or(made) }
}

fn map() -> Result<*mut AtomicU64, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses, unknown to other threads. It is
    // zeroed, aligned, and large enough for the number.
    unsafe {
        let page = mmap_anonymous(null_mut(), page_size(), access, MapFlags::PRIVATE)?;
        if let Err(errno) = madvise(page, page_size(), Advice::LinuxWipeOnFork) {
            let _ = munmap(page, page_size());
            return Err(errno);
        }
        Ok(page.cast())
    }
}

/// The process that an object belongs to. Rings, threads and the locks that they hold do not
/// survive fork(2).
///
/// A value costs no system call, except at the first use in a process.
///
/// ```
/// # use nowait_residency::sys::process as nowait;
/// let owner = nowait::Owner::current();
/// // False in a forked child of this process.
/// assert!(owner.is_here());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// The current process.
    pub fn current() -> Owner {
        Owner(generation())
    }

    /// Returns true in the process that made this value, and false in its forked children.
    pub fn is_here(self) -> bool {
        self == Owner::current()
    }
}

/// A value that each process has one of. It is made at first use, and again in a forked child,
/// where the parent's value may be locked by a thread that does not exist in the child.
///
/// It uses no lock, which could also be held at a fork. The value of an ancestor is never freed.
#[derive(Debug)]
pub struct PerProcess<T: 'static>(AtomicPtr<(Owner, T)>);

impl<T: Send + Sync> PerProcess<T> {
    #[expect(clippy::new_without_default, reason = "all are statics")]
    pub const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(null_mut()))
    }

    /// The value of this process, if there is one already.
    pub fn known(&self) -> Option<&'static T> {
        // SAFETY: Assumption: every pointer that was stored came from `Box::into_raw` and is never
        // freed.
        let (owner, known) = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        owner.is_here().then_some(known)
    }

    /// The value of this process. If several threads make one at the same time, the first one is
    /// used.
    ///
    /// # Errors
    /// The errors of `make`, if there is no value yet.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let before = self.0.load(Ordering::Acquire);
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let made = Box::into_raw(Box::new((Owner::current(), make()?)));
        let stored = self
            .0
            .compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire);
        let kept = match stored {
            Ok(_) => made,
            Err(faster) => {
                // Another thread of this process was first.
                // SAFETY: made above, and no other thread has the address.
                drop(unsafe { Box::from_raw(made) });
                faster
            }
        };
        // SAFETY: as above.
        Ok(unsafe { &(*kept).1 })
    }
}

/// The size of a page in bytes, from sysconf(3). rustix reads it from /proc if prctl(2) does not
/// report it (before Linux 6.4), and panics if that file cannot be opened.
pub fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let size = usize::try_from(size).unwrap_or(4096);
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_number() {
        let owner = Owner::current();
        assert!(owner.is_here() && Owner::current() == owner);
        assert_eq!(
            owner.0 & PID != 0,
            cfg!(miri),
            "the kernel supports MADV_WIPEONFORK"
        );
        std::thread::scope(|s| s.spawn(move || assert!(owner.is_here())).join().unwrap());
    }

    #[test]
    fn without_a_page_the_process_id_tells() {
        let pid = u64::from(std::process::id());
        assert_eq!(settle(&NO_PAGE), PID | pid);
    }

    #[test]
    fn each_process_makes_its_own_once() {
        static MADE: PerProcess<usize> = PerProcess::new();
        assert_eq!(MADE.get_or_make(|| Err("none")), Err("none"));
        let one = MADE.get_or_make(|| Ok::<_, ()>(1)).unwrap();
        let same = MADE.get_or_make(|| Ok::<_, ()>(2)).unwrap();
        assert!(std::ptr::eq(one, same));
    }
}
