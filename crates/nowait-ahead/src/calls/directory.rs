//! Opening and listing directories.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::slice;

use libc::{DIR, dirent64, size_t, ssize_t};

use crate::listing;
use crate::next::interpose;
use crate::watch;

// On 64-bit machines `struct dirent` and `struct dirent64` are the same.
interpose! {
    fn opendir(path: *const c_char) -> *mut DIR, else null_mut(), call => { let time = watch::now(); opened(call(), time) };
    fn fdopendir(fd: c_int) -> *mut DIR, else null_mut(), call => { let time = watch::now(); opened(call(), time) };
    fn readdir(dir: *mut DIR) -> *mut dirent64, else null_mut(), call => read(dir, call());
    fn readdir64(dir: *mut DIR) -> *mut dirent64, else null_mut(), call => read(dir, call());
    fn readdir_r(dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int, else libc::ENOSYS,
        call => read_r(dir, call(), result);
    fn readdir64_r(dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int, else libc::ENOSYS,
        call => read_r(dir, call(), result);
    fn getdents64(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t, else -1,
        call => listed(call() as c_long, fd, buf) as ssize_t;
    fn glob(pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut c_void) -> c_int, else -1,
        call => { listing_of_pattern(pattern, flags); call() };
    fn glob64(pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut c_void) -> c_int, else -1,
        call => { listing_of_pattern(pattern, flags); call() };
}

fn opened(dir: *mut DIR, time: u64) -> *mut DIR {
    listing::opened(dir.addr(), time);
    dir
}

fn read(dir: *mut DIR, entry: *mut dirent64) -> *mut dirent64 {
    // SAFETY: readdir(3) has just returned this entry, whose name has a zero byte within the entry.
    if let Some(inode) = unsafe { own_inode(entry.cast()) } {
        // SAFETY: readdir(3) has just accepted this stream.
        listing::begun(dir.addr(), inode, unsafe { libc::dirfd(dir) });
    } else if !entry.is_null() {
        listing::continued(dir.addr());
    }
    entry
}

fn read_r(dir: *mut DIR, error: c_int, result: *mut *mut dirent64) -> c_int {
    if error == 0 {
        // SAFETY: readdir_r(3) has just written the entry's address there.
        read(dir, unsafe { *result });
    }
    error
}

/// Tells of a directory that is listed by getdents64(2).
pub fn listed(result: c_long, fd: c_int, buf: *const c_void) -> c_long {
    // Two names of one byte and the heads of their entries.
    const SHORTEST: c_long = 48;
    if result >= SHORTEST {
        // SAFETY: getdents64(2) has just written whole entries into the buffer.
        if let Some(inode) = unsafe { own_inode(buf.cast()) } {
            listing::listed(fd, inode, result as usize);
        }
    }
    result
}

/// Returns the inode number of a directory if an entry is its own, `.`. Most filesystems list it
/// first. 0 if a FUSE server has not said it.
///
/// # Safety
/// The pointer is null or that of a `struct linux_dirent64` with at least two bytes of a name. It
/// need not be aligned.
unsafe fn own_inode(entry: *const u8) -> Option<u64> {
    if entry.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let (name, inode) = unsafe {
        (
            slice::from_raw_parts(entry.add(offset_of!(dirent64, d_name)), 2),
            entry.cast::<u64>().read_unaligned(),
        )
    };
    const UNKNOWN: u64 = 0xffff_ffff;
    (name == b".\0").then_some(if inode == UNKNOWN { 0 } else { inode })
}

/// Tells of the directory whose names a pattern is compared with. The C library does not read the
/// pattern if it does not know a flag.
fn listing_of_pattern(pattern: *const c_char, flags: c_int) {
    /// The flags of glob.h.
    const KNOWN: c_int = 0x7fff;
    if pattern.is_null() || flags & !KNOWN != 0 {
        return;
    }
    // SAFETY: the program's pattern, which the C library is about to read.
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
