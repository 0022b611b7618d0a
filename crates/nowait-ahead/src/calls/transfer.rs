//! Reads and writes at the position of a descriptor or a stream, and writes at an offset. A window of a large file that
//! one of them enters is surveyed before it. tests/c/windows.c of nowait-cli uses each function that is defined here.

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::{FILE, off64_t, size_t, ssize_t};

use crate::next::interpose;
use crate::survey_events::is_on;
use crate::system_calls;
use crate::windows;

/// The bytes that a call is taken to read or write into several buffers. Their lengths are in the program's memory,
/// which the kernel has not yet read.
pub const BUFFERS: size_t = 8 << 20;
/// The bytes of a line of a stream, and of what the C library reads ahead for it.
const LINE: size_t = 1 << 20;

interpose! {
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t, else -1, call => { windows::enters(fd, len); call() };
    fn readv(fd: c_int, buffers: *const c_void, count: c_int) -> ssize_t, else -1,
        call => { windows::enters(fd, BUFFERS); call() };
    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t, else -1,
        call => { windows::enters(fd, len); call() };
    fn writev(fd: c_int, buffers: *const c_void, count: c_int) -> ssize_t, else -1,
        call => { windows::enters(fd, BUFFERS); call() };
    fn pwrite(fd: c_int, buf: *const c_void, len: size_t, offset: off64_t) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, len); call() };
    fn pwrite64(fd: c_int, buf: *const c_void, len: size_t, offset: off64_t) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, len); call() };
    fn pwritev(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, BUFFERS); call() };
    fn pwritev64(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, BUFFERS); call() };
    fn pwritev2(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t, flags: c_int) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, BUFFERS); call() };
    fn pwritev64v2(fd: c_int, buffers: *const c_void, count: c_int, offset: off64_t, flags: c_int) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, BUFFERS); call() };
    fn readahead(fd: c_int, offset: off64_t, len: size_t) -> ssize_t, else -1,
        call => { windows::enters_at(fd, offset, len); call() };
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, else std::ptr::null_mut(),
        call => { windows::is_read_unseen(fd); call() };
    fn fread(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t, else 0,
        call => { fills(stream, size.saturating_mul(count)); call() };
    fn fread_unlocked(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t, else 0,
        call => { fills(stream, size.saturating_mul(count)); call() };
    fn fgets(buf: *mut c_char, len: c_int, stream: *mut FILE) -> *mut c_char, else std::ptr::null_mut(),
        call => { fills(stream, LINE); call() };
    fn fgets_unlocked(buf: *mut c_char, len: c_int, stream: *mut FILE) -> *mut c_char, else std::ptr::null_mut(),
        call => { fills(stream, LINE); call() };
    fn getline(line: *mut c_void, len: *mut c_void, stream: *mut FILE) -> ssize_t, else -1,
        call => { fills(stream, LINE); call() };
    fn getdelim(line: *mut c_void, len: *mut c_void, end: c_int, stream: *mut FILE) -> ssize_t, else -1,
        call => { fills(stream, LINE); call() };
    // These are for programs that were compiled with _FORTIFY_SOURCE, or with optimisation.
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t, else -1,
        call => { windows::enters(fd, len); call() };
    fn __fread_chk(buf: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t, else 0,
        call => { fills(stream, size.saturating_mul(count)); call() };
    fn __fread_unlocked_chk(buf: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t,
        else 0, call => { fills(stream, size.saturating_mul(count)); call() };
    fn __fgets_chk(buf: *mut c_char, room: size_t, len: c_int, stream: *mut FILE) -> *mut c_char,
        else std::ptr::null_mut(), call => { fills(stream, LINE); call() };
    fn __getdelim(line: *mut c_void, len: *mut c_void, end: c_int, stream: *mut FILE) -> ssize_t, else -1,
        call => { fills(stream, LINE); call() };
}

/// The program is about to move `len` bytes from or to a descriptor, at the offset at an address, or at the position of
/// the descriptor if it is null. The kernel has not yet read the offset.
pub fn moves(fd: c_int, offset: *const off64_t, len: size_t) {
    match offset.is_null() {
        true => windows::enters(fd, len),
        false => windows::is_read_unseen(fd),
    }
}

/// The C library is about to read `len` bytes for a stream.
fn fills(stream: *mut FILE, len: size_t) {
    if windows::are_left() && is_on() && !stream.is_null() {
        // A stream of memory has no descriptor, which is an error.
        system_calls::with_errno(|| {
            // SAFETY: the program's stream.
            windows::enters(unsafe { libc::fileno(stream) }, len.saturating_add(LINE));
        });
    }
}

/// The program is about to make a system call by its number, which may read or write.
pub fn by_number(number: c_long, [a, b, c, d]: [c_long; 4]) {
    let (fd, len) = (a as c_int, c as size_t);
    match number {
        libc::SYS_read | libc::SYS_write => windows::enters(fd, len),
        libc::SYS_readv | libc::SYS_writev => windows::enters(fd, BUFFERS),
        libc::SYS_pwrite64 => windows::enters_at(fd, d, len),
        libc::SYS_pwritev | libc::SYS_pwritev2 => windows::enters_at(fd, d, BUFFERS),
        libc::SYS_readahead => windows::enters_at(fd, b, len),
        libc::SYS_sendfile => {
            moves(b as c_int, c as *const off64_t, d as size_t);
            windows::enters(fd, d as size_t);
        }
        // Not all arguments are here.
        libc::SYS_copy_file_range | libc::SYS_splice | libc::SYS_mmap => windows::are_sent(),
        libc::SYS_clone | libc::SYS_clone3 => windows::are_sent(),
        libc::SYS_sendmsg | libc::SYS_sendmmsg | libc::SYS_io_setup | libc::SYS_io_uring_setup => {
            windows::are_sent();
        }
        _ => {}
    }
}
