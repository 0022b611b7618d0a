//! The filesystems on which files were opened.
//!
//! A handle refers to its filesystem's learnt properties. This table keeps them for the next file.
//! If there are many filesystems, those without open files are removed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use nowait_residency::magic;

use super::{Filesystem, KnownMount, overlay};
use crate::sys::Errno;
use crate::sys::process::PerProcess;
use crate::sys::stat::{self, FilesystemId, Known};

/// Filesystems whose regular files are opened for reading without I/O after their path is resolved, and
/// whose fstat(2) reads memory alone. overlayfs may be another one: see [`overlay::opens_at_once`].
const OPEN_AT_ONCE: [u64; 6] = [
    magic::BTRFS,
    magic::EXT4,
    magic::F2FS,
    magic::RAMFS,
    magic::TMPFS,
    magic::XFS,
];

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
    /// The learnt properties of the filesystem of an open file. All its files share them. Makes no call if
    /// a file was opened on the same mount before (Linux 6.8), and [`asked`](Filesystem::asked) otherwise.
    ///
    /// # Errors
    /// Those of fstatfs(2).
    pub(crate) fn of(fd: BorrowedFd<'_>, file: &Known) -> Result<Arc<Filesystem>, Errno> {
        let is_on = |fs: &Filesystem, mount| fs.device() == file.device && fs.has_mount(mount);
        match file.mount.and_then(|mount| find(|fs| is_on(fs, mount))) {
            Some(known) => Ok(known),
            None => Ok(Filesystem::asked(fd, file)?.0),
        }
    }

    /// Records the filesystem of an open file, so that its other files are opened at once. Called by workers.
    pub(crate) fn remember(fd: BorrowedFd<'_>, file: &Known) {
        // Before Linux 6.8, files on filesystems without a device are not opened at once.
        let is_useful = file.mount.is_some()
            || (rustix::fs::major(file.device) != 0 && !Filesystem::opens_at_once(file));
        if is_useful {
            let _ = Filesystem::of(fd, file);
        }
    }

    /// Records the filesystem of a file, so that the metadata of its other files is asked for at once. The descriptor may be
    /// one of O_PATH: the first open of a file may write, and stays that of a worker. Needs Linux 6.8. Called by workers.
    pub(crate) fn remember_for_stat(fd: BorrowedFd<'_>, file: &Known) {
        // fstatfs(2) of other files may ask a server.
        let Some(mount) = file.mount.filter(|_| file.looks_local) else {
            return;
        };
        if Filesystem::stats_in_memory(file) {
            return;
        }
        if let Ok((id, _)) = stat::filesystem(fd, file) {
            Filesystem::with_id(id).next_place().set_not_opened(mount);
        }
    }

    /// The filesystem of an open file, and true if it is mounted with the option `sync`, which a remount
    /// changes: fstatfs(2), which on NFS and FUSE waits for the server. Keeps the mount of the file.
    ///
    /// # Errors
    /// Those of fstatfs(2).
    pub(crate) fn asked(
        fd: BorrowedFd<'_>,
        file: &Known,
    ) -> Result<(Arc<Filesystem>, bool), Errno> {
        let (id, syncs) = stat::filesystem(fd, file)?;
        let filesystem = Filesystem::with_id(id);
        filesystem.learn_mount(fd, file.mount);
        Ok((filesystem, syncs))
    }

    /// The learnt properties of a filesystem.
    pub(crate) fn with_id(id: FilesystemId) -> Arc<Filesystem> {
        let seen = seen().read().unwrap_or_else(PoisonError::into_inner);
        if let Some(filesystem) = seen.filesystems.get(&id) {
            return filesystem.clone();
        }
        drop(seen);
        let mut seen = self::seen().write().unwrap_or_else(PoisonError::into_inner);
        seen.take_in(id)
    }

    /// The filesystem of this regular file, if it can be opened for reading without waiting, after its path
    /// is resolved. That is the case on known filesystem types on which a file was opened before (the first
    /// open may write). On other types a server may have to be asked. On overlayfs the layers must be on one
    /// filesystem, which must be local: see [`Known::has_nodump`].
    ///
    /// The device may have another filesystem by now: that of a FUSE server, for example. Therefore a
    /// file must have been opened on the same mount, whose ID is not used again (Linux 6.8). Before
    /// Linux 6.8 the number of the device decides. Numbers without a device are reused by later mounts
    /// of any type, and are not accepted there.
    pub(crate) fn that_opens_at_once(file: &Known) -> Option<Arc<Filesystem>> {
        find(|fs| {
            fs.device() == file.device
                && (!fs.is_overlay() || file.has_nodump)
                && match file.mount {
                    Some(mount) => fs.opens_at_once_on(mount),
                    None => fs.is_at_once() && rustix::fs::major(file.device) != 0,
                }
        })
    }

    /// Returns true if the file has such a filesystem.
    pub(crate) fn opens_at_once(file: &Known) -> bool {
        Filesystem::that_opens_at_once(file).is_some()
    }

    /// Returns true if fstatfs(2) of this open file is known not to wait for a server: a file was opened
    /// on its mount before, or on its device before Linux 6.8. overlayfs asks a layer: see
    /// [`Known::looks_local`].
    pub(crate) fn is_identified_at_once(file: &Known) -> bool {
        let is_one = |fs: &Filesystem, mount| {
            fs.is_local() && fs.has_mount(mount) && (!fs.is_overlay() || file.looks_local)
        };
        match file.mount {
            Some(mount) => find(|fs| is_one(fs, mount)).is_some(),
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
    /// That is the case on known types of filesystems, and on overlayfs if the layer of the file is local: see
    /// [`Known::looks_local`]. (A FUSE filesystem as the upper layer may
    /// report an old modification time after a write. Lower layers must not be changed while they
    /// are used.)
    ///
    /// A mount of overlayfs is known by its ID alone.
    pub(crate) fn stats_in_memory(file: &Known) -> bool {
        if Filesystem::fstats_in_memory(file) {
            return true;
        }
        let Some(mount) = file.mount.filter(|_| file.looks_local) else {
            return false;
        };
        let is_it = |fs: &Filesystem| fs.has_mount(mount) || fs.has_mount_not_opened(mount);
        find(|fs| fs.is_overlay() && is_it(fs)).is_some()
    }

    /// Returns true if fstat(2) of this file, which may be open with O_PATH, waits for nothing. overlayfs asks a lower layer,
    /// too.
    pub(crate) fn fstats_in_memory(file: &Known) -> bool {
        let is_it = |fs: &Filesystem, mount| {
            fs.device() == file.device && fs.is_at_once() && fs.has_mount_not_opened(mount)
        };
        Filesystem::opens_at_once(file)
            || file
                .mount
                .is_some_and(|mount| find(|fs| is_it(fs, mount)).is_some())
    }

    /// Keeps the ID of the mount of an open file.
    fn learn_mount(&self, fd: BorrowedFd<'_>, mount: Option<u64>) {
        if let Some(mount) = mount.filter(|mount| !self.has_mount(*mount)) {
            let at_once = self.is_overlay() && overlay::opens_at_once(fd, self.device());
            self.next_place().set(mount, at_once);
        }
    }

    /// The place for another mount. Two threads may take the same one. The next file of that mount takes another.
    fn next_place(&self) -> &KnownMount {
        let place = self.next_mount.fetch_add(1, Relaxed) % self.mounts.len();
        &self.mounts[place]
    }

    fn has_mount(&self, mount: u64) -> bool {
        self.mounts.iter().any(|known| known.is(mount))
    }

    /// Returns true if files of this mount were asked for their metadata.
    fn has_mount_not_opened(&self, mount: u64) -> bool {
        self.mounts.iter().any(|known| known.is_not_opened(mount))
    }

    fn is_at_once(&self) -> bool {
        OPEN_AT_ONCE.contains(&self.magic())
    }

    /// Returns true if files of this mount can be opened without waiting.
    fn opens_at_once_on(&self, mount: u64) -> bool {
        match self.is_overlay() {
            true => self.mounts.iter().any(|it| it.is_overlay_at_once(mount)),
            false => self.is_at_once() && self.has_mount(mount),
        }
    }
}

/// The first filesystem that is such.
fn find(is_one: impl Fn(&Filesystem) -> bool) -> Option<Arc<Filesystem>> {
    let seen = seen().read().unwrap_or_else(PoisonError::into_inner);
    seen.filesystems.values().find(|fs| is_one(fs)).cloned()
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
