//! Where in a tree a directory is.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::kernel::Learnt;
use crate::retry;
use crate::scan::{Directory, FLAGS};
use crate::sys::Errno;

/// A directory of a tree that is being walked.
#[derive(Debug)]
pub struct Place {
    path: Arc<Path>,
    /// Bytes of the path that are the root's.
    root: usize,
    parent: Option<Arc<Place>>,
    depth: usize,
    id: (u64, u64),
}

impl Place {
    /// The tree's root.
    pub(super) fn root(path: Arc<Path>, directory: &Directory) -> Place {
        Place {
            root: path.as_os_str().len(),
            path,
            parent: None,
            depth: 0,
            id: directory.id(),
        }
    }

    /// A directory below a place.
    pub(super) fn below(parent: &Arc<Place>, path: Arc<Path>, directory: &Directory) -> Place {
        Place {
            path,
            root: parent.root,
            parent: Some(parent.clone()),
            depth: parent.depth + 1,
            id: directory.id(),
        }
    }

    /// Its path: the root's as it was given, and the names below.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// How many directories it is below the root; the root's is 0.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The directory that it was found in; `None` for the root.
    pub fn parent(&self) -> Option<&Arc<Place>> {
        self.parent.as_ref()
    }

    /// Device and inode number (`st_dev` and `st_ino`).
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Whether a directory is this one or above it.
    pub(super) fn is_within(&self, directory: &Directory) -> bool {
        let mut place = Some(self);
        while let Some(at) = place {
            if at.id == directory.id() {
                return true;
            }
            place = at.parent.as_deref();
        }
        false
    }

    /// The path from the root to something below here.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> &'a [u8] {
        let bytes = &path.as_os_str().as_bytes()[self.root..];
        bytes.strip_prefix(b"/").unwrap_or(bytes)
    }
}

/// Bytes of a path that one call takes, with its NUL (`PATH_MAX`).
const LONGEST: usize = 4096;

/// Opens a directory by its path from the root, which may be longer than one call takes.
///
/// Unless links are to be followed, none is on the whole way, also not one that has been put in a
/// directory's place meanwhile.
pub(super) fn open(root: &Directory, path: &[u8], follow: bool) -> Result<OwnedFd, Errno> {
    let mut passed: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() >= LONGEST {
        let end = rest[..LONGEST]
            .iter()
            .rposition(|b| *b == b'/')
            .ok_or(Errno::NAMETOOLONG)?;
        let (piece, behind) = rest.split_at(end);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        passed = Some(match &passed {
            Some(at) => open_piece(at, piece, flags, follow)?,
            None => open_piece(root, piece, flags, follow)?,
        });
        rest = &behind[1..];
    }
    match &passed {
        Some(at) => open_piece(at, rest, FLAGS, follow),
        None => open_piece(root, rest, FLAGS, follow),
    }
}

/// Whether openat2(2) (5.6) is to be had.
static RESOLVING: Learnt = Learnt::untried();

fn open_piece(
    at: impl std::os::fd::AsFd,
    path: &[u8],
    flags: OFlags,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let mut bytes = path.to_vec();
    bytes.push(0);
    let path = CStr::from_bytes_with_nul(&bytes).map_err(|_| Errno::INVAL)?;
    let nofollow = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let mut left = retry::MOST;
    loop {
        left -= 1;
        let opened = if follow || RESOLVING.is_refused() {
            rustix::fs::openat(&at, path, flags | nofollow, Mode::empty())
        } else {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            rustix::fs::openat2(&at, path, flags | nofollow, Mode::empty(), resolve)
        };
        match opened {
            Err(Errno::INTR) if left > 0 => {}
            // A directory on the way is being renamed.
            Err(Errno::AGAIN) if !follow && left > 0 => {}
            Err(Errno::NOSYS | Errno::PERM)
                if !follow && !RESOLVING.is_refused() && !RESOLVING.works() =>
            {
                RESOLVING.refused();
            }
            other => {
                if other.is_ok() && !follow {
                    RESOLVING.worked();
                }
                return other;
            }
        }
    }
}
