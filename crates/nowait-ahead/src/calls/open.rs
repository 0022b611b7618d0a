//! Opening files.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::{null, null_mut};

use libc::{FILE, mode_t};

use super::close;
use crate::named::Named;
use crate::next::interpose;
use crate::watch;
use crate::windows;

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
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int, else -1,
        call => watch::open(call, Named::here(null()), flags);
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, else null_mut(), call => stream(call, path, mode);
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, else null_mut(), call => stream(call, path, mode);
    fn freopen(path: *const c_char, mode: *const c_char, from: *mut FILE) -> *mut FILE, else null_mut(),
        call => { close::closes_stream(from); stream(call, path, mode) };
    fn freopen64(path: *const c_char, mode: *const c_char, from: *mut FILE) -> *mut FILE, else null_mut(),
        call => { close::closes_stream(from); stream(call, path, mode) };
}

/// The flags of functions that create a file.
const CREATED: c_int = libc::O_WRONLY | libc::O_CREAT;

/// Opens a stream, and sends the event of its file.
fn stream(call: impl FnOnce() -> *mut FILE, path: *const c_char, mode: *const c_char) -> *mut FILE {
    let flags = match () {
        // SAFETY: the program's mode, whose end is a zero. The C library reads it before it makes a system call.
        _ if mode.is_null() || unsafe { *mode } != b'r' as c_char => libc::O_WRONLY,
        // SAFETY: as above. The other characters before a comma are flags.
        _ if unsafe { CStr::from_ptr(mode) }.to_bytes().contains(&b'+') => libc::O_RDWR,
        _ => libc::O_RDONLY,
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
    windows::is_read_unseen(watch::open(opened, Named::here(path), flags));
    stream
}

/// Opens a file by a number of syscall(2), with its arguments.
pub fn by_number(number: c_long, [a, b, c]: [c_long; 3], call: impl FnOnce() -> c_long) -> c_long {
    let file = Named {
        dir: a as c_int,
        path: b as *const c_char,
    };
    let fd = match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => {
            let file = Named::here(a as *const c_char);
            watch::open(|| call() as c_int, file, b as c_int)
        }
        libc::SYS_openat => watch::open(|| call() as c_int, file, c as c_int),
        libc::SYS_openat2 => match call() as c_int {
            // SAFETY: the kernel has read a struct open_how there, which begins with the flags.
            fd @ 0.. => watch::open(|| fd, file, unsafe { *(c as *const u64) } as c_int),
            failed => failed,
        },
        _ => return call(),
    };
    fd.into()
}
