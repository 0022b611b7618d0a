//! The system calls that the seccomp filters of old container runtimes deny.

/// cachestat(2), which libc does not have.
pub const CACHESTAT: libc::c_long = 451;

/// System calls that are newer than such filters.
pub const OLD_CONTAINER: [libc::c_long; 8] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_openat2,
    CACHESTAT,
    libc::SYS_mincore,
];
