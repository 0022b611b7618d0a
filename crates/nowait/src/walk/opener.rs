//! Opens the files of a tree relative to their directories, of which a few are kept open.
//!
//! ```text
//!  root ─ a ─ b ─ … ─ m ─ n ─ o ─ p ─ q        kept: the root, m, o, p, q
//!                     │               └─ file: relative to q
//!                     └─ file in n: relative to m, if that is not many levels above, or else
//!                                   ".." from o leads to n, if that is the same directory
//! ```
//! The way up is used only if device and inode number are those of the expected directory. Otherwise
//! the file is opened by its path from the root.
//!
//! Without them each file would be opened by its path from the root, and the time for a chain of
//! directories would grow with the square of its length.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::OFlags;

use super::beneath::{ascending, beneath, following};
use crate::error::{Error, Result};
use crate::scan::{Dir, Directory, FLAGS};
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
    kept: Mutex<Vec<Recent>>,
    /// The maximum number of directories that are kept.
    limit: AtomicUsize,
    /// In a forked child, another thread of the parent may hold the lock for ever.
    owner: Owner,
}

/// A directory that an [`Opener`] has opened.
#[derive(Debug)]
pub struct OpenDir {
    dir: Arc<Dir>,
    directory: Arc<Directory>,
}

impl OpenDir {
    /// The directory, as the one that its files are opened in.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A directory that is kept open.
struct Recent {
    dir: Arc<Dir>,
    directory: Arc<Directory>,
}

/// The way to a directory from an open one.
struct Way {
    from: Arc<Directory>,
    /// The number of levels up, and the ancestor of both directories that is there.
    up: Option<(usize, Arc<Dir>)>,
    /// The number of levels down from there.
    down: usize,
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
    pub fn open(&self, dir: &Arc<Dir>, name: impl AsRef<OsStr>, flags: OFlags) -> Result<OwnedFd> {
        let name = name.as_ref().as_bytes();
        let opened = self.open_in(dir, name, flags);
        opened.map_err(|errno| Error::os("open", errno).on(Some(&dir.path_of(name).into())))
    }

    /// The root, as the directory of a walk that the program makes itself with
    /// [`enter`](Opener::enter). Paths begin with `path`, which is not resolved.
    ///
    /// ```
    /// use nowait::walk::Opener;
    /// let opener = Opener::new(std::fs::File::open("src")?)?;
    /// let root = opener.root_dir("src");
    /// let walk = opener.enter(&root, "walk", None)?;
    /// assert_eq!(&*walk.dir().path(), "src/walk");
    /// assert!(opener.enter(&root, "lib.rs", None).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn root_dir(&self, path: impl AsRef<Path>) -> Arc<Dir> {
        Arc::new(Dir::root_at(path.as_ref().into(), self.root.id()))
    }

    /// Opens the directory `name` in the directory `parent` of the same root for reading, and keeps
    /// it open, so that its files are opened relative to it. It is `known` if it is the same
    /// directory, by device and inode number.
    ///
    /// # Errors
    /// Those of [`open`](Opener::open). ENOTDIR if it is not a directory.
    pub fn enter(
        &self,
        parent: &Arc<Dir>,
        name: impl AsRef<OsStr>,
        known: Option<&Arc<Dir>>,
    ) -> Result<OpenDir> {
        let name = name.as_ref().as_bytes();
        let entered = self.open_in(parent, name, FLAGS).and_then(|opened| {
            let directory = self.convert(opened)?;
            let is_known = |known: &&Arc<Dir>| known.id() == directory.id();
            let dir = match known.filter(is_known) {
                Some(known) => known.clone(),
                None => Arc::new(Dir::below(parent, name, &directory)),
            };
            self.keep(&dir, &directory);
            Ok(OpenDir { dir, directory })
        });
        entered.map_err(|errno| Error::os("open", errno).on(Some(&parent.path_of(name).into())))
    }

    /// The open directory `dir`. It is opened by its path, and not for reading, if it is not kept
    /// open, and kept open then.
    ///
    /// # Errors
    /// Those of [`open`](Opener::open).
    pub fn open_dir(&self, dir: &Arc<Dir>) -> Result<OpenDir> {
        let opened = self.or_without_kept(|| {
            let (start, down) = self.start(dir);
            self.descend(start, dir, down)
        });
        let opened = opened.map(|directory| OpenDir {
            dir: dir.clone(),
            directory,
        });
        opened.map_err(|errno| Error::os("open", errno).on(Some(&dir.path())))
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
        self.or_without_kept(|| self.try_open_in(dir, name, flags))
    }

    /// Repeats an open that fails because of the directories that are kept open, without them.
    fn or_without_kept<T>(&self, open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match open() {
            // A server has removed a directory that is kept open.
            Err(errno)
                if (retry::is_shortage(errno) || errno == Errno::STALE) && self.trim(0) > 0 =>
            {
                open()
            }
            opened => opened,
        }
    }

    fn try_open_in(&self, dir: &Arc<Dir>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let (start, down) = self.start(dir);
        if down <= NEAR || self.limit.load(Relaxed) == 0 {
            return self.open_below(&start, &path_below(dir, down, name), flags);
        }
        let reached = self.descend(start, dir, down)?;
        self.open_below(&reached, name, flags)
    }

