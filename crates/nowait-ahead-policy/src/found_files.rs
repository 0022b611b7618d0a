//! The files of a directory that the walks have found, and that the program has not opened.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use crate::directory::Id;
use crate::sequence::Order;

/// The files of a directory that were found.
pub struct FilesOfDirectory {
    /// The root of the walk. `None` if no file is left to be read, so that the program can unmount
    /// the filesystem.
    pub root: Option<Arc<OwnedFd>>,
    /// The root of the walk that has found the last files.
    pub walk: Weak<OwnedFd>,
    pub path: Arc<Path>,
    pub unread: Vec<(Arc<Path>, Id)>,
    /// The files that the program has not opened, by name.
    pub names: HashMap<Arc<Path>, Id>,
    /// The names that the program has opened before the walk has found them.
    pub opened_before: HashSet<Arc<Path>>,
    pub is_queued: bool,
    pub sorted_by: Option<Order>,
    /// The positions in the listing, by inode number. `None` until the program has opened two files
    /// in a row.
    pub positions: Option<HashMap<u64, u32>>,
    /// The files that were read, in order. Those that were given up or that the program has opened
    /// are removed.
    pub read: Vec<Id>,
    /// The number of files that were read.
    pub taken: u64,
    /// The number of these that were not used.
    pub ahead: u64,
    /// The part of `Queue::wasted` in this directory, if the program has left it.
    pub wasted: u64,
    /// The number of files that were opened, by the calls of `Files::opened_in`.
    pub opened: u64,
    /// The value of `Queue::opened` when the program opened the last file of this directory.
    pub last_opened: u64,
}

/// The maximum number of files, of directories, and of names that were opened before a walk found them.
pub const MAX_FILES: usize = 1_000_000;

impl FilesOfDirectory {
    /// No more files are read. Returns those that are not read.
    pub fn close_root(&mut self) -> Vec<(Arc<Path>, Id)> {
        self.root = None;
        self.is_queued = false;
        std::mem::take(&mut self.unread)
    }

    pub fn new(path: Arc<Path>) -> FilesOfDirectory {
        FilesOfDirectory {
            root: None,
            walk: Weak::new(),
            path,
            unread: Vec::new(),
            names: HashMap::new(),
            opened_before: HashSet::new(),
            is_queued: false,
            sorted_by: None,
            positions: None,
            read: Vec::new(),
            taken: 0,
            ahead: 0,
            wasted: 0,
            opened: 0,
            last_opened: 0,
        }
    }

    /// The position of a file in the listing of the directory.
    pub fn position(&self, inode: u64) -> Option<u32> {
        self.positions.as_ref()?.get(&inode).copied()
    }

    /// Returns true if a file comes before another one. Each has a name and an inode number.
    pub fn is_before(&self, order: Order, file: (&Path, u64), other: (&Path, u64)) -> bool {
        match order {
            Order::Inode => file.1 < other.1,
            Order::Name => file.0 < other.0,
            Order::Listing => self.position(file.1) < self.position(other.1),
        }
    }

    /// Sorts the unread files, the next ones at the end.
    pub fn sort(&mut self, order: Order) {
        if self.sorted_by.replace(order) == Some(order) {
            return;
        }
        let position = |id: &Id| self.positions.as_ref().and_then(|it| it.get(&id.1));
        match order {
            Order::Inode => self.unread.sort_unstable_by_key(|(_, id)| Reverse(id.1)),
            Order::Name => self.unread.sort_unstable_by(|a, b| b.0.cmp(&a.0)),
            Order::Listing => self
                .unread
                .sort_by_cached_key(|(_, id)| Reverse(position(id))),
        }
    }
}
