//! The filesystems on which files were opened.
//!
//! A handle refers to its filesystem's learnt properties. This table keeps them for the next file.
//! If there are many filesystems, those without open files are removed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use nowait_residency::magic;

use super::Filesystem;
use crate::sys::process::PerProcess;
use crate::sys::stat::{FilesystemId, Identity, Known};

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
    /// The learnt properties of the filesystem of an open file. All its files share them.
    pub(crate) fn of(file: &Identity) -> Arc<Filesystem> {
        let filesystem = Filesystem::with_id(file.filesystem);
        filesystem.learn_mount(file.mount);
        filesystem
    }

    /// The same without the mount of a file.
    pub(crate) fn with_id(id: FilesystemId) -> Arc<Filesystem> {
        let seen = seen().read().unwrap_or_else(PoisonError::into_inner);
        if let Some(filesystem) = seen.filesystems.get(&id) {
            return filesystem.clone();
        }
        drop(seen);
        let mut seen = self::seen().write().unwrap_or_else(PoisonError::into_inner);
        seen.take_in(id)
    }

    /// Returns true if this regular file, on a block device, can be opened for reading without
    /// waiting, after its path is resolved. That is the case on known filesystem types on which
    /// a file was opened before (the first open may write). On other types a server may have to be
    /// asked.
    ///
    /// The device may have another filesystem by now: that of a FUSE server, for example. Therefore a
    /// file must have been opened on the same mount, whose ID is not used again (Linux 6.8). Before
    /// Linux 6.8 the number of the device decides. Numbers without a device are reused by later mounts
    /// of any type, and are not accepted.
    pub(crate) fn opens_at_once(file: &Known) -> bool {
        let is_one = |fs: &Filesystem| {
            fs.device() == file.device
                && fs.is_at_once()
                && file.mount.is_none_or(|mount| fs.has_mount(mount))
        };
        rustix::fs::major(file.device) != 0 && any(is_one)
    }

    /// Returns true if fstatfs(2) of this open file is known not to wait for a server: a file was opened
    /// on its mount before, or on its device before Linux 6.8. overlayfs asks a layer: see
    /// [`Known::looks_local`].
    pub(crate) fn is_identified_at_once(file: &Known) -> bool {
        let is_one = |fs: &Filesystem, mount| {
            fs.is_local() && fs.has_mount(mount) && (!fs.is_overlay() || file.looks_local)
        };
        match file.mount {
            Some(mount) => any(|fs| is_one(fs, mount)),
            None => Filesystem::opens_at_once(file),
        }
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
    /// of the file is local: see [`Known::looks_local`]. (A FUSE filesystem as the upper layer may
    /// report an old modification time after a write. Lower layers must not be changed while they
    /// are used.)
    ///
    /// overlayfs has no device. A mount of it is known by its ID.
    pub(crate) fn stats_in_memory(file: &Known) -> bool {
        if Filesystem::opens_at_once(file) {
            return true;
        }
        let Some(mount) = file.mount.filter(|_| file.looks_local) else {
            return false;
        };
        any(|fs| fs.is_overlay() && fs.has_mount(mount))
    }

    /// Keeps the ID of the mount of an open file.
    fn learn_mount(&self, mount: Option<u64>) {
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

/// Returns true if one of the filesystems is such.
fn any(is_one: impl Fn(&Filesystem) -> bool) -> bool {
    let seen = seen().read().unwrap_or_else(PoisonError::into_inner);
    seen.filesystems.values().any(|fs| is_one(fs))
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
