//! Memory from the kernel: mmap(2).

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

pub const PAGE_SIZE: usize = 4096;

/// Maps zeroed memory that only this process uses.
pub fn map(size: usize) -> Result<*mut u8, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping.
    unsafe { mmap_anonymous(null_mut(), size, access, MapFlags::PRIVATE) }.map(<*mut c_void>::cast)
}

/// Maps a zeroed page that is zeroed again in a forked child: madvise(2) MADV_WIPEONFORK (Linux
/// 4.14).
pub fn map_page_wiped_on_fork() -> Result<*mut u8, Errno> {
    let page = map(PAGE_SIZE)?;
    // SAFETY: the mapping was made above, and no other code has its address.
    unsafe {
        if let Err(errno) = madvise(page.cast(), PAGE_SIZE, Advice::LinuxWipeOnFork) {
            let _ = unmap(page, PAGE_SIZE);
            return Err(errno);
        }
    }
    Ok(page)
}

/// Unmaps memory.
///
/// # Safety
/// The memory must come from [`map`] with this size, and no code may use it.
pub unsafe fn unmap(start: *mut u8, size: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { munmap(start.cast(), size) }
}
