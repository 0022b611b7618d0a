//! Limits of the process, which can change at any time: setrlimit(2), prlimit(1). Not by rustix, which
//! panics where a sandbox denies the call.
#![allow(unsafe_code)]

/// The soft limit that getrlimit(2) tells; `None` where it is denied.
fn soft(ask: impl FnOnce(*mut libc::rlimit) -> libc::c_int) -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    (ask(&raw mut limit) == 0).then_some(limit.rlim_cur)
}

/// Whether a write could raise SIGXFSZ in the thread that makes it: RLIMIT_FSIZE is set, or can't be
/// asked for.
pub(crate) fn file_size_is_limited() -> bool {
    // SAFETY: the pointer is to memory that lives through the call.
    let limit = soft(|limit| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit) });
    limit != Some(libc::RLIM_INFINITY)
}

/// How many descriptors the process may have: RLIMIT_NOFILE. `None` where it can't be asked for.
pub(crate) fn descriptors() -> Option<u64> {
    // SAFETY: as above.
    soft(|limit| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit) })
}
