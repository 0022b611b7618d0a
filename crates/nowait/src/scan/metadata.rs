//! Metadata: statx(2) and extended attributes of the entries of one batch.
//!
//! All queries are relative to the open directory, by name. No path is built, and renaming the
//! directory has no effect. For extended attributes this needs listxattrat(2) (Linux 6.13). On
//! older kernels the name is appended to `/proc/thread-self/fd/N`. This needs no privilege, but a
//! mounted /proc. (Opening each file for the query would need permission to read it, and does not
//! work for symbolic links and devices.)

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

use crate::metadata::{Metadata, StatxMask};
use rustix::fs::{AtFlags, StatxFlags};

use super::directory::Directory;
use super::entry::{Attributes, EntryTable};
use crate::kernel::support::SupportCell;
use crate::sys::retry;
use crate::sys::{Errno, xattr};

/// The extended attributes that a scan reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Xattrs {
    /// No attributes.
    #[default]
    None,
    /// The names: listxattr(2).
    Names,
    /// The names and values: one getxattr(2) for each name.
    Values,
}

/// The metadata that a scan asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) fields: Option<StatxMask>,
    pub(crate) follow: bool,
    pub(crate) dont_sync: bool,
    pub(crate) xattrs: Xattrs,
}

impl Query {
    /// Returns true if only names are needed.
    pub(crate) fn is_none(&self) -> bool {
        self.fields.is_none() && self.xattrs == Xattrs::None
    }

    fn flags(&self) -> AtFlags {
        let mut flags = AtFlags::NO_AUTOMOUNT;
        flags.set(AtFlags::SYMLINK_NOFOLLOW, !self.follow);
        if self.dont_sync {
            flags |= AtFlags::STATX_DONT_SYNC;
        }
        flags
    }

