//! Functions of the C library that Miri does not implement. With them Miri runs the library's tests
//! on the threads backend.
//!
//! Each fails as on a kernel without the call, or returns values that no test depends on. System
//! calls by number fail too.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;

/// Fails with ENOSYS, whatever the arguments are.
///
/// # Safety
/// As safe as any function. It is unsafe because the call that it stands for is.
pub(super) unsafe fn no_such_call<A, R: From<i32>>(_: A) -> R {
    // SAFETY: the errno of this thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    R::from(-1)
}

#[unsafe(no_mangle)]
extern "C" fn posix_madvise(_: *mut c_void, _: usize, _: c_int) -> c_int {
    libc::ENOSYS
}

/// As fstat(2): kind, device and size.
#[unsafe(no_mangle)]
extern "C" fn fstat64(fd: c_int, stat: *mut libc::stat64) -> c_int {
    // SAFETY: the caller lends its descriptor, which `ManuallyDrop` never closes.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let Ok(metadata) = file.metadata() else {
        // SAFETY: it makes no call.
        return unsafe { no_such_call(()) };
    };
    // SAFETY: the caller's memory, for which zeroes are a value.
    unsafe {
        stat.write(std::mem::zeroed());
        (*stat).st_mode = metadata.mode();
        (*stat).st_dev = metadata.dev();
        (*stat).st_size = metadata.size().cast_signed();
    }
    0
}

/// As fstatfs(2) of a filesystem that is not known.
#[unsafe(no_mangle)]
extern "C" fn fstatfs64(_: c_int, statfs: *mut libc::statfs64) -> c_int {
    // SAFETY: the caller's memory, for which zeroes are a value.
    unsafe { statfs.write(std::mem::zeroed()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn getrlimit64(_: libc::__rlimit_resource_t, _: *mut libc::rlimit64) -> c_int {
    // SAFETY: it makes no call.
    unsafe { no_such_call(()) }
}
