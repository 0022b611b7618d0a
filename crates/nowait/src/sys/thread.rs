//! How often the calling thread has slept.
#![allow(unsafe_code)]

/// How many times this thread has gone to sleep so far, for a device or a lock: getrusage(2). What
/// the scheduler took away from it does not count.
pub(crate) fn sleeps() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is plain data, zeroed and the kernel's to fill.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}
