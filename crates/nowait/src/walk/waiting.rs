//! The directories of a walk that have been found and wait to be opened.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crate::scan::Dir;

/// A directory that waits. It is kept as a name and holds no descriptor.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) parent: Arc<Dir>,
    pub(super) name: Box<[u8]>,
    /// True if only the directory listing reports it as a directory, or it may be a link to one.
    pub(super) is_uncertain: bool,
}

impl Waiting {
    pub(super) fn path(&self) -> Arc<Path> {
        self.parent.path_of(&self.name).into()
    }
}

/// The directories that wait. The subdirectories of one directory are opened in the order in which
/// they were found, before those of directories that were found earlier. The walk is thus
/// depth-first, and few directories wait.
#[derive(Debug, Default)]
pub(super) struct WaitingList {
    siblings: Vec<VecDeque<Waiting>>,
    len: usize,
}

impl WaitingList {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a directory that was found.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.len += 1;
        // A group is never empty.
        let of_parent = |group: &&mut VecDeque<Waiting>| {
            group
                .back()
                .is_some_and(|other| Arc::ptr_eq(&other.parent, &waiting.parent))
        };
        match self.siblings.iter_mut().rev().find(of_parent) {
            Some(group) => group.push_back(waiting),
            None => self.siblings.push(VecDeque::from([waiting])),
        }
    }

    /// Puts back the directory that was taken last.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.len += 1;
        self.siblings.push(VecDeque::from([waiting]));
    }

    /// Takes the next directory.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let group = self.siblings.last_mut()?;
        let waiting = group.pop_front()?;
        if group.is_empty() {
            self.siblings.pop();
        }
        self.len -= 1;
        Some(waiting)
    }

    pub(super) fn clear(&mut self) {
        *self = WaitingList::default();
    }
}
