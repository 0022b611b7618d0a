//! The directories of a walk that have been found and wait to be opened.

use std::collections::{HashMap, VecDeque};
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
    /// Directories of one parent each. No group is empty.
    siblings: Vec<VecDeque<Waiting>>,
    /// The last group of each parent, by the parent's address.
    group_of: HashMap<usize, usize>,
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
        let group = self.group_of.get(&address(&waiting));
        match group.and_then(|group| self.siblings.get_mut(*group)) {
            Some(group) => group.push_back(waiting),
            None => self.add_group(waiting),
        }
    }

    fn add_group(&mut self, first: Waiting) {
        self.group_of.insert(address(&first), self.siblings.len());
        self.siblings.push(VecDeque::from([first]));
    }

    /// Puts back the directory that was taken last.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.len += 1;
        self.add_group(waiting);
    }

    /// Takes the next directory.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let group = self.siblings.last_mut()?;
        let waiting = group.pop_front()?;
        if group.is_empty() {
            self.siblings.pop();
            let is_popped = |group: &usize| *group == self.siblings.len();
            if self.group_of.get(&address(&waiting)).is_some_and(is_popped) {
                self.group_of.remove(&address(&waiting));
            }
        }
        self.len -= 1;
        Some(waiting)
    }

    pub(super) fn clear(&mut self) {
        *self = WaitingList::default();
    }
}

/// The address of the parent. It is not used for another directory while a group has the parent.
fn address(waiting: &Waiting) -> usize {
    Arc::as_ptr(&waiting.parent).addr()
}
