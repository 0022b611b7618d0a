//! Limits of the process that can change at any time: setrlimit(2), prlimit(1).

/// Whether a write could raise SIGXFSZ in the thread that makes it: RLIMIT_FSIZE is set, or can't be
/// asked for.
pub(crate) fn file_size_is_limited() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives through the call.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    asked != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}