    /// An open directory from which the way leads down to `dir`, and the number of levels.
    fn start(&self, dir: &Arc<Dir>) -> (Arc<Directory>, usize) {
        let Way { from, up, down } = self.way(dir);
        match up {
            None => (from, down),
            Some((levels, ancestor)) => match self.ascend(&from, levels, &ancestor) {
                Some(reached) => (reached, down),
                None => (self.root.clone(), dir.depth()),
            },
        }
    }

    /// Opens the directory `dir`, which is so many levels below `start`, and keeps it open.
    fn descend(
        &self,
        start: Arc<Directory>,
        dir: &Arc<Dir>,
        down: usize,
    ) -> Result<Arc<Directory>, Errno> {
        if down == 0 {
            return Ok(start);
        }
        let mut path = path_below(dir, down, b"");
        // The slash before the empty name.
        path.pop();
        let opened = self.open_below(&start, &path, OFlags::PATH | OFlags::DIRECTORY)?;
        let reached = self.convert(opened)?;
        self.keep(dir, &reached);
        Ok(reached)
    }

    fn convert(&self, opened: OwnedFd) -> Result<Arc<Directory>, Errno> {
        let directory = Directory::new(opened, None, Some(&self.root));
        let directory = directory
            .map_err(|error| Errno::from_raw_os_error(error.errno().unwrap_or(libc::EIO)))?;
        Ok(Arc::new(directory))
    }

    fn open_below(&self, at: &Directory, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.follows {
            true => following(at.as_fd(), path, flags | OFlags::CLOEXEC),
            false => beneath(at.as_fd(), path, flags),
        }
    }

    /// Goes up to the directory `to`. Returns `None` if the way leads elsewhere: a directory was
    /// moved, or it was entered through a link.
    fn ascend(&self, from: &Directory, levels: usize, to: &Arc<Dir>) -> Option<Arc<Directory>> {
        let opened = ascending(from.as_fd(), levels).ok()?;
        let reached = self.convert(opened).ok()?;
        if reached.id() != to.id() {
            return None;
        }
        self.keep(to, &reached);
        Some(reached)
    }

    /// The shortest way to a directory from the root or from one that is kept open.
    fn way(&self, dir: &Arc<Dir>) -> Way {
        let mut way = Way {
            from: self.root.clone(),
            up: None,
            down: dir.depth(),
        };
        if !self.owner.is_here() {
            return way;
        }
        let mut kept = lock(&self.kept);
        if let Some((at, levels)) = nearest_above(&kept, dir) {
            let used = kept.remove(at);
            way.from = used.directory.clone();
            way.down = levels;
            kept.push(used);
        } else if dir.depth() > NEAR
            && let Some((at, ancestor)) = nearest(&kept, dir)
        {
            let up = kept[at].dir.depth() - ancestor.depth();
            way.from = kept[at].directory.clone();
            way.down = dir.depth() - ancestor.depth();
            way.up = (up > 0).then(|| (up, ancestor.clone()));
        }
        way
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
            kept.push(Recent {
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

impl Recent {
    /// Something else uses the open directory.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.directory) > 1
    }
}

/// Removes the directories that were not used for the longest time until `most` are left. Those that
/// are in use stay.
fn remove_oldest(kept: &mut Vec<Recent>, most: usize) -> Vec<Recent> {
    let mut excess = kept.len().saturating_sub(most);
    let is_removed = |kept: &mut Recent| {
        let is_removed = excess > 0 && !kept.is_used();
        excess -= usize::from(is_removed);
        is_removed
    };
    kept.extract_if(.., is_removed).collect()
}

/// The index of the nearest one of the kept directories that is `dir` or an ancestor of it, a few
/// levels above, and the number of levels.
fn nearest_above(kept: &[Recent], dir: &Arc<Dir>) -> Option<(usize, usize)> {
    if kept.is_empty() {
        return None;
    }
    let ancestors = std::iter::successors(Some(dir), |dir| dir.parent());
    let mut ancestors = ancestors.take(NEAR + 1).enumerate();
    ancestors.find_map(|(levels, ancestor)| {
        let at = kept
            .iter()
            .position(|kept| Arc::ptr_eq(&kept.dir, ancestor));
        at.map(|at| (at, levels))
    })
}

/// The index of the kept directory that is nearest to a directory, if it is nearer than the root, and
/// the lowest ancestor of both.
fn nearest<'a>(kept: &[Recent], dir: &'a Arc<Dir>) -> Option<(usize, &'a Arc<Dir>)> {
    let mut best = None;
    let mut least = dir.depth();
    for (at, kept) in kept.iter().enumerate().rev() {
        let other = &kept.dir;
        let depth = dir.depth().min(other.depth());
        let mut steps = dir.depth() + other.depth() - 2 * depth;
        let Some((mut a, mut b)) = dir.ancestor(depth).zip(other.ancestor(depth)) else {
            continue;
        };
        while steps < least {
            if Arc::ptr_eq(a, b) {
                least = steps;
                best = Some((at, a));
                break;
            }
            steps += 2;
            let Some((above_a, above_b)) = a.parent().zip(b.parent()) else {
                break;
            };
            (a, b) = (above_a, above_b);
        }
    }
    best
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
