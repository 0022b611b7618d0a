//! Opens the files of a tree relative to their directories, of which a few are kept open.
//!
//! ```text
//!  root ─ a ─ b ─ … ─ m ─ n ─ o ─ p ─ q        kept: the root, m, o, p, q
//!                     │               └─ file: relative to q
//!                     └─ file in n: relative to m, if that is not many levels above, or else
//!                                   ".." from o leads to n, if that is the same directory
//! ```
//! Without them each file would be opened by its path from the root, and the time for a chain of
//! directories would grow with the square of its length.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::OFlags;

use super::beneath::{ascending, beneath, following};
use crate::error::{Error, Result};
use crate::scan::{Dir, Directory};
use crate::sys::Errno;
use crate::sys::process::Owner;
use crate::sys::retry;
use crate::sys::sync::{Mutex, atomic::AtomicUsize, lock};

/// The maximum number of directories that are kept open, for each thread that opens and in all.
pub(super) const KEPT_PER_THREAD: usize = 8;
pub(super) const KEPT: usize = 64;
/// The number of levels for which one open by a path costs no more than other ways.
const NEAR: usize = 16;

/// Opens the files of a tree by their directory and name. It keeps up to 16 directories open, so
/// that files in directories thousands of levels deep are opened without resolving the whole path
/// each time.
///
/// No symbolic link is followed. If a directory was replaced by a link after a walk listed it,
/// opening fails. If a directory was moved while it is kept open, its files are still opened.
///
/// ```
/// use nowait::walk::{Opener, Walk};
/// use rustix::fs::OFlags;
/// let opener = Opener::new(std::fs::File::open("src")?)?;
/// for found in Walk::blocking_open("src")? {
///     let found = found?;
///     let file = opener.open(found.dir(), found.file_name(), OFlags::PATH)?;
///     assert_eq!(std::fs::File::from(file).metadata()?.is_dir(), found.file_type().is_dir());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Opener {
    root: Arc<Directory>,
    follows: bool,
    /// The most recently used one is the last.
    kept: Mutex<Vec<Kept>>,
    /// The maximum number of directories that are kept.
    limit: AtomicUsize,
    /// In a forked child, another thread of the parent may hold the lock for ever.
    owner: Owner,
}

/// A directory that is kept open.
struct Kept {
    dir: Arc<Dir>,
    directory: Arc<Directory>,
}

/// The kept directory that is the nearest one to another directory.
struct Nearest {
    /// An ancestor, and the number of levels between the two.
    above: (Arc<Directory>, usize),
    /// A directory below that is nearer, and the number of levels between the two.
    below: Option<(Arc<Directory>, usize)>,
}

impl Opener {
    /// Opens files of walks of this directory.
    ///
    /// # Errors
    /// ENOTDIR if it is not a directory; the errors of fstat(2) and fstatfs(2).
    pub fn new(root: impl Into<OwnedFd>) -> Result<Opener> {
        let root = Directory::new(root.into(), None, None)?;
        let opener = Opener::of(Arc::new(root), false);
        opener.set_limit(2 * KEPT_PER_THREAD);
        Ok(opener)
    }

    /// The opener of a walk. It keeps no directory before its limit is set.
    pub(super) fn of(root: Arc<Directory>, follows: bool) -> Opener {
        Opener {
            root,
            follows,
            kept: Mutex::new(Vec::new()),
            limit: AtomicUsize::new(0),
            owner: Owner::current(),
        }
    }

    /// Opens the file `name` in the directory `dir` of a walk of the same root, with open(2)'s
    /// `flags`. If the process has no free descriptor, the directories that are kept open are
    /// closed.
    ///
    /// # Errors
    /// The errors of open(2): ELOOP or ENOTDIR for a symbolic link. ENOENT also if the file's
    /// directory was removed.
    pub fn open(
        &self,
        dir: &Arc<Dir>,
        name: impl AsRef<std::ffi::OsStr>,
        flags: OFlags,
    ) -> Result<OwnedFd> {
        let name = name.as_ref().as_bytes();
        let opened = self.open_in(dir, name, flags);
        opened.map_err(|errno| Error::os("open", errno).on(Some(&dir.path_of(name).into())))
    }

