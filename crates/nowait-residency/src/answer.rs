//! Answers about residency: a known value with its source, or unknown with the reason.

use std::fmt;

/// An answer about residency. A value is reported only if it was counted.
///
/// ```
/// use nowait_residency::{Answer, residency};
/// let file = std::fs::File::open("Cargo.toml")?;
/// match residency(&file, 0..u64::MAX)? {
///     Answer::Known { value, source } => println!("{} pages are cached ({source})", value.cached),
///     Answer::Unknown(reason) => println!("unknown: {reason}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The value was counted.
    Known {
        /// The value that was asked for.
        value: T,
        /// The source of the value.
        source: Source,
    },
    /// No source is correct for this file, or none is available.
    Unknown(Reason),
}

impl<T> Answer<T> {
    /// The value, if it is known.
    pub fn known(self) -> Option<T> {
        match self {
            Answer::Known { value, .. } => Some(value),
            Answer::Unknown(_) => None,
        }
    }

    /// Applies `from` to the value, if it is known.
    pub fn map<U>(self, from: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Answer::Known { value, source } => Answer::Known {
                value: from(value),
                source,
            },
            Answer::Unknown(reason) => Answer::Unknown(reason),
        }
    }
}

/// The source of an answer about residency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// cachestat(2) (Linux 6.5). It counts a page as soon as the read of the page begins. If a page
    /// map is fragmented, mincore(2) answers for the parts that would take too many calls.
    Cachestat,
    /// mincore(2) on a mapping of the file, whose memory is never accessed. It counts a page when
    /// its data has arrived.
    Mincore,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Cachestat => "cachestat",
            Source::Mincore => "mincore",
        })
    }
}

/// The reason why residency is unknown. `Display` adds a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The descriptor refers to a directory, a pipe, a socket or a terminal. These have no pages.
    NotAFile,
    /// The caller neither owns the file nor may write it. For such a file cachestat fails with
    /// EPERM, and mincore reports every page as resident.
    NotOurs,
    /// cachestat is unavailable or wrong for this file, and the file is open for writing only and
    /// cannot be mapped.
    NotReadable,
    /// The file is on hugetlbfs. Its pages are always in memory, and neither call counts them.
    HugePages,
    /// cachestat is unavailable or wrong for this file, and mapping the file fails with this errno:
    /// ENODEV if its filesystem has no mappings, ENOMEM under a limit of address space.
    NoMapping(i32),
    /// The file is on overlayfs and is not open for writing, and opening it again fails with this
    /// errno: ENOENT if /proc is not mounted, EACCES if the caller may not read the file any more.
    /// An older descriptor may map another file than reads use.
    NotReopened(i32),
    /// Another process holds a lease for writing (fcntl(2), `F_SETLEASE`). Opening the file would
    /// break it, and the holder's descriptor may not be duplicated (pidfd_getfd(2)).
    Leased,
    /// The kernel asks a server about the file (NFS, FUSE, SMB and the like), which may take long or
    /// hang, and the thread must not wait.
    Served,
    /// Neither call is available: a sandbox or the kernel refuses mincore with this errno.
    NoCall(i32),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, errno) = match self {
            Reason::NotAFile => ("only regular files and block devices have pages", None),
            Reason::NotOurs => (
                "the kernel reports residency only to users who own the file or may write it; \
                 run as such a user, or open the file for writing",
                None,
            ),
            Reason::NotReadable => (
                "the file is open for writing only, and its residency is known only by mapping \
                 it; open it for reading",
                None,
            ),
            Reason::HugePages => (
                "files of hugetlbfs are always in memory, and the kernel does not count their \
                 pages",
                None,
            ),
            Reason::Leased => (
                "another process holds a lease, which opening the file would break; run with the \
                 rights of ptrace(2) over it, or wait until it has given the lease up",
                None,
            ),
            Reason::Served => (
                "the kernel asks a server about the file, which may hang; copy the file to a local \
                 filesystem",
                None,
            ),
            Reason::NoMapping(errno) => (
                "the residency of the file is known only by mapping it, and mapping failed; raise \
                 the limit of address space (ulimit -v) if there is one",
                Some(errno),
            ),
            Reason::NotReopened(errno) => (
                "the residency of a file on overlayfs is known only by opening it again, which \
                 failed; mount /proc, and do not give up the right to read the file",
                Some(errno),
            ),
            Reason::NoCall(errno) => (
                "cachestat(2) and mincore(2) are both missing or denied; allow one of them in the \
                 sandbox",
                Some(errno),
            ),
        };
        f.write_str(why)?;
        if let Some(&errno) = errno {
            write!(f, " ({})", std::io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}