    /// Queries the rows that have not been queried. Stops early at the time `until`, or if the scan
    /// was cancelled.
    pub(super) fn run(
        &self,
        directory: &Directory,
        rows: &mut EntryTable,
        until: Option<Instant>,
        over: impl Fn() -> bool,
    ) {
        let flags = self.flags();
        let mut buffer = Vec::new();
        while rows.queried < rows.len() && !over() {
            if self.xattrs != Xattrs::None {
                self.query_xattrs(directory, rows, &mut buffer);
            }
            match self.fields {
                Some(fields) => {
                    let name = rows.name(rows.queried);
                    let ask = || {
                        rustix::fs::statx(
                            directory,
                            name,
                            flags,
                            StatxFlags::from_bits_retain(fields.bits()),
                        )
                    };
                    let stat = retry::interrupted(ask);
                    rows.add_metadata(stat.map(Metadata::new));
                }
                None => rows.queried += 1,
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
    }

    fn query_xattrs(&self, directory: &Directory, rows: &mut EntryTable, buffer: &mut Vec<u8>) {
        let name = rows.name(rows.queried).to_owned();
        let found = rows.attributes();
        let start = found.open();
        let outcome = self.xattrs_of(directory, &name, found, buffer);
        found.close(start, outcome);
    }

    fn xattrs_of(
        &self,
        directory: &Directory,
        name: &CStr,
        found: &mut Attributes,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let directory = directory.as_fd();
        grow_until_it_fits(buffer, |buffer| {
            with_fallback(|naming| list(naming, directory, name, self.follow, buffer))
        })?;
        if self.xattrs == Xattrs::Names {
            for attribute in buffer.split_inclusive(|b| *b == 0) {
                found.push(attribute.strip_suffix(b"\0").unwrap_or(attribute), None);
            }
            return Ok(());
        }
        let names = std::mem::take(buffer);
        for attribute in names.split_inclusive(|b| *b == 0) {
            let Ok(attribute) = CStr::from_bytes_with_nul(attribute) else {
                continue;
            };
            let value = grow_until_it_fits(buffer, |buffer| {
                with_fallback(|naming| get(naming, directory, name, attribute, self.follow, buffer))
            });
            match value {
                Ok(()) => found.push(attribute.to_bytes(), Some(buffer)),
                // The attribute was removed, or may not be read (`trusted.*`, ACLs). Its name is
                // known.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {
                    found.push(attribute.to_bytes(), None);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// The buffer size that most results fit.
const BUFFER_SIZE: usize = 256;
/// The buffer size that every result fits: a value and a list of names are at most 64 KiB
/// (xattr(7)). It limits the memory that a broken filesystem can demand.
const MAX_BUFFER_SIZE: usize = 128 << 10;

/// Repeats a query with a larger buffer until the result fits. The size can change between two
/// queries.
fn grow_until_it_fits(
    buffer: &mut Vec<u8>,
    ask: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    buffer.resize(buffer.capacity().max(BUFFER_SIZE), 0);
    loop {
        match retry::interrupted(|| ask(buffer)) {
            Ok(n) => {
                buffer.truncate(n);
                return Ok(());
            }
            Err(Errno::RANGE) if buffer.len() < MAX_BUFFER_SIZE => {
                let n = ask(&mut [])?;
                buffer.resize(n.max(2 * buffer.len()), 0);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// True if the calls relative to a directory work.
static RELATIVE: SupportCell = SupportCell::untried();

/// Queries relative to a directory if that works, otherwise by a path through /proc.
fn with_fallback(mut ask: impl FnMut(Naming) -> Result<usize, Errno>) -> Result<usize, Errno> {
    if !RELATIVE.is_refused() {
        match ask(Naming::Relative) {
            // A sandbox may return EPERM for an unknown call, and so may a file. The call by path
            // decides.
            Err(Errno::NOSYS) => RELATIVE.refused(),
            Err(Errno::PERM) if !RELATIVE.works() => RELATIVE.refused(),
            answer => {
                if answer.is_ok() {
                    RELATIVE.worked();
                }
                return answer;
            }
        }
    }
    ask(Naming::ProcPath)
}

/// The way in which a file in an open directory is named in a system call.
#[derive(Clone, Copy)]
enum Naming {
    Relative,
    ProcPath,
}

fn list(
    naming: Naming,
    directory: BorrowedFd<'_>,
    name: &CStr,
    follow: bool,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let path = || proc_path(directory, name);
    match naming {
        Naming::Relative => xattr::listxattrat(directory, name, follow, buffer),
        Naming::ProcPath if follow => rustix::fs::listxattr(path(), buffer),
        Naming::ProcPath => rustix::fs::llistxattr(path(), buffer),
    }
}

fn get(
    naming: Naming,
    directory: BorrowedFd<'_>,
    name: &CStr,
    attribute: &CStr,
    follow: bool,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let path = || proc_path(directory, name);
    match naming {
        Naming::Relative => xattr::getxattrat(directory, name, attribute, follow, buffer),
        Naming::ProcPath if follow => rustix::fs::getxattr(path(), attribute, buffer),
        Naming::ProcPath => rustix::fs::lgetxattr(path(), attribute, buffer),
    }
}

/// A path to the entry that is valid even if the directory is moved.
fn proc_path(directory: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    let mut path = format!("/proc/thread-self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares both ways if the kernel has both. A kernel without the calls has only one.
    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no extended attributes")]
    fn both_ways_of_naming_an_entry_say_the_same() {
        // Beside the test program: the filesystem for temporary files may have no attributes.
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&path, "user.key", b"value", flags) {
            // tmpfs and ramfs before 6.6.
            Err(Errno::OPNOTSUPP) => {
                return slowdisk::skip_or_fail("the program lies where files have no attributes");
            }
            set => set.unwrap(),
        }
        std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
        let open = Directory::blocking_open(dir.path()).unwrap();
        let ask = |naming, name: &CStr, follow| {
            let mut buffer = vec![0; 100];
            let names = list(naming, open.as_fd(), name, follow, &mut buffer);
            let names = names.map(|n| buffer[..n].to_vec());
            let value = get(naming, open.as_fd(), name, c"user.key", follow, &mut buffer);
            (names, value.map(|n| buffer[..n].to_vec()))
        };
        let proc_path = ask(Naming::ProcPath, c"file", false);
        assert_eq!(proc_path.1.as_deref(), Ok(&b"value"[..]));
        assert!(ask(Naming::ProcPath, c"link", false).1.is_err());
        let relative = ask(Naming::Relative, c"file", false);
        if relative.0 == Err(Errno::NOSYS) {
            return;
        }
        assert_eq!(relative, proc_path);
        for name in [c"file", c"link", c"none"] {
            for follow in [false, true] {
                let both =
                    [Naming::Relative, Naming::ProcPath].map(|naming| ask(naming, name, follow));
                assert_eq!(both[0], both[1], "{name:?}");
            }
        }
    }
}
