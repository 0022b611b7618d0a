//! The pages of a file that are resident, and the eviction of others.
//!
//! None of the system calls asks a server. Where the kernel has no cachestat(2) for a file, parts of it
//! are mapped one after the other, without access. Such a mapping would count as locked after
//! mlockall(2): then there is no answer.

use std::ffi::{c_int, c_long};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::file::File;
use crate::next::functions;
use crate::path;
use crate::statx::syscall;

functions!(find posix_fadvise64);

/// The bytes that are mapped at once.
const MAPPED: u64 = 2 << 20;
/// To map a part takes as long as so many calls of cachestat(2).
const CALLS_PER_MAPPING: u32 = 64;
/// True if later mappings are locked.
static LOCKED: AtomicBool = AtomicBool::new(false);

/// The program is about to lock its memory.
pub fn locks(flags: c_int) {
    if flags & libc::MCL_FUTURE != 0 {
        LOCKED.store(true, Ordering::Relaxed);
    }
}

/// The program has unlocked its memory.
pub fn unlocks() {
    LOCKED.store(false, Ordering::Relaxed);
}

impl File<'_> {
    /// The resident pages of a range, which ends with a page. `None` if the kernel does not count them for this
    /// file.
    pub fn resident(&self, range: Range<u64>) -> Option<u64> {
        match self.is_layered() {
            true => None,
            false => counted(self.fd, range),
        }
    }

    /// Sets the bits of pages of a range that are not resident, and counts them. `bits` are zero. `None` if there is no answer. Adds
    /// the time that it takes to `calls`, in calls of cachestat(2).
    #[inline(never)]
    pub fn missing(&self, range: &Range<u64>, bits: &mut [u8], calls: &mut u32) -> Option<usize> {
        let pages = ((range.end - range.start) / self.page) as usize;
        match self.resident(range.clone()) {
            Some(0) => {
                (0..pages).for_each(|page| set(bits, page));
                Some(pages)
            }
            Some(resident) if resident >= pages as u64 => Some(0),
            Some(resident) => Some(self.count_missing(range, resident, bits, calls)),
            None => self.missing_pages(range, bits, calls),
        }
    }

    /// Sets the bits of pages of a window that are not resident, and counts them. `resident` is the number of those that are. If it
    /// is another one at the end, another process reads the file or the kernel reclaims it: then each part is asked for.
    fn count_missing(
        &self,
        window: &Range<u64>,
        resident: u64,
        bits: &mut [u8],
        calls: &mut u32,
    ) -> usize {
        let missing = self.halve(window, Some(resident), bits, calls);
        *calls = calls.saturating_add(1);
        if self.resident(window.clone()) == Some(resident) {
            return missing;
        }
        bits.fill(0);
        self.halve(window, None, bits, calls)
    }

    /// The same by cachestat(2) of ever smaller parts. If the number of `resident` pages is given, a call counts one half of
    /// a part, and the rest is in the other half.
    fn halve(
        &self,
        window: &Range<u64>,
        resident: Option<u64>,
        bits: &mut [u8],
        calls: &mut u32,
    ) -> usize {
        const LEVELS: usize = 16;
        let pages = ((window.end - window.start) / self.page) as usize;
        let offset = |page: usize| window.start + page as u64 * self.page;
        let top = pages.next_power_of_two().trailing_zeros() as usize;
        // The resident pages of the part of each level that is looked at, and those of the second half at each level.
        let (mut wholes, mut seconds) = ([0u16; LEVELS], [0u16; LEVELS]);
        let is_told = resident.is_some() && top < LEVELS;
        if is_told {
            wholes[top] = resident.unwrap_or(0) as u16;
        }
        let (mut at, mut level, mut missing) = (0, top, 0);
        while at < pages {
            let part = at..pages.min(at + (1 << level));
            let is_second = at >> level & 1 == 1;
            let told = match is_told {
                true if level == top => Some(wholes[top]),
                true if is_second => Some(seconds[level]),
                _ => None,
            };
            let found = match told {
                Some(resident) => Some(resident.into()),
                None => {
                    *calls = calls.saturating_add(1);
                    counted(self.fd, offset(part.start)..offset(part.end))
                }
            };
            if is_told && level < top && !is_second {
                seconds[level] = wholes[level + 1].saturating_sub(found.unwrap_or(0) as u16);
            }
            match found {
                Some(0) => {
                    part.clone().for_each(|page| set(bits, page));
                    missing += part.len();
                }
                Some(resident) if resident < part.len() as u64 && level > 0 => {
                    if is_told {
                        wholes[level] = resident as u16;
                    }
                    level -= 1;
                    continue;
                }
                _ => {}
            }
            at = part.end;
            level = at.trailing_zeros() as usize;
        }
        missing
    }

    /// Sets the bits of pages that are not resident, and counts them. If the user may not know,
    /// mincore(2) says that all are resident. `None` if the file cannot be mapped: it is open for writing
    /// only, or mappings are locked.
    fn missing_pages(
        &self,
        window: &Range<u64>,
        bits: &mut [u8],
        calls: &mut u32,
    ) -> Option<usize> {
        let mut missing = 0;
        for start in window.clone().step_by(MAPPED as usize) {
            *calls = calls.saturating_add(CALLS_PER_MAPPING);
            let part = start..window.end.min(start + MAPPED);
            let before = ((start - window.start) / self.page) as usize;
            let pages = self.mapped(&part, |page| {
                set(bits, before + page);
                missing += 1;
            });
            pages?;
        }
        Some(missing)
    }

    /// Calls `each` with the pages of a part that are not resident, by a mapping without access.
    #[inline(never)]
    fn mapped(&self, part: &Range<u64>, mut each: impl FnMut(usize)) -> Option<()> {
        if LOCKED.load(Ordering::Relaxed) {
            return None;
        }
        let len = (part.end - part.start) as usize;
        let (null, flags, none) = (null_mut(), MapFlags::SHARED, ProtFlags::empty());
        // The smallest page has 4 KiB.
        const { assert!(MAPPED as usize / 4096 <= path::LONGEST) };
        path::with_memory(|resident| {
            // SAFETY: the kernel chooses an address that is free. The memory is never accessed.
            let start = unsafe { mmap(null, len, none, flags, self.fd, part.start) }.ok()?;
            // SAFETY: the memory is mapped, and `resident` has a byte for each of its pages.
            let answer = unsafe { libc::mincore(start, len, resident.as_mut_ptr()) };
            // SAFETY: this function has mapped it.
            let _ = unsafe { munmap(start, len) };
            if answer != 0 {
                return None;
            }
            (0..len / self.page as usize)
                .filter(|&page| resident[page] & 1 == 0)
                .for_each(&mut each);
            Some(())
        })?
    }
}

