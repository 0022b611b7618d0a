//! cachestat(2) and mincore(2) as they are, lies included: the library asks them only where they
//! tell the truth, and finding out whether they do is this program's business.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

/// `struct cachestat_range`, in bytes.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same on every architecture; libc does not have it for all.
const SYS_CACHESTAT: libc::c_long = 451;

/// How many pages of a byte range cachestat(2) counts as cached.
pub fn cachestat(file: &File, offset: u64, len: u64) -> Result<u64, Errno> {
    let range = Range { offset, len };
    let mut counts = Counts::default();
    // SAFETY: both structs have the kernel's layout and live through the call.
    let ret = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0,
        )
    };
    if ret == 0 {
        Ok(counts.cached)
    } else {
        Err(last_errno())
    }
}

/// A file mapped only so that mincore(2) can be asked about it; never touched.
pub struct Mapping {
    address: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes, which may reach beyond the end of the file.
    pub fn new(file: &File, len: usize) -> Result<Mapping, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::NORESERVE,
                file,
                0,
            )?
        };
        Ok(Mapping { address, len })
    }

    /// Whether each of the `pages.len()` pages from page `first` on is resident (bit 0 of its
    /// byte), by mincore(2).
    pub fn mincore(&self, first: usize, pages: &mut [u8]) -> Result<(), Errno> {
        let page = rustix::param::page_size();
        let (start, len) = (first * page, pages.len() * page);
        if start + len > self.len.next_multiple_of(page) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the range lies in the mapping, and the vector has a byte for each of its pages.
        let ret = unsafe { libc::mincore(self.address.byte_add(start), len, pages.as_mut_ptr()) };
        if ret == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// How many of the first `pages` pages mincore(2) calls resident.
    pub fn resident(&self, pages: usize) -> Result<u64, Errno> {
        let mut each = vec![0; pages];
        self.mincore(0, &mut each)?;
        Ok(each.iter().map(|p| u64::from(p & 1)).sum())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once; nobody holds a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.address, self.len) };
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