    pub(super) fn root(&self) -> &Directory {
        &self.root
    }

    /// [`open`](Opener::open) with an errno.
    pub(super) fn open_in(
        &self,
        dir: &Arc<Dir>,
        name: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        if name.contains(&b'/') {
            return Err(Errno::XDEV);
        }
        match self.try_open_in(dir, name, flags) {
            Err(errno) if retry::is_shortage(errno) && self.trim(0) > 0 => {
                self.try_open_in(dir, name, flags)
            }
            opened => opened,
        }
    }

    fn try_open_in(&self, dir: &Arc<Dir>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let Nearest { above, below } = self.nearest(dir);
        let (ancestor, levels) = above;
        if levels <= NEAR || self.limit.load(Relaxed) == 0 {
            return self.open_below(&ancestor, &path_below(dir, levels, name), flags);
        }
        let reached = match below.and_then(|(from, levels)| self.ascend(&from, levels, dir)) {
            Some(reached) => reached,
            None => {
                let mut path = path_below(dir, levels, b"");
                // The slash before the empty name.
                path.pop();
                let through = OFlags::PATH | OFlags::DIRECTORY;
                let opened = self.open_below(&ancestor, &path, through)?;
                Directory::new(opened, None, Some(&self.root))
                    .map_err(|error| Errno::from_raw_os_error(error.errno().unwrap_or(libc::EIO)))?
            }
        };
        let reached = Arc::new(reached);
        self.keep(dir, &reached);
        self.open_below(&reached, name, flags)
    }

    fn open_below(&self, at: &Directory, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.follows {
            true => following(at.as_fd(), path, flags | OFlags::CLOEXEC),
            false => beneath(at.as_fd(), path, flags),
        }
    }

    /// Goes up from an open directory to its ancestor `dir`. Returns `None` if the way leads
    /// elsewhere: a directory was moved, or it was entered through a link.
    fn ascend(&self, from: &Directory, levels: usize, dir: &Dir) -> Option<Directory> {
        let opened = ascending(from.as_fd(), levels).ok()?;
        let reached = Directory::new(opened, None, Some(&self.root)).ok()?;
        (reached.id() == dir.id()).then_some(reached)
    }

    /// The kept directories that are nearest to a directory.
    fn nearest(&self, dir: &Arc<Dir>) -> Nearest {
        let to_root = (self.root.clone(), dir.depth());
        let root_only = Nearest {
            above: to_root,
            below: None,
        };
        if !self.owner.is_here() {
            return root_only;
        }
        let mut kept = lock(&self.kept);
        if kept.is_empty() {
            return root_only;
        }
        if let Some((at, levels)) = nearest_above(&kept, dir, NEAR) {
            let used = kept.remove(at);
            let above = (used.directory.clone(), levels);
            kept.push(used);
            return Nearest { above, below: None };
        }
        if dir.depth() <= NEAR {
            return root_only;
        }
        let below = nearest_below(&kept, dir);
        let most = below.map_or(dir.depth(), |(_, levels)| levels);
        let above = nearest_above(&kept, dir, most);
        let open = |(at, levels): (usize, usize)| (kept[at].directory.clone(), levels);
        match above {
            Some(above) => Nearest {
                above: open(above),
                below: None,
            },
            None => Nearest {
                below: below.map(open).filter(|(_, levels)| *levels < dir.depth()),
                ..root_only
            },
        }
    }

