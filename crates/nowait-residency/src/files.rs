//! Files at paths, one after the other.
//!
//! ```text
//!  statx(2) of the path: a regular file? under lease? ─► open(2) ─► statx(2) of the descriptor: is its mount plain?
//!                                                                   yes: cachestat(2) of the whole file
//!                                                                   no:  as any other file
//! ```
//! A mount is plain if cachestat(2) has answered for a file on it. Another file may get the path between two calls:
//! the size, the type and the mount are those of the descriptor.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, fstat, fstatfs, makedev, open, statx,
};

use crate::answer::{Answer, Reason, Source};
use crate::device::is_that_of_stat;
use crate::error::{Error, Result};
use crate::leases::Leases;
use crate::probe::{Probe, Residency};
use crate::sys::Errno;
use crate::sys::page_cache::{Cachestat, cachestat};

const NAME: &str = "residency_of_files";

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): this number of a mount is not used again.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The [`residency`](crate::residency) of whole files at paths, in their order. Symbolic links are
/// followed. A file that is not regular is not opened, unless it gets the path of a regular one
/// between two calls. A file costs five system calls if cachestat(2) answers for its filesystem
/// (Linux 6.8; before, and for other files, it costs as many as a [`Probe`]).
///
/// No lease of another process is broken (fcntl(2), `F_SETLEASE`), as far as /proc/locks lists it:
/// a file with a lease for writing is asked by its holder's descriptor, which needs the rights of
/// ptrace(2), or is [unknown](Reason::Leased).
///
/// # Errors
/// The errors of open(2) and statx(2), for each file.
///
/// ```
/// use nowait_residency::{Answer, residency_of_files};
/// let paths = ["Cargo.toml", "src/lib.rs"];
/// for (path, answer) in paths.iter().zip(residency_of_files(&paths)) {
///     match answer? {
///         Answer::Known { value, source } => {
///             println!("{path}: {} of {} pages ({source})", value.cached, value.pages);
///         }
///         Answer::Unknown(reason) => println!("{path}: {reason}"),
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn residency_of_files<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
) -> impl Iterator<Item = Result<Answer<Residency>>> {
    let mut files = Files {
        leases: Leases::now(),
        plain: HashSet::new(),
    };
    paths.into_iter().map(move |path| {
        let path = path.as_ref();
        let asked = files.ask(path);
        asked.map_err(|errno| Error::os(NAME, errno).on(Some(&Arc::from(path))))
    })
}

/// Facts that are remembered from one file to the next.
struct Files {
    leases: Leases,
    /// The mounts on which cachestat(2) has answered.
    plain: HashSet<u64>,
}

impl Files {
    fn ask(&mut self, path: &Path) -> Result<Answer<Residency>, Errno> {
        let fields = StatxFlags::TYPE | StatxFlags::INO;
        let named = statx(CWD, path, AtFlags::empty(), fields)?;
        if !is_regular(&named) {
            return Ok(Answer::Unknown(Reason::NotAFile));
        }
        let opened = match self.leases.has(id(&named)) {
            true => self.open_leased(path)?,
            false => open_to_read(path)?,
        };
        let Some(file) = opened else {
            return Ok(Answer::Unknown(Reason::Leased));
        };
        let fields = StatxFlags::TYPE | StatxFlags::SIZE | MNT_ID_UNIQUE;
        let stat = statx(&file, c"", AtFlags::EMPTY_PATH, fields)?;
        let mount = (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id);
        let is_plain = mount.is_some_and(|mount| self.plain.contains(&mount));
        if is_plain
            && is_regular(&stat)
            && let Some(value) = counted(&file, stat.stx_size)
        {
            let source = Source::Cachestat;
            return Ok(Answer::Known { value, source });
        }
        self.ask_opened(&file, mount)
    }

    /// A duplicate of the descriptor of the process that holds a lease for writing. `None` if it may
    /// not be duplicated. A file that only has the inode number of one with a lease is opened.
    fn open_leased(&self, path: &Path) -> Result<Option<OwnedFd>, Errno> {
        let held = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&held)?;
        let is_distinct = || fstatfs(&held).is_ok_and(|it| is_that_of_stat(&it));
        match self.leases.lease_of(&stat, is_distinct) {
            Some(lease) if !lease.is_for_reading => Ok(lease.descriptor(&stat).ok()),
            _ => open_to_read(path),
        }
    }

    /// Asks as for a single file.
    fn ask_opened(
        &mut self,
        file: &OwnedFd,
        mount: Option<u64>,
    ) -> Result<Answer<Residency>, Errno> {
        let failed = |e: Error| Errno::from_raw_os_error(e.errno().unwrap_or(libc::EINVAL));
        let probe = Probe::new(file).map_err(failed)?;
        let answer = probe.residency(0..u64::MAX).map_err(failed)?;
        if probe.source() == Ok(Source::Cachestat) {
            self.plain.extend(mount);
        }
        Ok(answer)
    }
}

fn is_regular(stat: &Statx) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile
}

/// The device and the inode number of a file.
fn id(stat: &Statx) -> (u64, u64) {
    (
        makedev(stat.stx_dev_major, stat.stx_dev_minor),
        stat.stx_ino,
    )
}

/// Opens a file for reading. `None` if that would wait for a lease, which another process has taken
/// since the list was read.
fn open_to_read(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()) {
        Err(Errno::AGAIN) => Ok(None),
        opened => opened.map(Some),
    }
}

/// The pages of a whole file by one call. `None` if the kernel does not count them.
fn counted(file: &OwnedFd, size: u64) -> Option<Residency> {
    let counts = match size {
        // The kernel interprets a length of 0 as "to the end of the file".
        0 => Cachestat::default(),
        size => cachestat(file.as_fd(), 0, size).ok()?,
    };
    Some(Residency::counted(crate::pages(0, size), &counts))
}
