//! The paths and numbers of the inodes of a FUSE filesystem whose files have one name each.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use fuser::INodeNo;

/// The inodes whose numbers the kernel has. A number is used once.
pub(crate) struct Nodes {
    root: PathBuf,
    last: u64,
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

impl Nodes {
    pub(crate) fn new(root: PathBuf) -> Nodes {
        let number = INodeNo::ROOT.0;
        Nodes {
            root: root.clone(),
            last: number,
            paths: HashMap::from([(number, root.clone())]),
            numbers: HashMap::from([(root, number)]),
        }
    }

    /// A path as one below the root.
    pub(crate) fn below(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }

    pub(crate) fn path(&self, ino: INodeNo) -> io::Result<PathBuf> {
        let path = self.paths.get(&ino.0).cloned();
        path.ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    pub(crate) fn number(&mut self, path: &Path) -> INodeNo {
        if let Some(number) = self.numbers.get(path) {
            return INodeNo(*number);
        }
        self.last += 1;
        self.paths.insert(self.last, path.to_owned());
        self.numbers.insert(path.to_owned(), self.last);
        INodeNo(self.last)
    }

    /// A path is no longer that of its inode.
    pub(crate) fn removed(&mut self, path: &Path) {
        if let Some(number) = self.numbers.remove(path) {
            self.paths.remove(&number);
        }
    }

    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) {
        self.removed(to);
        let below = |path: &&PathBuf| path.starts_with(from);
        let moved: Vec<PathBuf> = self.numbers.keys().filter(below).cloned().collect();
        for path in moved {
            let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
            // `join` of an empty path adds a slash.
            let new = if rest == Path::new("") {
                to.to_owned()
            } else {
                to.join(rest)
            };
            if let Some(number) = self.numbers.remove(&path) {
                self.paths.insert(number, new.clone());
                self.numbers.insert(new, number);
            }
        }
    }
}
