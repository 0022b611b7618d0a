//! A directory of a scan or a walk: its path, its parent and its depth.
//!
//! A path can be as long as the tree is deep. A directory has its path if it is short, or else its
//! name, and only one in [`SECTION`] of the levels below has its path again. The memory for a chain
//! of directories is thus proportional to their number.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::Directory;

/// The number of levels of a section. The lowest directory of each section has its path, and the
/// identities of all directories of the section.
const SECTION: usize = 256;
/// The maximum length of a path that every directory has.
const SHORT: usize = 4096;

/// A directory that is scanned, alone or as part of a tree.
#[derive(Debug)]
pub struct Dir {
    place: Place,
    parent: Option<Arc<Dir>>,
    /// The section above.
    above: Option<Arc<Section>>,
    depth: usize,
    id: (u64, u64),
}

#[derive(Debug)]
enum Place {
    Path(Arc<Path>),
    /// The name in the parent.
    Name(Box<[u8]>),
}

/// Consecutive levels of the ancestors of a directory.
#[derive(Debug)]
struct Section {
    /// Device and inode number of each directory, sorted.
    ids: Vec<(u64, u64)>,
    /// The lowest directory.
    last: Arc<Dir>,
}

impl Dir {
    /// The directory of a scan, or the root of a walk.
    pub(crate) fn root(directory: &Directory) -> Dir {
        let path = directory.path().cloned();
        let path = path.unwrap_or_else(|| Path::new("").into());
        Dir::root_at(path, directory.id())
    }

    /// The root of a walk, with its path, and its device and inode number.
    pub(crate) fn root_at(path: Arc<Path>, id: (u64, u64)) -> Dir {
        Dir {
            place: Place::Path(path),
            parent: None,
            above: None,
            depth: 0,
            id,
        }
    }

    /// The directory with this name in `parent`.
    pub(crate) fn below(parent: &Arc<Dir>, name: &[u8], directory: &Directory) -> Dir {
        let depth = parent.depth + 1;
        let is_first = depth.is_multiple_of(SECTION);
        let above = match is_first {
            true => Some(Arc::new(Section::ending_with(parent))),
            false => parent.above.clone(),
        };
        let keeps_path = match &parent.place {
            Place::Path(path) => path.as_os_str().len() + 1 + name.len() <= SHORT,
            Place::Name(_) => false,
        };
        Dir {
            place: match keeps_path || is_first {
                true => Place::Path(parent.path_of(name).into()),
                false => Place::Name(name.into()),
            },
            parent: Some(parent.clone()),
            above,
            depth,
            id: directory.id(),
        }
    }

    /// The path: the root's as it was given, and the names below. It is empty for the root of a
    /// scan or walk that began with a descriptor. A path of more than 4,096 bytes is made by each
    /// call.
    pub fn path(&self) -> Arc<Path> {
        match (&self.place, &self.parent) {
            (Place::Path(path), _) => path.clone(),
            (Place::Name(name), Some(parent)) => parent.path_of(name).into(),
            (Place::Name(name), None) => PathBuf::from(OsString::from_vec(name.to_vec())).into(),
        }
    }

    /// The path of the file with this name.
    pub(crate) fn path_of(&self, name: &[u8]) -> PathBuf {
        let mut names = vec![name];
        let mut dir = self;
        let start = loop {
            match (&dir.place, &dir.parent) {
                (Place::Name(name), Some(parent)) => {
                    names.push(name);
                    dir = parent;
                }
                (Place::Name(_), None) => break Path::new(""),
                (Place::Path(path), _) => break path,
            }
        };
        let start = start.as_os_str().as_bytes();
        let length = names.iter().map(|name| name.len() + 1).sum::<usize>();
        let mut path = Vec::with_capacity(start.len() + length);
        path.extend_from_slice(start);
        for name in names.iter().rev() {
            if path.last().is_some_and(|last| *last != b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        PathBuf::from(OsString::from_vec(path))
    }

    /// The name in the parent. It is empty for the root.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(match (&self.place, &self.parent) {
            (_, None) => b"",
            (Place::Name(name), _) => name,
            (Place::Path(path), _) => {
                let path = path.as_os_str().as_bytes();
                path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
            }
        })
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

