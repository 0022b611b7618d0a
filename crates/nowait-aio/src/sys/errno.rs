//! The errno of the calling thread, and errors that POSIX gives another number.

use std::ffi::c_int;

use rustix::io::Errno;

/// The calling thread's errno.
pub fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Sets errno and returns −1, as a C function that fails does.
pub fn fail(errno: Errno) -> c_int {
    // SAFETY: glibc's errno of the calling thread always exists.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
    -1
}

/// EAGAIN for an error that reports a lack of descriptors, memory or threads; any other error
/// unchanged. POSIX has EAGAIN for a lack of resources to queue a request.
pub fn resource_shortage_to_again(errno: Errno) -> Errno {
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC => Errno::AGAIN,
        errno => errno,
    }
}

/// Returns 0, or sets errno and returns −1.
pub fn to_c(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}
