//! The pages of mapped files that a process has used, by `maps` and `pagemap` of proc(5).
//!
//! A page counts as used if the process has it mapped. If a process uses a page that is cached, the
//! kernel also maps the cached pages of the 64 KiB around it.

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread, read};
use rustix::path::DecInt;

/// A line of `maps` is at most as long as a path and some numbers.
const LINES: usize = 2 * 4096;
const REGIONS: usize = 128;
/// The bytes of `pagemap` that are read at once, 8 for each page.
const ENTRIES: usize = 1024;
/// Larger mappings are left out: to look at all of their pages would take a process a tenth of a
/// second at its end.
const MAX_MAPPING: u64 = 16 << 30;
/// The length of a directory of proc(5) with the name of a file in it.
const NAME: usize = 32;

/// The memory of a look. It is not on the stack: a program may end in a signal handler with a small
/// one.
struct Memory {
    lines: [u8; LINES],
    regions: [Region; REGIONS],
    entries: [u8; ENTRIES],
}

/// A look at the pages of one process.
struct Look<'a> {
    pagemap: OwnedFd,
    page: u64,
    regions: &'a mut [Region; REGIONS],
    entries: &'a mut [u8; ENTRIES],
    /// PAGEMAP_SCAN is there.
    scans: bool,
}

/// `struct page_region` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of the kernel, for the ioctl(2) PAGEMAP_SCAN of Linux 6.7.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: *mut Region,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// _IOWR('f', 16, struct pm_scan_arg).
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// A look is being taken.
static BUSY: AtomicBool = AtomicBool::new(false);

/// This process is a new child of fork(2). A look that another thread took is not going on in it.
pub fn release_mappings() {
    BUSY.store(false, Ordering::Relaxed);
}

/// Calls `each` with the paths of files that are mapped at these addresses, and their used ranges,
/// which are in whole pages. Of this process, or of another one. Returns false if a look is being taken by another thread, or if
/// proc(5) does not answer. Allocates no memory, and does not set errno.
pub fn used_mappings(
    process: Option<u32>,
    at: Range<u64>,
    mut each: impl FnMut(&[u8], Range<u64>),
) -> bool {
    static mut MEMORY: Memory = Memory {
        lines: [0; LINES],
        regions: [Region {
            start: 0,
            end: 0,
            categories: 0,
        }; REGIONS],
        entries: [0; ENTRIES],
    };
    if BUSY.swap(true, Ordering::Acquire) {
        return false;
    }
    let memory = &raw mut MEMORY;
    // SAFETY: one caller at a time has set `BUSY`.
    let memory = unsafe { &mut *memory };
    let done = look(process, &at, memory, &mut each).is_ok();
    BUSY.store(false, Ordering::Release);
    done
}

fn look(
    process: Option<u32>,
    within: &Range<u64>,
    memory: &mut Memory,
    each: &mut dyn FnMut(&[u8], Range<u64>),
) -> Result<(), Errno> {
    let maps = open(process, b"/maps")?;
    let mut look = Look {
        pagemap: open(process, b"/pagemap")?,
        // The first call of rustix::param::page_size needs more than 1 KiB of stack.
        // SAFETY: the call takes a number.
        page: unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned(),
        regions: &mut memory.regions,
        entries: &mut memory.entries,
        scans: true,
    };
    let mut filled = 0;
    loop {
        let count = match read(&maps, &mut memory.lines[filled..]) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        if count == 0 {
            return Ok(());
        }
        filled += count;
        let mut begin = 0;
        while let Some(len) = memory.lines[begin..filled]
            .iter()
            .position(|&byte| byte == b'\n')
        {
            if let Some((at, offset, path)) = mapping(&memory.lines[begin..begin + len]) {
                let part = at.start.max(within.start)..at.end.min(within.end);
                look.pages(part, &mut |used| {
                    let from = |address: u64| offset.saturating_add(address - at.start);
                    each(path, from(used.start)..from(used.end));
                })?;
            }
            begin += len + 1;
        }
        memory.lines.copy_within(begin..filled, 0);
        filled -= begin;
        if filled == LINES {
            // No path is as long.
            return Err(Errno::NAMETOOLONG);
        }
    }
}

