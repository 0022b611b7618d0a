//! Calls on the data of files, which `nowait run --keep-cache` changes.

use std::ffi::c_int;

use libc::{c_uint, off64_t, size_t, ssize_t};

use crate::next::interpose;
use crate::survey;

/// The bytes that one call copies. The pages of a longer copy could not be evicted before its end.
const COPIED: size_t = 8 << 20;

// On 64-bit machines off_t and off64_t are the same.
interpose! {
    fn posix_fadvise(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int, else libc::ENOSYS,
        call => match is_kept(len, advice) {
            true => without_effect(fd, offset),
            false => call(),
        };
    fn posix_fadvise64(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int, else libc::ENOSYS,
        call => match is_kept(len, advice) {
            true => without_effect(fd, offset),
            false => call(),
        };
    fn copy_file_range(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, len: size_t, flags: c_uint,
    ) -> ssize_t, else -1, call => match len > COPIED && survey::is_on() {
        true => copy_part(from, from_offset, to, to_offset, flags),
        false => call(),
    };
}

/// Returns true if the advice evicts pages. `nowait run` evicts those that were not resident before.
fn is_kept(len: off64_t, advice: c_int) -> bool {
    advice == libc::POSIX_FADV_DONTNEED && len >= 0 && survey::is_on()
}

/// The same advice for a part of a page, which the kernel does not evict. Returns the same error.
fn without_effect(fd: c_int, offset: off64_t) -> c_int {
    survey::evict(fd, offset | 1, 1)
}

/// A copy of the first bytes. The program calls again for the others.
fn copy_part(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    flags: c_uint,
) -> ssize_t {
    type Copy =
        unsafe extern "C" fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;
    // SAFETY: the caller has found the function, which has this type.
    let next: Copy = unsafe { std::mem::transmute(find::copy_file_range.address()) };
    // SAFETY: the arguments are the program's, with a smaller length.
    unsafe { next(from, from_offset, to, to_offset, COPIED, flags) }
}
