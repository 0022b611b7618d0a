//! Opening files.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use libc::{FILE, mode_t};

use crate::named::Named;
use crate::next::interpose;
use crate::watch;

// open(2) takes a mode only with O_CREAT. In the C calling conventions of x86-64 and AArch64 a
// variadic function finds its arguments where a function of three or four finds its own.
interpose! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1, call => watch::open(call, Named::here(path), flags);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1, call => watch::open(call, Named::here(path), flags);
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1,
        call => watch::open(call, Named { dir, path }, flags);
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1,
        call => watch::open(call, Named { dir, path }, flags);
    fn creat(path: *const c_char, mode: mode_t) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn creat64(path: *const c_char, mode: mode_t) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkstemp(path: *mut c_char) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkstemp64(path: *mut c_char) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkostemp(path: *mut c_char, flags: c_int) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkostemp64(path: *mut c_char, flags: c_int) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkstemps(path: *mut c_char, suffix: c_int) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkstemps64(path: *mut c_char, suffix: c_int) -> c_int, else -1, call => watch::open(call, Named::here(path), CREATED);
    fn mkostemps(path: *mut c_char, suffix: c_int, flags: c_int) -> c_int, else -1,
        call => watch::open(call, Named::here(path), CREATED);
    fn mkostemps64(path: *mut c_char, suffix: c_int, flags: c_int) -> c_int, else -1,
        call => watch::open(call, Named::here(path), CREATED);
    // These are for programs that were compiled with _FORTIFY_SOURCE.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int, else -1, call => watch::open(call, Named::here(path), flags);
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int, else -1, call => watch::open(call, Named::here(path), flags);
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, else -1,
        call => watch::open(call, Named { dir, path }, flags);
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, else -1,
        call => watch::open(call, Named { dir, path }, flags);
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, else null_mut(), call => stream(call, path, mode);
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, else null_mut(), call => stream(call, path, mode);
}

/// The flags of functions that create a file.
const CREATED: c_int = libc::O_WRONLY | libc::O_CREAT;

/// Opens a stream, and tells of its file.
fn stream(call: impl FnOnce() -> *mut FILE, path: *const c_char, mode: *const c_char) -> *mut FILE {
    // Only `r` opens a file without truncating it, or for more than appending to it.
    // SAFETY: the program's mode.
    let is_read = !mode.is_null() && unsafe { *mode } == b'r' as c_char;
    let flags = if is_read {
        libc::O_RDONLY
    } else {
        libc::O_WRONLY
    };
    let mut stream = null_mut();
    let opened = || {
        stream = call();
        match stream.is_null() {
            true => -1,
            // SAFETY: the C library has just returned this stream, which has a descriptor.
            false => unsafe { libc::fileno(stream) },
        }
    };
    watch::open(opened, Named::here(path), flags);
    stream
}