/// Opens a file in the directory of a process.
fn open(process: Option<u32>, file: &[u8]) -> Result<OwnedFd, Errno> {
    // A C string: rustix would copy other names into a buffer on the stack.
    let mut name = [0; NAME];
    let mut len = 0;
    let number = process.map(DecInt::new);
    let number = number.as_ref().map_or(&b"self"[..], |it| it.as_bytes());
    for part in [b"/proc/", number, file] {
        name[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::NAMETOOLONG)?;
    openat(CWD, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The addresses, the offset and the path of a mapped file. `None` for other memory, and for files
/// that were removed.
fn mapping(line: &[u8]) -> Option<(Range<u64>, u64, &[u8])> {
    let slash = line.iter().position(|&byte| byte == b'/')?;
    let (numbers, path) = line.split_at(slash);
    let mut words = numbers
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let mut addresses = words.next()?.split(|&byte| byte == b'-');
    let at = hexadecimal(addresses.next()?)?..hexadecimal(addresses.next()?)?;
    let offset = hexadecimal(words.nth(1)?)?;
    let (_device, inode) = (words.next()?, words.next()?);
    let is_file = inode != b"0" && !path.ends_with(b" (deleted)");
    let is_file = is_file && at.start < at.end && at.end - at.start <= MAX_MAPPING;
    is_file.then_some((at, offset, path))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

impl Look<'_> {
    /// Calls `each` with the ranges of addresses whose pages are mapped or swapped out.
    fn pages(&mut self, at: Range<u64>, each: &mut dyn FnMut(Range<u64>)) -> Result<(), Errno> {
        if self.scans {
            match self.scan(at.clone(), each) {
                // An older kernel.
                Err(Errno::NOTTY | Errno::INVAL) => self.scans = false,
                other => return other,
            }
        }
        self.read(at, each)
    }

    fn scan(&mut self, at: Range<u64>, each: &mut dyn FnMut(Range<u64>)) -> Result<(), Errno> {
        let mut start = at.start;
        while start < at.end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: 0,
                start,
                end: at.end,
                walk_end: 0,
                vec: self.regions.as_mut_ptr(),
                vec_len: REGIONS as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: 0,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_PRESENT,
            };
            let found = ioctl(&self.pagemap, &mut scan)?;
            for region in &self.regions[..found.min(REGIONS)] {
                each(region.start..region.end);
            }
            if scan.walk_end <= start {
                break;
            }
            start = scan.walk_end;
        }
        Ok(())
    }

    /// The same by reading a number for each page.
    fn read(&mut self, at: Range<u64>, each: &mut dyn FnMut(Range<u64>)) -> Result<(), Errno> {
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        let bytes = &mut *self.entries;
        let mut address = at.start;
        while address < at.end {
            let count = pread(&self.pagemap, &mut *bytes, address / self.page * 8)?;
            if count < 8 {
                break;
            }
            for entry in bytes[..count].chunks_exact(8) {
                let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
                if address < at.end && entry & PRESENT_OR_SWAPPED != 0 {
                    each(address..address + self.page);
                }
                address += self.page;
            }
        }
        Ok(())
    }
}

/// The number of regions that PAGEMAP_SCAN has found.
fn ioctl(pagemap: &OwnedFd, scan: &mut Scan) -> Result<usize, Errno> {
    let fd = pagemap.as_fd().as_raw_fd();
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the argument has the kernel's layout, and its vector has room for its length.
    let found = unsafe { libc::ioctl(fd, PAGEMAP_SCAN, &raw mut *scan) };
    // SAFETY: as above.
    let error = unsafe { std::mem::replace(&mut *libc::__errno_location(), errno) };
    usize::try_from(found).map_err(|_| Errno::from_raw_os_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    #[test]
    fn lines_of_mapped_files_are_read() {
        let line = b"7f00-9f00 r-xp 00002000 fe:00 7               /usr/lib/a b.so";
        let path = &b"/usr/lib/a b.so"[..];
        assert_eq!(mapping(line), Some((0x7f00..0x9f00, 0x2000, path)));
        for line in [
            &b"7f00-9f00 rw-p 00000000 00:00 0"[..],
            b"7f00-9f00 rw-p 00000000 00:00 0              [heap]",
            b"7f00-9f00 rw-p 00000000 fe:00 7              /tmp/a (deleted)",
            b"7f00-9f00 rw-p /tmp/a",
            b"9f00-7f00 r-xp 00002000 fe:00 7 /a",
            b"100000000-600000000 r-xp 00002000 fe:00 7 /a",
            b"x-y r-xp 0 fe:00 7 /a",
            b"/",
            b"",
        ] {
            assert_eq!(mapping(line), None);
        }
    }

    #[test]
    fn a_child_that_was_forked_during_a_look_can_take_one() {
        let mut child = 0;
        used_mappings(None, 0..u64::MAX, |_, _| {
            if child == 0 {
                // SAFETY: the child calls only functions that are safe in a signal handler, and ends.
                child = unsafe { libc::fork() };
                if child == 0 {
                    let is_busy = !used_mappings(None, 0..0, |_, _| {});
                    release_mappings();
                    let done = used_mappings(None, 0..u64::MAX, |_, _| {});
                    // SAFETY: exit_group(2).
                    unsafe { libc::_exit(if is_busy && done { 5 } else { 1 }) };
                }
            }
        });
        let mut status = 0;
        // SAFETY: the kernel writes an int.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 5);
    }

    #[test]
    fn pages_that_were_touched_are_used() {
        let page = rustix::param::page_size();
        let pages = 64;
        let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.write_all(&vec![7; pages * page]).unwrap();
        let (len, flags) = (pages * page, MapFlags::PRIVATE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &file, 0) }.unwrap();
        // A written page of a private mapping is one of its own, without those around it.
        for used in [0, 1, 40] {
            // SAFETY: the address lies in the mapping.
            unsafe { start.cast::<u8>().add(used * page).write(1) };
        }
        let path = file.path().canonicalize().unwrap();
        let path = path.as_os_str().as_encoded_bytes();
        for process in [None, Some(std::process::id())] {
            let mut used = Vec::new();
            let done = used_mappings(process, 0..u64::MAX, |of, range| {
                if of == path {
                    used.push(range);
                }
            });
            assert!(done);
            let has = |number: u64| {
                let offset = number * page as u64;
                used.iter()
                    .any(|range: &Range<u64>| range.contains(&offset))
            };
            assert!([0, 1, 40].into_iter().all(has), "{used:?}");
            assert!(!has(20), "{used:?}");
        }
        // SAFETY: the mapping is this test's own.
        unsafe { munmap(start, len) }.unwrap();
    }
}