    /// Returns true if a directory with this device and inode number is this one or an ancestor of
    /// it. It takes about the same time for any depth.
    pub fn is_within(&self, id: (u64, u64)) -> bool {
        let mut dir = Some(self);
        let own = self.depth % SECTION;
        for _ in 0..=own {
            let Some(at) = dir else { break };
            if at.id == id {
                return true;
            }
            dir = at.parent.as_deref();
        }
        let sections = std::iter::successors(self.above.as_deref(), |s| s.last.above.as_deref());
        sections
            .into_iter()
            .any(|section| section.ids.binary_search(&id).is_ok())
    }

    /// The ancestor at this depth; the directory itself at its own depth. `None` for a greater depth.
    /// It takes about the same time for any depth.
    pub fn ancestor(self: &Arc<Dir>, depth: usize) -> Option<&Arc<Dir>> {
        if depth > self.depth {
            return None;
        }
        let mut dir = self;
        while let Some(section) = dir.above.as_deref().filter(|s| s.last.depth >= depth) {
            dir = &section.last;
        }
        std::iter::successors(Some(dir), |dir| dir.parent()).nth(dir.depth - depth)
    }

    /// The path for errors, if there is one.
    pub(super) fn known_path(&self) -> Option<Arc<Path>> {
        Some(self.path()).filter(|path| !path.as_os_str().is_empty())
    }
}

impl Section {
    /// The section whose lowest directory is `last`.
    fn ending_with(last: &Arc<Dir>) -> Section {
        let levels = std::iter::successors(Some(&**last), |dir| dir.parent.as_deref());
        let mut ids: Vec<_> = levels.take(SECTION).map(Dir::id).collect();
        ids.sort_unstable();
        Section {
            ids,
            last: last.clone(),
        }
    }
}

/// A chain of directories is dropped step by step. One drop within another for each level would need
/// more stack than a thread has. A section is dropped before the directories in it, so that it is
/// never the last owner of one.
impl Drop for Dir {
    fn drop(&mut self) {
        self.above = None;
        let mut parent = self.parent.take();
        while let Some(mut dir) = parent.and_then(Arc::into_inner) {
            dir.above = None;
            parent = dir.parent.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_knows_its_paths_and_ancestors() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().to_str().unwrap();
        let directory = Directory::blocking_open(Path::new(root)).unwrap();
        let mut dirs = vec![Arc::new(Dir::root(&directory))];
        for level in 1..100_000_u64 {
            let parent = &dirs[dirs.len() - 1];
            let mut dir = Dir::below(parent, (level % 10).to_string().as_bytes(), &directory);
            dir.id = (0, level);
            dirs.push(Arc::new(dir));
        }
        let depths = [0, 1, 255, 256, 257, 511, 512, 2_000, 2_100, 99_999];
        for depth in depths {
            let dir = &dirs[depth];
            let names = (1..=depth).map(|level| format!("/{}", level % 10));
            let path = format!("{root}{}", names.collect::<String>());
            assert_eq!(dir.path().as_os_str(), path.as_str());
            assert_eq!(dir.path_of(b"x"), Path::new(&path).join("x"));
            assert_eq!(dir.name(), path[root.len()..].rsplit('/').next().unwrap());
            for above in depths {
                let ancestor = dir.ancestor(above);
                let expected = (above <= depth).then(|| &dirs[above]);
                assert_eq!(ancestor.map(Arc::as_ptr), expected.map(Arc::as_ptr));
                let id = dirs[above].id();
                assert_eq!(dir.is_within(id), above <= depth, "{above} {depth}");
            }
        }
        let bytes = |dir: &Arc<Dir>| match &dir.place {
            Place::Path(path) => path.as_os_str().len(),
            Place::Name(name) => name.len(),
        };
        let all = dirs.iter().map(bytes).sum::<usize>();
        assert!(all < 1_000 * dirs.len(), "{all} bytes");
        // The whole chain is dropped at once.
        dirs.drain(..dirs.len() - 1);
    }
}
