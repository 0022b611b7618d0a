//! What an answer is: known, and by whom, or unknown, and why.

use std::fmt;

/// What the kernel would say about residency, and how we know. Never a guess.
///
/// ```
/// use nowait::residency::{Answer, residency};
/// let file = std::fs::File::open("Cargo.toml")?;
/// match residency(&file, 0..u64::MAX)? {
///     Answer::Known { value, source } => println!("{} pages are cached ({source})", value.cached),
///     Answer::Unknown(reason) => println!("unknown: {reason}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It was counted.
    Known {
        /// What was asked for.
        value: T,
        /// Who counted.
        source: Source,
    },
    /// Nobody that tells the truth of this file could be asked.
    Unknown(Reason),
}

impl<T> Answer<T> {
    /// The value, where it is known.
    pub fn known(self) -> Option<T> {
        match self {
            Answer::Known { value, .. } => Some(value),
            Answer::Unknown(_) => None,
        }
    }

    /// The same answer about something that follows from the value.
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

/// Who says which pages are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// cachestat(2) (Linux 6.5). It counts a page from the moment that its read begins. Where a
    /// page map is fragmented, mincore(2) fills in what would take too many calls.
    Cachestat,
    /// mincore(2) on a mapping of the file that nobody touches. It counts a page when its content
    /// has arrived.
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

/// Why residency is unknown. `Display` says what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It has no pages: a directory, a pipe, a socket, a terminal.
    NotAFile,
    /// It belongs to somebody else and may not be written. Of such a file cachestat says nothing
    /// (EPERM), and mincore calls every page resident.
    NotOurs,
    /// cachestat can't be believed or had, and a file that is open for writing only can't be mapped.
    NotReadable,
    /// hugetlbfs: its pages are always in memory, and neither call counts them.
    HugePages,
    /// cachestat can't be believed or had, and the file can't be mapped, by this errno: ENODEV
    /// where its filesystem has no mappings, ENOMEM under a limit of address space.
    NoMapping(i32),
    /// Neither call can be made: a sandbox or the kernel answers mincore with this errno.
    NoCall(i32),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, errno) = match self {
            Reason::NotAFile => (
                "it has no pages to ask for; name a regular file or a block device",
                None,
            ),
            Reason::NotOurs => (
                "the kernel tells only those who own the file or may write it; \
                 ask as such a user, or open it for writing",
                None,
            ),
            Reason::NotReadable => (
                "it is open for writing only, and here a file has to be mapped to be asked; \
                 open it for reading",
                None,
            ),
            Reason::HugePages => (
                "files of hugetlbfs are always in memory, and the kernel does not count their \
                 pages; there is no need to ask",
                None,
            ),
            Reason::NoMapping(errno) => (
                "here a file has to be mapped to be asked, and this one can't be; raise the limit \
                 of address space (ulimit -v) if there is one",
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
