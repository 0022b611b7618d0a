//! Reads at other positions than the next one, and paths that are looked up without stat(2).

use std::ffi::{c_char, c_int, c_void};

use libc::{off64_t, size_t, ssize_t};

use crate::learn;
use crate::named::Named;
use crate::next::interpose;

// On 64-bit machines off_t and off64_t are the same.
interpose! {
    fn pread(fd: c_int, buf: *mut c_void, len: size_t, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    fn pread64(fd: c_int, buf: *mut c_void, len: size_t, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    // This one is for programs that were compiled with _FORTIFY_SOURCE.
    fn __pread64_chk(fd: c_int, buf: *mut c_void, len: size_t, offset: off64_t, room: size_t) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    fn preadv(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    fn preadv64(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    fn preadv2(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t, flags: c_int) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    fn preadv64v2(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t, flags: c_int) -> ssize_t, else -1,
        call => read_at(fd, offset, call());
    fn sendfile(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t, else -1,
        call => read_to(from, offset, call());
    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t, else -1,
        call => read_to(from, offset, call());
    fn lseek(fd: c_int, offset: off64_t, from: c_int) -> off64_t, else -1, call => learn::seeks(fd, (offset, from), call);
    fn lseek64(fd: c_int, offset: off64_t, from: c_int) -> off64_t, else -1, call => learn::seeks(fd, (offset, from), call);
    fn access(path: *const c_char, mode: c_int) -> c_int, else -1, call => looked_up(Named::here(path), call());
    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, else -1,
        call => looked_up(Named { dir, path }, call());
    fn readlink(path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t, else -1,
        call => looked_up(Named::here(path), call());
    fn readlinkat(dir: c_int, path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t, else -1,
        call => looked_up(Named { dir, path }, call());
}

/// The program has read `count` bytes at an offset.
pub fn read_at(fd: c_int, offset: off64_t, count: ssize_t) -> ssize_t {
    learn::read_at(fd, offset, count);
    count
}

/// The program has read `count` bytes up to an offset, unless the pointer is null: then the position of the
/// descriptor has moved.
pub fn read_to(fd: c_int, offset: *const off64_t, count: ssize_t) -> ssize_t {
    if count > 0 && !offset.is_null() {
        // SAFETY: the kernel has just written the offset there. It need not be aligned.
        let end = unsafe { offset.read_unaligned() };
        learn::read_at(fd, end.saturating_sub(count as off64_t), count);
    }
    count
}

fn looked_up<R>(path: Named, result: R) -> R {
    // SAFETY: the call has just taken this path.
    unsafe { learn::looked_up(path) };
    result
}
