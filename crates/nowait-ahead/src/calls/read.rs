//! All ways to read at another position than the next one. tests/c/ways.c of nowait-cli uses each function that is
//! defined here.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ptr::null;

use libc::{off64_t, size_t, ssize_t};

use super::transfer::{self, BUFFERS};
use crate::learn;
use crate::next::interpose;
use crate::windows;

// On 64-bit machines off_t and off64_t are the same.
interpose! {
    fn pread(fd: c_int, buf: *mut c_void, len: size_t, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, len, call);
    fn pread64(fd: c_int, buf: *mut c_void, len: size_t, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, len, call);
    // This one is for programs that were compiled with _FORTIFY_SOURCE.
    fn __pread64_chk(fd: c_int, buf: *mut c_void, len: size_t, offset: off64_t, room: size_t) -> ssize_t, else -1,
        call => read_at(fd, offset, len, call);
    fn preadv(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, BUFFERS, call);
    fn preadv64(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t) -> ssize_t, else -1,
        call => read_at(fd, offset, BUFFERS, call);
    fn preadv2(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t, flags: c_int) -> ssize_t, else -1,
        call => read_at(fd, offset, BUFFERS, call);
    fn preadv64v2(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t, flags: c_int) -> ssize_t, else -1,
        call => read_at(fd, offset, BUFFERS, call);
    fn sendfile(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t, else -1,
        call => { transfer::moves(from, offset, len); transfer::moves(to, null(), len); read_to(from, offset, call()) };
    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t, else -1,
        call => { transfer::moves(from, offset, len); transfer::moves(to, null(), len); read_to(from, offset, call()) };
    fn splice(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, len: size_t, flags: c_uint,
    ) -> ssize_t, else -1, call => {
        transfer::moves(from, from_offset, len);
        transfer::moves(to, to_offset, len);
        read_to(from, from_offset, call())
    };
    fn lseek(fd: c_int, offset: off64_t, from: c_int) -> off64_t, else -1, call => seeks(fd, (offset, from), call);
    fn lseek64(fd: c_int, offset: off64_t, from: c_int) -> off64_t, else -1, call => seeks(fd, (offset, from), call);
}

/// Reads at most `len` bytes at an offset.
fn read_at(fd: c_int, offset: off64_t, len: size_t, call: impl FnOnce() -> ssize_t) -> ssize_t {
    windows::enters_at(fd, offset, len);
    let count = call();
    learn::read_at(fd, offset, count);
    count
}

/// Changes the position of a descriptor.
fn seeks(fd: c_int, (offset, from): (off64_t, c_int), call: impl FnOnce() -> off64_t) -> off64_t {
    let position = learn::seeks(fd, (offset, from), call);
    windows::moved(fd, position);
    position
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

/// Carries out a system call by its number, if it reads at an offset or changes the position. `None` for other calls.
pub fn by_number(
    number: c_long,
    [a, b, c, d]: [c_long; 4],
    call: impl Fn() -> c_long,
) -> Option<c_long> {
    let fd = a as c_int;
    let read_at = |len| read_at(fd, d, len, || call() as ssize_t) as c_long;
    transfer::by_number(number, [a, b, c, d]);
    Some(match number {
        libc::SYS_pread64 => read_at(c as size_t),
        libc::SYS_preadv | libc::SYS_preadv2 => read_at(BUFFERS),
        libc::SYS_sendfile => read_to(b as c_int, c as *const off64_t, call() as ssize_t) as c_long,
        libc::SYS_copy_file_range | libc::SYS_splice => {
            read_to(fd, b as *const off64_t, call() as ssize_t) as c_long
        }
        libc::SYS_lseek => seeks(fd, (b, c as c_int), call),
        _ => return None,
    })
}
