//! A directory of a scan or a walk: its path, its parent and its depth.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::directory::Directory;

/// A directory that is scanned, alone or as part of a tree.
#[derive(Debug)]
pub struct Dir {
    path: Arc<Path>,
    /// The number of bytes of the path that are the root's.
    root: usize,
    parent: Option<Arc<Dir>>,
    depth: usize,
    id: (u64, u64),
}

impl Dir {
    /// The directory of a scan, or the root of a walk.
    pub(crate) fn root(directory: &Directory) -> Dir {
        let path = directory.path().cloned();
        let path = path.unwrap_or_else(|| Path::new("").into());
        Dir {
            root: path.as_os_str().len(),
            path,
            parent: None,
            depth: 0,
            id: directory.id(),
        }
    }

    /// A directory directly below `parent`.
    pub(crate) fn below(parent: &Arc<Dir>, path: Arc<Path>, directory: &Directory) -> Dir {
        Dir {
            path,
            root: parent.root,
            parent: Some(parent.clone()),
            depth: parent.depth + 1,
            id: directory.id(),
        }
    }

    /// The path: the root's as it was given, and the names below. It is empty for the root of a
    /// scan or walk that began with a descriptor.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The depth below the root; the root's is 0.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The directory that contains it; `None` for the root.
    pub fn parent(&self) -> Option<&Arc<Dir>> {
        self.parent.as_ref()
    }

    /// Device and inode number (`st_dev` and `st_ino`).
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// The path for errors, if there is one.
    pub(super) fn known_path(&self) -> Option<&Arc<Path>> {
        Some(&self.path).filter(|path| !path.as_os_str().is_empty())
    }

    /// Returns true if `directory` is this one or an ancestor of it.
    pub(crate) fn is_within(&self, directory: &Directory) -> bool {
        let mut dir = Some(self);
        while let Some(at) = dir {
            if at.id == directory.id() {
                return true;
            }
            dir = at.parent.as_deref();
        }
        false
    }

    /// The path from the root to `path`, which is below this directory.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a [u8] {
        let bytes = &path.as_os_str().as_bytes()[self.root..];
        bytes.strip_prefix(b"/").unwrap_or(bytes)
    }
}
