//! The ID of a thread.

use std::ffi::c_int;

/// The ID of this thread. The C library knows it without a system call, also in a forked child, and
/// writes it into a mutex. 0 in a C library before 2.34 whose threads are not linked.
pub fn thread() -> u32 {
    /// The beginning of glibc's pthread_mutex_t, which compiled programs initialise.
    #[repr(C)]
    struct Mutex {
        lock: c_int,
        count: u32,
        owner: u32,
    }
    // With the other kind, the C library may use a transaction of the processor, which has no
    // owner.
    let mut mutex = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    let mutex = &raw mut mutex;
    // SAFETY: the mutex was initialised, and no other thread has its address. So the calls do not
    // wait, and do not set errno.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        let owner = (&raw const (*mutex.cast::<Mutex>()).owner).read_volatile();
        libc::pthread_mutex_unlock(mutex);
        owner
    }
}