/// Sets the bit of a page, if there is memory for it.
fn set(bits: &mut [u8], page: usize) {
    if let Some(bits) = bits.get_mut(page / 8) {
        *bits |= 1 << (page % 8);
    }
}

/// The resident pages of a range by cachestat(2). `None` if it does not answer.
fn counted(fd: BorrowedFd<'_>, range: Range<u64>) -> Option<u64> {
    // The first one is the number of resident pages.
    let mut counts = [0; 5];
    let answer = cachestat(fd, [range.start, range.end - range.start], &mut counts);
    (answer == 0).then_some(counts[0])
}

/// cachestat(2) by the C library's syscall(2). `range` has the start and the length. The first of
/// `counts` becomes the number of resident pages. Returns -1 and sets errno if it fails.
fn cachestat(fd: BorrowedFd<'_>, range: [u64; 2], counts: &mut [u64; 5]) -> c_long {
    /// The number of the call on all architectures.
    const CACHESTAT: c_long = 451;
    let Some(next) = syscall() else { return -1 };
    let (range, counts) = (range.as_ptr(), counts.as_mut_ptr());
    // SAFETY: both have the kernel's layout and are valid during the call.
    unsafe { next(CACHESTAT, fd.as_raw_fd(), range, counts, 0) }
}

/// Evicts clean pages that are not mapped, by the C library's posix_fadvise(2). Returns its error.
pub fn evict(fd: c_int, offset: i64, len: i64) -> c_int {
    let next = find::posix_fadvise64.address();
    if next.is_null() {
        return libc::ENOSYS;
    }
    type Advise = unsafe extern "C" fn(c_int, i64, i64, c_int) -> c_int;
    // SAFETY: the C library's function of this name has this type.
    let next: Advise = unsafe { std::mem::transmute(next) };
    // SAFETY: any numbers are allowed.
    unsafe { next(fd, offset, len, libc::POSIX_FADV_DONTNEED) }
}
