//! The descriptor table of a thread.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::sys::errno;

/// The limit on descriptors: getrlimit(2) of the C library. rustix panics if a sandbox denies the
/// call.
pub fn limit() -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the call fills the limit if it succeeds.
    unsafe {
        let result = libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        (result == 0).then(|| limit.assume_init().rlim_cur)
    }
}

/// close_range(2).
fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: only numbers are passed. The closed descriptors are copies in the table of a thread
    // of the library, and no code uses them.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(errno::last()),
    }
}

/// Gives the calling thread a descriptor table of its own: a copy, at least of the numbers up to
/// `keep`.
pub fn unshare(keep: RawFd) -> Result<(), Errno> {
    // Descriptors above `keep` are not even copied.
    if close_range(keep as u32 + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE).is_ok() {
        return Ok(());
    }
    // Before Linux 5.9 there is no close_range(2). SAFETY: the calling thread belongs to the
    // library: no code of the program runs on it that could rely on the shared table.
    match unsafe { libc::unshare(libc::CLONE_FILES) } {
        0 => Ok(()),
        _ => Err(errno::last()),
    }
}

/// Closes all descriptors but `keep` in the calling thread's own table.
///
/// The program's fcntl(2) locks belong to the program's table, so this drops none of them.
pub fn close_all_but(keep: RawFd) -> Result<(), Errno> {
    let number = keep as u32;
    if close_range(number + 1, u32::MAX, 0).is_ok()
        && (number == 0 || close_range(0, number - 1, 0).is_ok())
    {
        return Ok(());
    }
    let numbers: Vec<RawFd> = std::fs::read_dir("/proc/thread-self/fd")
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|n| *n != keep) {
        // SAFETY: a copy in this thread's own table, which no code uses.
        unsafe { libc::close(number) };
    }
    Ok(())
}
