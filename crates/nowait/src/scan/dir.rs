//! The place of a directory in a tree.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::scan::Directory;

/// A directory of a tree that is walked.
#[derive(Debug)]
pub struct Place {
    path: Arc<Path>,
    /// The number of bytes of the path that are the root's.
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

    /// A directory directly below `parent`.
    pub(super) fn below(parent: &Arc<Place>, path: Arc<Path>, directory: &Directory) -> Place {
        Place {
            path,
            root: parent.root,
            parent: Some(parent.clone()),
            depth: parent.depth + 1,
            id: directory.id(),
        }
    }

    /// The path: the root's as it was given, and the names below.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The depth below the root; the root's is 0.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The directory that contains it; `None` for the root.
    pub fn parent(&self) -> Option<&Arc<Place>> {
        self.parent.as_ref()
    }

    /// Device and inode number (`st_dev` and `st_ino`).
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Returns true if `directory` is this one or an ancestor of it.
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

    /// The path from the root to `path`, which is below this place.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> &'a [u8] {
        let bytes = &path.as_os_str().as_bytes()[self.root..];
        bytes.strip_prefix(b"/").unwrap_or(bytes)
    }
}
