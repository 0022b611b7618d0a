//! System calls that the crates in use do not have, and what they need. Each function is one call,
//! without policy. Crate `nowait` uses these modules, too. They are no part of the public interface.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("nowait-residency is for 64-bit Linux");

pub mod cast;
pub mod clock;
pub mod descriptor_table;
pub mod lease;
pub mod page_cache;
pub mod process;
pub mod reopen;
pub mod spawn;
pub mod stat;

pub use rustix::io::Errno;

/// Converts the return value of a `libc` call to a count or the thread's errno.
///
/// # Errors
/// The errno of the calling thread if the value is negative.
#[inline]
pub fn check(ret: libc::c_long) -> Result<usize, Errno> {
    // A negative return value sets errno, which is never 0.
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    usize::try_from(ret).map_err(|_| errno())
}
