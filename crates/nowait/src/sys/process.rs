//! This process, told apart from its parent and from its forked children.
//!
//! A process id does not tell: in PID namespaces a parent and its child can have the same one. A page
//! of memory does that the kernel wipes in a forked child (madvise(2), `MADV_WIPEONFORK`, Linux 4.14),
//! whichever way the child was made.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::Errno;

/// The number of this process in the line of its ancestors: 0 if it has none yet, as a wiped page
/// says. The page is made at first use and never unmapped.
static GENERATION: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Stands for the page where none is to be had. It stays 0.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);

/// The last number that was given out in this process or an ancestor: a child inherits it, and takes
/// a later one.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Set in numbers that are process ids, for which there is no page.
const PID: u64 = 1 << 63;

/// The number of this process. No lock, no system call after the first use in a process.
fn generation() -> u64 {
    // SAFETY: what was ever stored there lives as long as the process.
    match unsafe { GENERATION.load(Ordering::Acquire).as_ref() } {
        Some(page) => match page.load(Ordering::Relaxed) {
            0 => settle(page),
            known => known,
        },
        None => settle(page()),
    }
}

/// Gives the process its number, once.
#[cold]
fn settle(page: &'static AtomicU64) -> u64 {
    if std::ptr::eq(page, &raw const NO_PAGE) {
        return PID | u64::from(std::process::id());
    }
    let new = LAST.fetch_add(1, Ordering::SeqCst) + 1;
    match page.compare_exchange(0, new, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => new,
        // Another thread was faster.
        Err(known) => known,
    }
}

/// The page that tells, or `NO_PAGE` where the kernel wipes none.
#[cold]
fn page() -> &'static AtomicU64 {
    let made = map().unwrap_or((&raw const NO_PAGE).cast_mut());
    let known = GENERATION.compare_exchange(null_mut(), made, Ordering::SeqCst, Ordering::SeqCst);
    if known.is_err() && !std::ptr::eq(made, &raw const NO_PAGE) {
        // Another thread was faster.
        // SAFETY: mapped above, and seen by no other thread.
        let _ = unsafe { munmap(made.cast(), page_size()) };
    }
    // SAFETY: it was null, and is what is never unmapped.
    unsafe { &*known.err().unwrap_or(made) }
}

fn map() -> Result<*mut AtomicU64, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, which no other thread knows of: it
    // is zeroed, aligned and large enough for the number.
    unsafe {
        let page = mmap_anonymous(null_mut(), page_size(), access, MapFlags::PRIVATE)?;
        if let Err(errno) = madvise(page, page_size(), Advice::LinuxWipeOnFork) {
            let _ = munmap(page, page_size());
            return Err(errno);
        }
        Ok(page.cast())
    }
}

/// The process that something belongs to. Rings and threads do not survive fork(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// This process.
    pub(crate) fn current() -> Owner {
        Owner(generation())
    }

    /// Whether the caller runs in the process that made this, not in a forked child of it.
    pub(crate) fn is_here(self) -> bool {
        self == Owner::current()
    }
}

/// Something that each process has one of: made at first use, and anew in a forked child, where what
/// the parent had may be locked by a thread that is not there.
///
/// No lock guards it: a fork could catch that too. What an ancestor made is never freed.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<(Owner, T)>);

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(null_mut()))
    }

    /// This process's. Several threads may make one at the same time; the first one stays.
    ///
    /// # Errors
    /// As `make` says, if there is none yet.
    pub(crate) fn get_or_make<E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        let before = self.0.load(Ordering::Acquire);
        // SAFETY: Assumption: what was ever stored came from `Box::into_raw` and is never freed.
        if let Some((owner, known)) = unsafe { before.as_ref() }
            && owner.is_here()
        {
            return Ok(known);
        }
        let made = Box::into_raw(Box::new((Owner::current(), make()?)));
        let stored = self
            .0
            .compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire);
        let kept = match stored {
            Ok(_) => made,
            Err(faster) => {
                // Another thread of this process was faster.
                // SAFETY: made above, and seen by no other thread.
                drop(unsafe { Box::from_raw(made) });
                faster
            }
        };
        // SAFETY: as above.
        Ok(unsafe { &(*kept).1 })
    }
}

/// The size of a page, in bytes. Asked of libc: rustix reads it from /proc where prctl can't tell
/// (before 6.4), and panics where that can't be opened.
pub(crate) fn page_size() -> usize {
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
        assert_eq!(owner.0 & PID != 0, cfg!(miri), "this kernel wipes pages");
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
