//! System calls that rustix lacks, or that must not be made through rustix.
//!
//! A function makes one call, or the call that replaces it on older kernels. It does not retry.

pub mod clock;
pub mod descriptor_table;
pub mod epoll;
pub mod errno;
pub mod futex;
pub mod memory;
pub mod open_file;
pub mod process;
pub mod pthread_cancel;
pub mod rw;
pub mod signal;
pub mod thread;
