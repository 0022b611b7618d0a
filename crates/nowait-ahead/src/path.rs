//! The absolute paths of files.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nowait_ahead_channel::Place;
use rustix::fs::{CWD, readlinkat_raw};
use rustix::path::DecInt;

/// The longest path that the kernel returns, with the zero behind it.
pub const LONGEST: usize = libc::PATH_MAX as usize;

/// Memory for a path, which is used by one thread at a time.
struct Memory {
    is_used: AtomicBool,
    path: UnsafeCell<[u8; LONGEST]>,
}

// SAFETY: the path belongs to the thread that has set `is_used`.
unsafe impl Sync for Memory {}

static ALL: [Memory; 16] = [const {
    Memory {
        is_used: AtomicBool::new(false),
        path: UnsafeCell::new([0; LONGEST]),
    }
}; 16];

/// This process is a new child of fork(2). The other threads that used memory are not in it.
pub fn release_memory() {
    for memory in &ALL {
        memory.is_used.store(false, Ordering::Relaxed);
    }
}

/// Calls a function with memory for a path. It is not on the stack: a signal handler may have a
/// small one. `None` if many other threads use all of the memory now.
pub fn with_memory<R>(call: impl FnOnce(&mut [u8; LONGEST]) -> R) -> Option<R> {
    let free = |it: &&Memory| !it.is_used.swap(true, Ordering::Acquire);
    let memory = ALL.iter().find(free)?;
    // SAFETY: this thread has set `is_used`.
    let result = call(unsafe { &mut *memory.path.get() });
    memory.is_used.store(false, Ordering::Release);
    Some(result)
}

/// The path of an open file, or of the working directory.
pub fn of<'a>(fd: BorrowedFd<'_>, path: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut name = *b"/proc/self/cwd\0\0\0\0\0\0\0\0\0\0\0\0";
    if fd.as_raw_fd() >= 0 {
        let number = DecInt::from_fd(fd);
        let digits = number.as_bytes_with_nul();
        name[11..14].copy_from_slice(b"fd/");
        name[14..14 + digits.len()].copy_from_slice(digits);
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    let len = readlinkat_raw(CWD, name, &mut *path).ok()?;
    // A path that fills the memory may be longer.
    (len < path.len()).then_some(&path[..len])
}

/// A directory of a system call: a descriptor, or a negative number for the working directory.
///
/// # Safety
/// The descriptor stays open while the result is used.
pub unsafe fn directory<'a>(fd: RawFd) -> BorrowedFd<'a> {
    match fd {
        // SAFETY: the caller's promise.
        0.. => unsafe { BorrowedFd::borrow_raw(fd) },
        _ => CWD,
    }
}

/// The absolute path of a file as a system call names it, without resolving it. The directory stays
/// open during the call.
pub fn absolute<'a>(place: Place<'_>, path: &'a mut [u8; LONGEST]) -> Option<&'a [u8]> {
    let name = place.path.strip_prefix(b"./").unwrap_or(place.path);
    let mut len = 0;
    if !name.starts_with(b"/") {
        // SAFETY: the caller's promise.
        len = of(unsafe { directory(place.fd) }, path)?.len();
        if path[..len] != *b"/" {
            *path.get_mut(len)? = b'/';
            len += 1;
        }
    }
    path.get_mut(len..len + name.len())?.copy_from_slice(name);
    let path = &path[..len + name.len()];
    Some(path.strip_suffix(b"/.").unwrap_or(path))
}
