//! A mount that is unmounted on drop.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::{Doing, Error, Result};
use crate::janitor::Claim;

/// The time to wait for a busy mount until it is detached. A loop device closes its file with a
/// small delay.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time to wait for a busy mount that cannot be detached instead.
const MORE_PATIENCE: Duration = Duration::from_secs(3);

/// A mount that is unmounted on drop. A busy mount is detached and ends with its last user.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    source: PathBuf,
    filesystem: String,
    options: CString,
    /// Dropped after the mount is gone.
    _claim: Claim,
}

impl Mount {
    /// Mounts `source` on the directory `path`. `options` are the filesystem's own options in
    /// mount(8)'s notation (`noquota,sunit=8`), without flags like `noatime`.
    pub fn new(
        source: impl AsRef<Path>,
        path: impl AsRef<Path>,
        filesystem: &str,
        options: &str,
    ) -> Result<Self> {
        let (source, path) = (source.as_ref(), path.as_ref());
        let doing = || {
            let (source, path) = (source.display(), path.display());
            format!("mounting {source} ({filesystem}) on {path}")
        };
        // The janitor and the kernel's list of mounts use the canonical path.
        let path = path.canonicalize().doing(doing)?;
        let options = CString::new(options).map_err(|_| {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "NUL byte in the options");
            Error::new(doing(), cause)
        })?;
        let claim = Claim::unmount(&path)?;
        let mounted = Mount {
            path,
            source: source.into(),
            filesystem: filesystem.into(),
            options,
            _claim: claim,
        };
        mounted.mount().doing(doing)?;
        Ok(mounted)
    }

    /// Unmounts the filesystem and mounts it again, so that the kernel's caches are empty.
    ///
    /// # Errors
    ///
    /// If the mount is still busy after a short wait. It then stays mounted.
    pub fn renew(&self) -> Result<()> {
        self.renew_after(|| Ok(()))
    }

    /// As [`renew`](Mount::renew), and calls `between` while the filesystem is not mounted.
    pub(crate) fn renew_after(&self, between: impl FnOnce() -> Result<()>) -> Result<()> {
        let doing = || format!("mounting {} again", self.path.display());
        match unmount_patiently(&self.path, MORE_PATIENCE) {
            Err(Errno::BUSY) => {
                let cause = "the mount is busy: close its files and leave its directories";
                return Err(Error::new(doing(), io::Error::other(cause)));
            }
            other => other.doing(doing)?,
        }
        let between = between();
        self.mount_patiently().doing(doing)?;
        between
    }

    /// Mounts the filesystem. A process that is just being started may have a copy of a descriptor
    /// that has the device open exclusively.
    fn mount_patiently(&self) -> io::Result<()> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.mount() {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < give_up => {
                    thread::sleep(Duration::from_millis(2));
                }
                other => return other,
            }
        }
    }

    fn mount(&self) -> io::Result<()> {
        let (source, options) = (&self.source, self.options.as_c_str());
        let flags = MountFlags::empty();
        Ok(mount(
            source,
            &self.path,
            &*self.filesystem,
            flags,
            options,
        )?)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        take_down(&self.path);
    }
}

/// Unmounts `path`. If it stays busy, requests to a FUSE mount are made to fail, and the mount is
/// detached.
pub(crate) fn take_down(path: &Path) {
    if unmount_patiently(path, PATIENCE) == Err(Errno::BUSY) {
        // Force ends the requests of a FUSE mount, whatever it returns.
        let _ = unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE);
        // Fails if the mount is already gone.
        let _ = unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    }
}

fn unmount_patiently(path: &Path, patience: Duration) -> std::result::Result<(), Errno> {
    let give_up = Instant::now() + patience;
    loop {
        match unmount(path, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}
