//! The roots of the walks in which files are still to be read. While a root is open, its filesystem cannot be unmounted.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The roots, the least recently used one first.
#[derive(Default)]
pub struct Roots(Vec<Root>);

struct Root {
    /// It is closed when no walk, no directory and no thread has it any more.
    directory: Weak<OwnedFd>,
    used: Used,
}

enum Used {
    /// A walk has found files, or the program has opened one, at this time.
    At(Instant),
    /// The user has named the tree: it stays open while the program runs.
    Always,
}

/// The number of roots that may be open. Each is a descriptor.
const MAX: usize = 64;

impl Roots {
    /// A walk has found files below a root, or the program has opened one.
    pub fn used(&mut self, root: &Arc<OwnedFd>) {
        self.0.retain(|it| it.directory.strong_count() > 0);
        let now = Used::At(Instant::now());
        match self.position(root) {
            Some(at) if matches!(self.0[at].used, Used::Always) => {}
            Some(at) => {
                self.0[at].used = now;
                self.0[at..].rotate_left(1);
            }
            None => self.add(root, now),
        }
    }

    /// The root of a tree that the user has named.
    pub fn keep(&mut self, root: &Arc<OwnedFd>) {
        self.add(root, Used::Always);
    }

    fn add(&mut self, root: &Arc<OwnedFd>, used: Used) {
        let directory = Arc::downgrade(root);
        self.0.push(Root { directory, used });
    }

    fn position(&self, root: &Arc<OwnedFd>) -> Option<usize> {
        let is_it = |it: &Root| std::ptr::eq(it.directory.as_ptr(), Arc::as_ptr(root));
        self.0.iter().position(is_it)
    }

    /// Returns false if a root was removed.
    pub fn contains(&self, root: &Arc<OwnedFd>) -> bool {
        self.position(root).is_some()
    }

    /// Removes some roots, and returns them.
    pub fn remove(&mut self, which: impl Fn(&OwnedFd) -> bool) -> Vec<Arc<OwnedFd>> {
        self.extract(|it| it.directory.upgrade().is_none_or(|root| which(&root)))
    }

    /// Removes the roots that were not used since then, and returns them.
    pub fn remove_unused(&mut self, since: Instant) -> Vec<Arc<OwnedFd>> {
        self.extract(|it| matches!(it.used, Used::At(time) if time < since))
    }

    /// Removes the less recently used half if there are too many, and returns it.
    pub fn remove_excess(&mut self) -> Vec<Arc<OwnedFd>> {
        if self.0.len() <= MAX {
            return Vec::new();
        }
        let mut left = MAX / 2;
        self.extract(|it| {
            let is_removed = left > 0 && matches!(it.used, Used::At(_));
            left -= usize::from(is_removed);
            is_removed
        })
    }

    fn extract(&mut self, mut which: impl FnMut(&Root) -> bool) -> Vec<Arc<OwnedFd>> {
        let removed = self.0.extract_if(.., |it| which(it));
        removed.filter_map(|it| it.directory.upgrade()).collect()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
