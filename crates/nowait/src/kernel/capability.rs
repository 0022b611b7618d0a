//! The capabilities of kernel, sandbox and filesystem. They are learnt by trying, never from a
//! version number.
//!
//! ENOSYS and EPERM apply to the process ([`Kernel`]). EOPNOTSUPP applies to a
//! [`Filesystem`](crate::kernel::filesystem::Filesystem), and not even to all of its files: each
//! handle learns separately, and only starts from what was learnt about its filesystem.

use std::fmt;

use io_uring::IoUring;
use once_cell::race::OnceBox;

use crate::sys::{self, Errno};

/// The result of a test for a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// The capability was tried and works.
    Yes,
    /// The capability was tried and refused with this errno.
    No(i32),
}

impl Capability {
    /// Returns true if the capability works.
    pub fn is_yes(self) -> bool {
        self == Capability::Yes
    }

    /// Converts the error of a call on an invalid descriptor. Only EBADF shows that the call
    /// exists.
    fn from_probe(errno: Errno) -> Capability {
        if errno == Errno::BADF {
            Capability::Yes
        } else {
            Capability::No(errno.raw_os_error())
        }
    }

    /// Converts the result of a try.
    pub(crate) fn from_io(tried: std::io::Result<()>) -> Capability {
        tried.map_or_else(
            |e| Capability::No(e.raw_os_error().unwrap_or(libc::EIO)),
            |()| Capability::Yes,
        )
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capability::Yes => f.write_str("yes"),
            Capability::No(errno) => {
                let why = match Errno::from_raw_os_error(*errno) {
                    Errno::NOSYS => "the kernel does not have it, or a sandbox hides it",
                    Errno::PERM | Errno::ACCESS => "a sandbox or sysctl denies it",
                    Errno::OPNOTSUPP => "the filesystem or the kernel refuses it",
                    Errno::NOMEM => "not enough lockable memory (RLIMIT_MEMLOCK)",
                    Errno::MFILE | Errno::NFILE => "no free file descriptor (RLIMIT_NOFILE)",
                    _ => "refused",
                };
                write!(
                    f,
                    "no: {why} ({})",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
        }
    }
}

/// The system calls that this process may use. They are tested once, on first use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// preadv2(2) (Linux 4.6), which every cached read needs.
    pub preadv2: Capability,
    /// pwritev2(2) (Linux 4.6).
    pub pwritev2: Capability,
    /// cachestat(2) (Linux 6.5).
    pub cachestat: Capability,
    /// io_uring_setup(2) (Linux 5.1) with a ring of two entries.
    pub io_uring: Capability,
}

impl Kernel {
    /// The capabilities of this process's kernel and sandbox.
    ///
    /// ```
    /// let kernel = nowait::capability::Kernel::get();
    /// println!("cachestat: {}", kernel.cachestat);
    /// ```
    pub fn get() -> &'static Kernel {
        static KERNEL: OnceBox<Kernel> = OnceBox::new();
        KERNEL.get_or_init(|| Box::new(Kernel::probe()))
    }

    /// Tests again, without storing the result. For programs that have just entered a sandbox.
    pub fn probe() -> Kernel {
        Kernel {
            preadv2: Capability::from_probe(sys::rw::probe_preadv2()),
            pwritev2: Capability::from_probe(sys::rw::probe_pwritev2()),
            cachestat: Capability::from_probe(sys::residency::probe_cachestat()),
            io_uring: Capability::from_io(sys::ring::build(&IoUring::builder(), 2).map(drop)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ebadf_proves_a_call() {
        assert!(Capability::from_probe(Errno::BADF).is_yes());
        assert!(!Capability::from_probe(Errno::PERM).is_yes());
        assert!(!Capability::from_probe(Errno::INVAL).is_yes());
    }
}
