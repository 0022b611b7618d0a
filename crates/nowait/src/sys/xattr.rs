//! Extended attributes of a file, by its name in an open directory.
//!
//! listxattrat(2) and getxattrat(2) (Linux 6.13) take a directory and a name. Older kernels have
//! only calls with a path or an open file. Opening each file would restrict the files that can be
//! queried (missing permissions, devices, symbolic links).
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Errno, check};

/// The numbers of the calls are the same on all architectures. libc 0.2 does not have them.
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;

/// `struct xattr_args` (Linux 6.13).
#[repr(C, align(8))]
struct Args {
    value: u64,
    size: u32,
    flags: u32,
}

fn at_flags(follow: bool) -> libc::c_int {
    if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
}

/// listxattrat(2): the names, each with its NUL. If `room` is empty, it returns the required size.
pub(crate) fn listxattrat(
    directory: BorrowedFd<'_>,
    name: &CStr,
    follow: bool,
    room: &mut [u8],
) -> Result<usize, Errno> {
    // SAFETY: `name` is a C string, and the kernel writes at most `room.len()` bytes to `room`.
    check(unsafe {
        syscall!(
            SYS_LISTXATTRAT,
            directory.as_raw_fd(),
            name.as_ptr(),
            at_flags(follow),
            room.as_mut_ptr(),
            room.len(),
        )
    })
}

/// getxattrat(2): one value. If `room` is empty, it returns the size of the value.
pub(crate) fn getxattrat(
    directory: BorrowedFd<'_>,
    name: &CStr,
    attribute: &CStr,
    follow: bool,
    room: &mut [u8],
) -> Result<usize, Errno> {
    let mut args = Args {
        value: room.as_mut_ptr() as u64,
        size: u32::try_from(room.len()).unwrap_or(u32::MAX),
        flags: 0,
    };
    // SAFETY: both names are C strings, `args` has the kernel's layout, and the kernel writes at
    // most `args.size` bytes to `room`.
    check(unsafe {
        syscall!(
            SYS_GETXATTRAT,
            directory.as_raw_fd(),
            name.as_ptr(),
            at_flags(follow),
            attribute.as_ptr(),
            &raw mut args,
            size_of::<Args>(),
        )
    })
}
