//! All ways to close a descriptor. tests/c/ways.c of nowait-cli uses each function that is defined here.

use std::ffi::{c_int, c_long, c_uint};
use std::os::fd::BorrowedFd;

use libc::FILE;
use rustix::fs::fcntl_getfl;

use super::descriptor;
use crate::learn;
use crate::next::interpose;
use crate::open_files;
use crate::survey;
use crate::survey_events::surveys;
use crate::windows;

/// The result of a function that returns none.
type Nothing = ();

interpose! {
    fn close(fd: c_int) -> c_int, else -1, call => { closes(fd); call() };
    fn fclose(stream: *mut FILE) -> c_int, else libc::EOF, call => { closes_stream(stream); call() };
    fn dup2(fd: c_int, new: c_int) -> c_int, else -1, call => replaces(fd, new, 0, call);
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int, else -1, call => replaces(fd, new, flags, call);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, else -1,
        call => { closes_all(first, last, flags); call() };
    fn closefrom(first: c_int) -> Nothing, else Nothing::default(), call => { closes_all(first.max(0).cast_unsigned(), c_uint::MAX, 0); call() };
}

/// The program is about to close a descriptor.
pub fn closes(fd: c_int) {
    learn::closes(fd);
    survey::closes(fd);
}

/// The program is about to close a stream.
pub fn closes_stream(stream: *mut FILE) {
    learn::closes_stream(stream);
    survey::closes_stream(stream);
}

/// The program is about to close the descriptors from `first` to `last`.
fn closes_all(first: c_uint, last: c_uint, flags: c_int) {
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    /// The library knows no files of greater numbers.
    const LAST: c_uint = open_files::NUMBERS as c_uint - 1;
    // With another flag, none is closed now.
    if flags & !UNSHARE == 0 {
        for fd in first..=last.min(LAST) {
            closes(fd.cast_signed());
        }
    }
}

fn replaces<R>(fd: c_int, new: c_int, flags: c_int, call: impl FnOnce() -> R) -> R
where
    R: Copy + Into<c_long>,
{
    open_files::remove(fd);
    // If the call fails, `new` stays open.
    if fd != new && flags & !libc::O_CLOEXEC == 0 && is_followed(new) && may_be_open(fd) {
        closes(new);
    }
    descriptor::duplicates(fd, call)
}

/// Returns true if [`closes`] has something to do for a descriptor.
fn is_followed(fd: c_int) -> bool {
    learn::follows(fd) || open_files::contains(fd) || windows::contains(fd)
}

/// Returns false if no file has this descriptor. It is asked for only where it matters, and where system calls may be made.
fn may_be_open(fd: c_int) -> bool {
    if surveys().is_none() && learn::learning().is_none() {
        return true;
    }
    // SAFETY: the call changes nothing, and fails for a number that is no descriptor.
    fd >= 0 && fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok()
}

/// Carries out a system call by its number, if it closes descriptors. `None` for other calls.
pub fn by_number(
    number: c_long,
    [a, b, c]: [c_long; 3],
    call: impl FnOnce() -> c_long,
) -> Option<c_long> {
    match number {
        // libuv closes files by number.
        libc::SYS_close => closes(a as c_int),
        libc::SYS_close_range => closes_all(a as c_uint, b as c_uint, c as c_int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => return Some(replaces(a as c_int, b as c_int, 0, call)),
        libc::SYS_dup3 => return Some(replaces(a as c_int, b as c_int, c as c_int, call)),
        _ => return None,
    }
    Some(call())
}
