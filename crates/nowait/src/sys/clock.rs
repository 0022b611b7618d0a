//! The monotonic clock as a number.
#![allow(unsafe_code)]

/// Milliseconds of CLOCK_MONOTONIC (clock_gettime(2)). It allocates nothing: an [`Instant`] in a
/// static value would have to.
///
/// [`Instant`]: std::time::Instant
pub(crate) fn monotonic_ms() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the time, which is valid during the call. rustix would look for the
    // vDSO itself, which valgrind does not map.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000 + now.tv_nsec.cast_unsigned() / 1_000_000
}
