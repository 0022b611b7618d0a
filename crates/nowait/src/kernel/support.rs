//! Support for a system call or a flag: learnt by trying it, never from a version number.
//!
//! ENOSYS and EPERM apply to the process ([`Kernel`]). EOPNOTSUPP applies to a
//! [`Filesystem`](crate::kernel::filesystem::Filesystem), and not even to all of its files: each
//! handle stores its own result. Its initial value is that of the filesystem.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use io_uring::IoUring;
use once_cell::race::OnceBox;

use crate::sys::{self, Errno};

/// The result of trying a system call, a flag or a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Support {
    /// It was not tried.
    Untried,
    /// It was tried and works.
    Yes,
    /// It was tried and refused with this errno.
    No(i32),
}

impl Support {
    /// Returns true if it was tried and works.
    pub fn is_yes(self) -> bool {
        self == Support::Yes
    }

    /// Converts the error of a call on an invalid descriptor. Only EBADF shows that the call
    /// exists.
    fn from_probe(errno: Errno) -> Support {
        match errno {
            Errno::BADF => Support::Yes,
            _ => Support::No(errno.raw_os_error()),
        }
    }

    /// Converts the result of a try.
    pub(crate) fn from_io<T>(tried: &std::io::Result<T>) -> Support {
        match tried {
            Ok(_) => Support::Yes,
            Err(e) => Support::No(e.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = match *self {
            Support::Untried => return f.write_str("not tried"),
            Support::Yes => return f.write_str("yes"),
            Support::No(errno) => errno,
        };
        let why = match Errno::from_raw_os_error(errno) {
            Errno::NOSYS => "the kernel does not have it, or a sandbox hides it",
            Errno::PERM | Errno::ACCESS => "a sandbox or sysctl denies it",
            Errno::OPNOTSUPP => "the filesystem or the kernel refuses it",
            Errno::NOMEM => "not enough lockable memory (RLIMIT_MEMLOCK)",
            Errno::MFILE | Errno::NFILE => "no free file descriptor (RLIMIT_NOFILE)",
            Errno::NXIO => "the engine has no ring",
            _ => "refused",
        };
        let error = std::io::Error::from_raw_os_error(errno);
        write!(f, "no: {why} ({error})")
    }
}

/// The system calls that this process may use. They are tried once, on first use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// preadv2(2) (Linux 4.6), which every cached read needs.
    pub preadv2: Support,
    /// pwritev2(2) (Linux 4.6).
    pub pwritev2: Support,
    /// cachestat(2) (Linux 6.5).
    pub cachestat: Support,
    /// io_uring_setup(2) (Linux 5.1) with a ring of two entries.
    pub io_uring: Support,
}

impl Kernel {
    /// The support of this process's kernel and sandbox.
    ///
    /// ```
    /// let kernel = nowait::support::Kernel::get();
    /// println!("cachestat: {}", kernel.cachestat);
    /// ```
    pub fn get() -> &'static Kernel {
        static KERNEL: OnceBox<Kernel> = OnceBox::new();
        KERNEL.get_or_init(|| Box::new(Kernel::probe()))
    }

    /// Tries again, without storing the result. For programs that have just entered a sandbox.
    pub fn probe() -> Kernel {
        Kernel {
            preadv2: Support::from_probe(sys::rw::probe_preadv2()),
            pwritev2: Support::from_probe(sys::rw::probe_pwritev2()),
            cachestat: Support::from_probe(nowait_residency::sys::page_cache::probe_cachestat()),
            io_uring: Support::from_io(&sys::ring::build(&IoUring::builder(), 2)),
        }
    }
}

/// Support for one call or flag, which threads learn while they use it.
#[derive(Debug, Default)]
pub(crate) struct SupportCell(AtomicU8);

const UNTRIED: u8 = 0;
const WORKS: u8 = 1;
const REFUSED: u8 = 2;

impl SupportCell {
    /// Not tried yet.
    pub(crate) const fn untried() -> SupportCell {
        SupportCell(AtomicU8::new(UNTRIED))
    }

    /// The initial value for a file, from that of its filesystem. Only a refusal is adopted: a
    /// success elsewhere proves nothing here.
    pub(crate) fn like(other: &SupportCell) -> SupportCell {
        let start = if other.is_refused() { REFUSED } else { UNTRIED };
        SupportCell(AtomicU8::new(start))
    }

    /// Returns true if it was refused and has not worked since.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Relaxed) == REFUSED
    }

    /// Returns true if it is known to work.
    #[inline]
    pub(crate) fn works(&self) -> bool {
        self.0.load(Relaxed) == WORKS
    }

    /// Records a success. It loads first, because many threads call this and few change the value.
    pub(crate) fn worked(&self) {
        if !self.works() {
            self.0.store(WORKS, Relaxed);
        }
    }

    /// Records a refusal.
    pub(crate) fn refused(&self) {
        self.0.store(REFUSED, Relaxed);
    }

    /// Records a refusal by one file of a filesystem. It has no effect if another file's try has
    /// worked.
    pub(crate) fn refused_once(&self) {
        let _ = self.0.compare_exchange(UNTRIED, REFUSED, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ebadf_proves_a_call() {
        assert!(Support::from_probe(Errno::BADF).is_yes());
        assert!(!Support::from_probe(Errno::PERM).is_yes());
        assert!(!Support::from_probe(Errno::INVAL).is_yes());
    }

    #[test]
    fn one_refusal_does_not_condemn_what_has_worked() {
        let fs = SupportCell::default();
        fs.refused_once();
        assert!(fs.is_refused());
        fs.worked();
        fs.refused_once();
        assert!(fs.works());
    }
}