    /// Keeps a directory open, as far as the limit permits. Those that were not used for the longest
    /// time are closed instead.
    pub(super) fn keep(&self, dir: &Arc<Dir>, directory: &Arc<Directory>) {
        let limit = self.limit.load(Relaxed);
        if limit == 0 || dir.depth() == 0 || !self.owner.is_here() {
            return;
        }
        let mut kept = lock(&self.kept);
        let known = kept.iter().position(|kept| Arc::ptr_eq(&kept.dir, dir));
        let mut closed = Vec::new();
        closed.extend(known.map(|at| kept.remove(at)));
        closed.extend(remove_oldest(&mut kept, limit - 1));
        if kept.len() < limit {
            kept.push(Kept {
                dir: dir.clone(),
                directory: directory.clone(),
            });
        }
        // Files are closed without the lock.
        drop(kept);
        drop(closed);
    }

    /// Closes directories until at most `most` are kept, or those that are left are in use. Returns
    /// the number of those that were closed.
    fn trim(&self, most: usize) -> usize {
        if !self.owner.is_here() {
            return 0;
        }
        let closed = remove_oldest(&mut lock(&self.kept), most);
        closed.len()
    }

    /// Sets the maximum number of directories that are kept, and closes others.
    pub(super) fn set_limit(&self, limit: usize) {
        if self.limit.swap(limit, Relaxed) > limit {
            self.trim(limit);
        }
    }

    /// The number of directories that are kept open.
    pub(super) fn kept(&self) -> usize {
        match self.owner.is_here() {
            true => lock(&self.kept).len(),
            false => 0,
        }
    }
}

impl Kept {
    /// Something else uses the open directory.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.directory) > 1
    }
}

/// Removes the directories that were not used for the longest time until `most` are left. Those that
/// are in use stay.
fn remove_oldest(kept: &mut Vec<Kept>, most: usize) -> Vec<Kept> {
    let mut excess = kept.len().saturating_sub(most);
    let is_removed = |kept: &mut Kept| {
        let is_removed = excess > 0 && !kept.is_used();
        excess -= usize::from(is_removed);
        is_removed
    };
    kept.extract_if(.., is_removed).collect()
}

/// The index of the nearest one of the kept directories that is `dir` or an ancestor of it, at most
/// `most` levels above, and the number of levels.
fn nearest_above(kept: &[Kept], dir: &Arc<Dir>, most: usize) -> Option<(usize, usize)> {
    let ancestors = std::iter::successors(Some(dir), |dir| dir.parent());
    let mut ancestors = ancestors.take(most.saturating_add(1)).enumerate();
    ancestors.find_map(|(levels, ancestor)| {
        let at = kept
            .iter()
            .position(|kept| Arc::ptr_eq(&kept.dir, ancestor));
        at.map(|at| (at, levels))
    })
}

/// The index of the nearest one of the kept directories that are below `dir`, and the number of
/// levels.
fn nearest_below(kept: &[Kept], dir: &Arc<Dir>) -> Option<(usize, usize)> {
    let below = |(at, kept): (usize, &Kept)| {
        let levels = kept.dir.depth().checked_sub(dir.depth())?;
        (levels > 0).then_some((levels, at))
    };
    let mut below: Vec<_> = kept.iter().enumerate().filter_map(below).collect();
    below.sort_unstable();
    let is_below = |(_, at): &&(usize, usize)| {
        let ancestor = kept[*at].dir.ancestor(dir.depth());
        ancestor.is_some_and(|ancestor| Arc::ptr_eq(ancestor, dir))
    };
    below
        .iter()
        .find(is_below)
        .map(|(levels, at)| (*at, *levels))
}

/// The path of the file `name` in `dir`, relative to the ancestor this many levels above.
fn path_below(dir: &Arc<Dir>, levels: usize, name: &[u8]) -> Vec<u8> {
    let ancestors = std::iter::successors(Some(dir), |dir| dir.parent());
    let mut names: Vec<&[u8]> = vec![name];
    names.extend(ancestors.take(levels).map(|dir| dir.name().as_bytes()));
    names.reverse();
    names.join(&b'/')
}

/// The root.
impl AsFd for Opener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}
