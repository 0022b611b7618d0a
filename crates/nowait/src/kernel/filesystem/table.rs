//! The filesystems on which files were opened.
//!
//! A handle refers to its filesystem's learnt properties. This table keeps them for the next file.
//! If there are many filesystems, those without open files are removed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use super::{Filesystem, magic};
use crate::sys::process::PerProcess;
use crate::sys::stat::{FilesystemId, Known, known};

/// Filesystems whose regular files are opened without I/O after their path is resolved, and whose
/// fstat(2) reads memory alone.
const OPEN_AT_ONCE: [u64; 3] = [magic::EXT4, magic::XFS, magic::F2FS];

/// The number of filesystems above which those without open files are removed.
const KEPT: usize = 64;

/// The table of this process. A child process starts with a new one, because another thread may
/// hold the lock during fork.
static SEEN: PerProcess<RwLock<Seen>> = PerProcess::new();

#[derive(Debug)]
struct Seen {
    filesystems: HashMap<FilesystemId, Arc<Filesystem>>,
    /// The number of filesystems at which unused ones are removed before another is added.
    room: usize,
}

impl Seen {
    fn new() -> Seen {
        Seen {
            filesystems: HashMap::new(),
            room: KEPT,
        }
    }

    /// Adds a filesystem. The write lock must be held, so that no clone is created meanwhile.
    fn take_in(&mut self, id: FilesystemId) -> Arc<Filesystem> {
        if self.filesystems.len() >= self.room && !self.filesystems.contains_key(&id) {
            self.filesystems.retain(|_, fs| Arc::strong_count(fs) > 1);
            // Avoids a search for each further filesystem, if most are in use.
            self.room = KEPT.max(2 * self.filesystems.len());
        }
        let new = || Arc::new(Filesystem::new(id));
        self.filesystems.entry(id).or_insert_with(new).clone()
    }
}

fn seen() -> &'static RwLock<Seen> {
    let Ok(seen) = SEEN.get_or_make(|| Ok::<_, Infallible>(RwLock::new(Seen::new())));
    seen
}

// A panic leaves the data under the lock consistent.
impl Filesystem {
    /// The learnt properties of the filesystem with this identity. All its files share them.
    pub(crate) fn of(id: FilesystemId) -> Arc<Filesystem> {
        let seen = seen().read().unwrap_or_else(PoisonError::into_inner);
        if let Some(filesystem) = seen.filesystems.get(&id) {
            return filesystem.clone();
        }
        drop(seen);
        let mut seen = self::seen().write().unwrap_or_else(PoisonError::into_inner);
        seen.take_in(id)
    }

    /// Returns true if the regular files of a block device can be opened for reading without
    /// waiting, after their paths are resolved. That is the case on known filesystem types on which
    /// a file was opened before (the first open may write). On other types a server may have to be
    /// asked. Device numbers without a device are reused by later mounts, and are not accepted.
    pub(crate) fn opens_at_once(dev: u64) -> bool {
        let is_one = |fs: &Arc<Filesystem>| fs.device() == dev && fs.is_at_once();
        let seen = || seen().read().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::major(dev) != 0 && seen().filesystems.values().any(is_one)
    }

    /// Returns true if fstat(2) and lseek(2) of its open files do not wait for a device or a
    /// server.
    pub(crate) fn stats_at_once(&self) -> bool {
        self.is_memory() || self.is_at_once()
    }

    /// Returns true if statx(2) of this file with `AT_STATX_DONT_SYNC` waits for nothing, and its
    /// result is that of statx(2) without the flag.
    ///
    /// That is the case on known types of filesystems with a device, and on overlayfs if the layer
    /// of the file is local. A layer that reports the file's birth time is taken for local: few
    /// servers report one. (A FUSE filesystem as the upper layer may report an old modification time
    /// after a write. Lower layers must not be changed while they are used.)
    ///
    /// overlayfs has no device. A mount of it is known by its ID ([`Filesystem::learn_mount`]).
    pub(crate) fn stats_in_memory(file: &Known) -> bool {
        if Filesystem::opens_at_once(file.device) {
            return true;
        }
        let Some(mount) = file.mount.filter(|_| file.has_birth_time) else {
            return false;
        };
        let seen = seen().read().unwrap_or_else(PoisonError::into_inner);
        let mut overlays = seen.filesystems.values().filter(|fs| fs.is_overlay());
        overlays.any(|fs| fs.has_mount(mount))
    }

    /// Keeps the ID of the mount of an open file, for [`Filesystem::stats_in_memory`].
    pub(crate) fn learn_mount(&self, fd: BorrowedFd<'_>) {
        if !self.is_overlay() {
            return;
        }
        let mount = known(fd).ok().and_then(|file| file.mount);
        if let Some(mount) = mount.filter(|mount| !self.has_mount(*mount)) {
            // Two threads may take the same place. The next open file of that mount takes another.
            let place = self.next_mount.fetch_add(1, Relaxed) % self.mounts.len();
            self.mounts[place].store(mount, Relaxed);
        }
    }

    fn has_mount(&self, mount: u64) -> bool {
        self.mounts.iter().any(|known| known.load(Relaxed) == mount)
    }

    fn is_at_once(&self) -> bool {
        OPEN_AT_ONCE.contains(&self.magic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = if cfg!(miri) { 300 } else { 10_000 };

    #[test]
    fn what_is_not_in_use_is_forgotten_when_there_is_much() {
        let mut known = Seen::new();
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
        let mut known = Seen::new();
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
