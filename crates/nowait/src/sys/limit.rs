//! Limits of the process, which may change at any time: setrlimit(2), prlimit(1). rustix is not
//! used, because it panics if a sandbox denies the call.
#![allow(unsafe_code)]

/// The soft limit from getrlimit(2). `None` if the call is denied.
fn soft(ask: impl FnOnce(*mut libc::rlimit) -> libc::c_int) -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    (ask(&raw mut limit) == 0).then_some(limit.rlim_cur)
}

/// Returns true if a write may raise SIGXFSZ in its thread: RLIMIT_FSIZE is set, or unknown.
pub(crate) fn file_size_is_limited() -> bool {
    // SAFETY: the pointer is to memory that is valid during the call.
    let limit = soft(|limit| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit) });
    limit != Some(libc::RLIM_INFINITY)
}

/// The maximum number of descriptors of the process: RLIMIT_NOFILE. `None` if it is unknown.
pub(crate) fn descriptors() -> Option<u64> {
    // SAFETY: as above.
    soft(|limit| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit) })
}
