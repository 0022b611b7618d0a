//! The filesystems that files were opened on.
//!
//! A handle holds what is known of its filesystem. This table keeps it for the next file there, and
//! forgets filesystems that no file is open on when there are many.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};

use super::filesystem::{Filesystem, OPEN_AT_ONCE};
use crate::sys::process::PerProcess;
use crate::sys::stat::FilesystemId;

/// How many filesystems are kept before those are forgotten that no file is open on.
const KEPT: usize = 64;

/// This process's: a fork may catch another thread with its lock, so a child begins anew.
static KNOWN: PerProcess<RwLock<Known>> = PerProcess::new();

#[derive(Debug)]
struct Known {
    filesystems: HashMap<FilesystemId, Arc<Filesystem>>,
    /// With so many, what is not in use is forgotten before another one is taken in.
    room: usize,
}

impl Known {
    fn new() -> Known {
        Known {
            filesystems: HashMap::new(),
            room: KEPT,
        }
    }

    /// Called with the lock held for writing, so no clone can be made meanwhile.
    fn take_in(&mut self, id: FilesystemId) -> Arc<Filesystem> {
        if self.filesystems.len() >= self.room && !self.filesystems.contains_key(&id) {
            self.filesystems.retain(|_, fs| Arc::strong_count(fs) > 1);
            // Not looked through again for each one that follows, if most are in use.
            self.room = KEPT.max(2 * self.filesystems.len());
        }
        let new = || Arc::new(Filesystem::new(id));
        self.filesystems.entry(id).or_insert_with(new).clone()
    }
}

fn known() -> &'static RwLock<Known> {
    let Ok(known) = KNOWN.get_or_make(|| Ok::<_, Infallible>(RwLock::new(Known::new())));
    known
}

// What the lock protects is whole at every moment that a panic could interrupt.
impl Filesystem {
    /// The facts about the filesystem with this identity, shared by all its files.
    pub(crate) fn of(id: FilesystemId) -> Arc<Filesystem> {
        let seen = known().read().unwrap_or_else(PoisonError::into_inner);
        if let Some(filesystem) = seen.filesystems.get(&id) {
            return filesystem.clone();
        }
        drop(seen);
        let mut known = known().write().unwrap_or_else(PoisonError::into_inner);
        known.take_in(id)
    }

    /// Whether the regular files of a block device can be opened for reading without waiting, once
    /// their paths are resolved: of filesystems that are known to be like that, and that a file was
    /// opened on before (the first may write). Elsewhere a server may have to be asked. Device
    /// numbers without a device are given to the next mount, and tell nothing.
    pub(crate) fn opens_at_once(dev: u64) -> bool {
        let is_one =
            |fs: &Arc<Filesystem>| fs.device() == dev && OPEN_AT_ONCE.contains(&fs.magic());
        let known = || known().read().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::major(dev) != 0 && known().filesystems.values().any(is_one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = if cfg!(miri) { 300 } else { 10_000 };

    #[test]
    fn what_is_not_in_use_is_forgotten_when_there_is_much() {
        let mut known = Known::new();
        let id = |dev| FilesystemId {
            dev,
            ..FilesystemId::default()
        };
        let used: Vec<_> = (0..10).map(|dev| known.take_in(id(dev))).collect();
        for dev in 10..MANY {
            known.take_in(id(dev));
            assert!(known.filesystems.len() <= KEPT);
        }
        for (dev, filesystem) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(&known.take_in(id(dev as u64)), filesystem));
        }
    }

    #[test]
    fn what_is_in_use_is_kept_however_much_it_is() {
        let mut known = Known::new();
        let id = |dev| FilesystemId {
            dev,
            ..FilesystemId::default()
        };
        let used: Vec<_> = (0..MANY / 10).map(|dev| known.take_in(id(dev))).collect();
        assert_eq!(known.filesystems.len() as u64, MANY / 10);
        drop(used);
        for dev in MANY / 10..MANY {
            known.take_in(id(dev));
        }
        assert!(known.filesystems.len() <= KEPT.max(MANY as usize / 5));
    }
}
