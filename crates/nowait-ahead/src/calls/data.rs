//! posix_fadvise(2) and copy_file_range(2), which are other calls with `nowait run --keep-cache`.

use std::ffi::c_int;

use libc::{c_uint, off64_t, size_t, ssize_t};
use rustix::process::{Resource, getrlimit};

use super::read::read_to;
use super::transfer;
use crate::next::interpose;
use crate::residency;
use crate::survey;
use crate::survey_events::is_on;
use crate::system_calls;
use crate::windows;

/// The bytes that are copied at once. The pages of a longer copy could not be evicted before its end.
const COPIED: size_t = 8 << 20;
/// The bytes that the kernel copies in one call at most (MAX_RW_COUNT).
const LONGEST: size_t = 0x7fff_f000;

// On 64-bit machines off_t and off64_t are the same.
interpose! {
    fn posix_fadvise(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int, else libc::ENOSYS,
        call => {
            advises(fd, offset, len, advice);
            match is_suppressed(len, advice) {
                true => without_effect(fd, offset),
                false => call(),
            }
        };
    fn posix_fadvise64(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) -> c_int, else libc::ENOSYS,
        call => {
            advises(fd, offset, len, advice);
            match is_suppressed(len, advice) {
                true => without_effect(fd, offset),
                false => call(),
            }
        };
    fn copy_file_range(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, len: size_t, flags: c_uint,
    ) -> ssize_t, else -1, call => {
        transfer::moves(from, from_offset, len.min(LONGEST));
        transfer::moves(to, to_offset, len.min(LONGEST));
        read_to(from, from_offset, match len > COPIED && !has_limit() && survey::are_different_files(from, to) {
        true => copy(from, from_offset, to, to_offset, len.min(LONGEST), flags),
        false => call(),
    }) };
}

/// The program is about to give advice. The kernel may read the part of the file at once.
fn advises(fd: c_int, offset: off64_t, len: off64_t, advice: c_int) {
    if advice == libc::POSIX_FADV_WILLNEED {
        // A length of 0 means up to the end of the file.
        let len = usize::try_from(len).ok().filter(|len| *len > 0);
        windows::enters_at(fd, offset, len.unwrap_or(usize::MAX));
    }
}

/// Returns true if the advice evicts pages. `nowait run` evicts those that were not resident before.
fn is_suppressed(len: off64_t, advice: c_int) -> bool {
    advice == libc::POSIX_FADV_DONTNEED && len >= 0 && is_on()
}

/// The same advice for a part of a page, which the kernel does not evict. Returns the same error.
fn without_effect(fd: c_int, offset: off64_t) -> c_int {
    residency::evict(fd, offset | 1, 1)
}

/// Returns true if the process has a limit of file sizes. A call that reaches it returns what it has
/// copied. The next call would send SIGXFSZ.
fn has_limit() -> bool {
    is_on() && system_calls::are_allowed() && getrlimit(Resource::Fsize).current.is_some()
}

/// Copies part after part, so that `nowait run` evicts the first ones meanwhile. Returns and sets
/// errno as one call does.
fn copy(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    type Copy =
        unsafe extern "C" fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;
    // SAFETY: the caller has found the function, which has this type.
    let next: Copy = unsafe { std::mem::transmute(find::copy_file_range.address()) };
    let mut copied = 0;
    while copied < len {
        let part = COPIED.min(len - copied);
        // SAFETY: the address of this thread's errno.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the arguments are the program's, with a smaller length.
        let result = unsafe { next(from, from_offset, to, to_offset, part, flags) };
        if result < 0 {
            if copied == 0 {
                return result;
            }
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = errno };
            break;
        }
        copied += result.cast_unsigned();
        if result.cast_unsigned() < part {
            break;
        }
    }
    copied.cast_signed()
}
