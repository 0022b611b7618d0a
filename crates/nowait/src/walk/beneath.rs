//! Opening by a path below an open directory, without following symbolic links.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::error::{Error, Result};
use crate::kernel::support::SupportCell;
use crate::sys::Errno;
use crate::sys::retry;

/// Opens `path`, which is relative to `directory`, with open(2)'s `flags`. No symbolic link is
/// followed, neither as the last component nor before it. If a directory was replaced by a link
/// after a walk listed it, opening fails. The path may be longer than `PATH_MAX`.
///
/// It uses openat2(2) with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. If that call is missing
/// (before Linux 5.6) or denied, each component is opened separately with `O_NOFOLLOW`.
///
/// ```
/// use nowait::walk;
/// use rustix::fs::OFlags;
/// let source = std::fs::File::open("src")?;
/// let file = walk::open_beneath(&source, "walk/beneath.rs", OFlags::RDONLY)?;
/// assert!(std::fs::File::from(file).metadata()?.is_file());
/// assert!(walk::open_beneath(&source, "../Cargo.toml", OFlags::RDONLY).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of open(2): ELOOP or ENOTDIR if a component is a link. EXDEV if the path is absolute
/// or has a component `..`.
pub fn open_beneath(
    directory: impl AsFd,
    path: impl AsRef<Path>,
    flags: OFlags,
) -> Result<OwnedFd> {
    let path = path.as_ref();
    let bytes = path.as_os_str().as_bytes();
    beneath(directory.as_fd(), bytes, flags)
        .map_err(|errno| Error::os("open", errno).on(Some(&path.into())))
}

/// True if openat2(2) (Linux 5.6) works.
static RESOLVING: SupportCell = SupportCell::untried();

/// [`open_beneath`] with an errno.
pub(super) fn beneath(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.starts_with(b"/") || path.split(|b| *b == b'/').any(|name| name == b"..") {
        return Err(Errno::XDEV);
    }
    if RESOLVING.is_refused() {
        return name_by_name(at, path, flags);
    }
    let opened = in_pieces(at, path, flags, resolve);
    match opened {
        // The file may be refused, and not the call.
        Err(Errno::NOSYS | Errno::PERM) if !RESOLVING.works() => {
            let opened = name_by_name(at, path, flags);
            if opened.is_ok() {
                RESOLVING.refused();
            }
            opened
        }
        _ => {
            if opened.is_ok() {
                RESOLVING.worked();
            }
            opened
        }
    }
}

fn resolve(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    retry::interrupted(|| {
        let opened = rustix::fs::openat2(at, &path, flags, Mode::empty(), how);
        // EAGAIN: a directory of the path is being renamed.
        opened.map_err(|e| if e == Errno::AGAIN { Errno::INTR } else { e })
    })
}

fn name_by_name(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let names = path.split(|b| *b == b'/');
    let mut names = names.filter(|name| !matches!(*name, b"" | b".")).peekable();
    let mut passed: Option<OwnedFd> = None;
    let last = match path.last() {
        None => return Err(Errno::NOENT),
        Some(b'/') => flags | OFlags::DIRECTORY,
        Some(_) => flags,
    };
    let mut name = names.next().unwrap_or(b".");
    loop {
        let at = passed.as_ref().map_or(at, AsFd::as_fd);
        let Some(next) = names.next() else {
            return open(at, name, last);
        };
        passed = Some(open(at, name, THROUGH | OFlags::NOFOLLOW)?);
        name = next;
    }
}

/// open(2), repeated after EINTR.
fn open(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    retry::interrupted(|| rustix::fs::openat(at, &path, flags, Mode::empty()))
}

/// Opens by a path that may be longer than one call accepts, following links.
pub(super) fn following(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    in_pieces(at, path, flags, open)
}

/// Opens the directory this many levels above `at`, without reading it.
pub(super) fn ascending(at: BorrowedFd<'_>, levels: usize) -> Result<OwnedFd, Errno> {
    in_pieces(
        at,
        &vec![".."; levels].join("/").into_bytes(),
        THROUGH,
        open,
    )
}

/// The flags for opening a directory only as the start of a further open.
const THROUGH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The bytes of a path that one call accepts, with its NUL (`PATH_MAX`).
const LONGEST: usize = 4096;

/// Opens with as many calls as the path's length needs.
fn in_pieces(
    at: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    open: impl Fn(BorrowedFd<'_>, &[u8], OFlags) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    let mut passed: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let at = passed.as_ref().map_or(at, AsFd::as_fd);
        if rest.len() < LONGEST {
            return open(at, rest, flags);
        }
        let slash = rest[..LONGEST].iter().rposition(|b| *b == b'/');
        let end = slash.ok_or(Errno::NAMETOOLONG)?;
        let through = open(at, &rest[..end], THROUGH | flags & OFlags::NOFOLLOW)?;
        rest = &rest[end + 1..];
        passed = Some(through);
    }
}
