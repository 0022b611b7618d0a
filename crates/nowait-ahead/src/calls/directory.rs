//! Opening and listing directories.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{DIR, size_t, ssize_t};
use nowait_ahead_channel::Kind;

use crate::next::interpose;
use crate::watch;

interpose! {
    fn opendir(path: *const c_char) -> *mut DIR, else null_mut(), call => opened(call());
    fn fdopendir(fd: c_int) -> *mut DIR, else null_mut(), call => opened(call());
    fn getdents64(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t, else -1,
        call => listed(call() as c_long, fd) as ssize_t;
    fn scandir(path: *const c_char, list: *mut c_void, select: *mut c_void, compare: *mut c_void) -> c_int, else -1,
        call => { listing(path); call() };
    fn scandir64(path: *const c_char, list: *mut c_void, select: *mut c_void, compare: *mut c_void) -> c_int, else -1,
        call => { listing(path); call() };
    // The path of these may be relative to another directory.
    fn scandirat(
        dir: c_int, path: *const c_char, list: *mut c_void, select: *mut c_void, compare: *mut c_void,
    ) -> c_int, else -1, call => { listing_at(dir, path); call() };
    fn scandirat64(
        dir: c_int, path: *const c_char, list: *mut c_void, select: *mut c_void, compare: *mut c_void,
    ) -> c_int, else -1, call => { listing_at(dir, path); call() };
    fn glob(pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut c_void) -> c_int, else -1,
        call => { listing_of_pattern(pattern); call() };
    fn glob64(pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut c_void) -> c_int, else -1,
        call => { listing_of_pattern(pattern); call() };
}

fn opened(dir: *mut DIR) -> *mut DIR {
    if !dir.is_null() {
        // SAFETY: the C library has just returned this stream.
        watch::opened(unsafe { libc::dirfd(dir) });
    }
    dir
}

/// The descriptor that getdents64(2) was last called with.
static LISTED: AtomicI32 = AtomicI32::new(-1);

/// Tells of a directory that is listed by getdents64(2), at its first call.
pub fn listed(result: c_long, fd: c_int) -> c_long {
    if result > 0 && LISTED.swap(fd, Ordering::Relaxed) != fd {
        watch::opened(fd);
    } else if result == 0 {
        LISTED.store(-1, Ordering::Relaxed);
    }
    result
}

fn listing(path: *const c_char) {
    // SAFETY: the program's path.
    unsafe { watch::path(Kind::Listing, path) };
}

fn listing_at(dir: c_int, path: *const c_char) {
    // SAFETY: as above.
    if dir == libc::AT_FDCWD || (!path.is_null() && unsafe { *path } == b'/' as c_char) {
        listing(path);
    }
}

/// Tells of the directory whose names a pattern is compared with.
fn listing_of_pattern(pattern: *const c_char) {
    if pattern.is_null() {
        return;
    }
    // SAFETY: the program's pattern.
    let bytes = unsafe { std::ffi::CStr::from_ptr(pattern) }.to_bytes();
    let plain = bytes
        .iter()
        .take_while(|byte| !b"*?[{~\\".contains(byte))
        .count();
    match bytes[..plain].iter().rposition(|&byte| byte == b'/') {
        Some(slash) => watch::listing(&bytes[..=slash]),
        None => watch::listing(b"."),
    }
}
