//! What kernel, sandbox and filesystem allow, learnt by trying, never from a version number.
//!
//! What ENOSYS or EPERM denies holds for the process ([`Kernel`]). What EOPNOTSUPP denies holds
//! for a filesystem ([`Filesystem`]), and not even for each of its files: a handle learns for
//! itself and only starts from what its filesystem taught others.

mod filesystem;
mod filesystems;
mod learnt;
mod ring;

use std::fmt;

use io_uring::IoUring;
use once_cell::race::OnceBox;

pub use filesystem::Filesystem;
pub use ring::Ring;

#[cfg(fuzzing)]
pub(crate) use filesystem::source_of;
pub(crate) use filesystem::{FUSE, HUGETLBFS, OVERLAY};
pub(crate) use learnt::Learnt;

use crate::sys::{self, Errno};

/// Whether something works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// It was tried and works.
    Yes,
    /// It was tried and refused with this errno.
    No(i32),
}

impl Capability {
    /// Whether it works.
    pub fn is_yes(self) -> bool {
        self == Capability::Yes
    }

    /// From what a call said of a descriptor that can't exist: only EBADF proves the call.
    fn from_probe(errno: Errno) -> Capability {
        if errno == Errno::BADF {
            Capability::Yes
        } else {
            Capability::No(errno.raw_os_error())
        }
    }

    /// From what a try gave.
    fn from_io(tried: std::io::Result<()>) -> Capability {
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
                    Errno::NOSYS => "this kernel does not have it, or a sandbox hides it",
                    Errno::PERM | Errno::ACCESS => "a sandbox or sysctl denies it",
                    Errno::OPNOTSUPP => "this filesystem or kernel refuses it",
                    Errno::NOMEM => "not enough lockable memory (RLIMIT_MEMLOCK)",
                    Errno::MFILE | Errno::NFILE => "no file descriptor left (RLIMIT_NOFILE)",
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

/// What this process may call. Asked once, on first use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// preadv2(2) (4.6), and with it every cached read.
    pub preadv2: Capability,
    /// pwritev2(2) (4.6).
    pub pwritev2: Capability,
    /// cachestat(2) (6.5).
    pub cachestat: Capability,
    /// io_uring_setup(2) (5.1) with a ring of two entries.
    pub io_uring: Capability,
}

impl Kernel {
    /// What was learnt of this process's kernel and sandbox.
    ///
    /// ```
    /// let kernel = nowait::kernel::Kernel::get();
    /// println!("cachestat: {}", kernel.cachestat);
    /// ```
    pub fn get() -> &'static Kernel {
        static KERNEL: OnceBox<Kernel> = OnceBox::new();
        KERNEL.get_or_init(|| Box::new(Kernel::probe()))
    }

    /// Asks anew, without remembering: for a program that has just put on a sandbox.
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
