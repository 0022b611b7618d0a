//! The number of times that the calling thread has slept.
#![allow(unsafe_code)]

/// The number of times that this thread has slept so far, for a device or a lock: getrusage(2).
/// Preemptions by the scheduler do not count.
pub(crate) fn sleeps() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is plain data, which is zeroed and then filled by the kernel.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}
