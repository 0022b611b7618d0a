//! Opening a file in the calling thread, if that does not block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use nowait_residency::source_cache::SourceCache;
use rustix::fs::{CWD, OFlags, StatxAttributes, StatxFlags};

use super::reopen::open_held;
use crate::handle::Handle;
use crate::kernel::filesystem::Filesystem;
use crate::metadata::Metadata;
use crate::policy::mode::Mode;
use crate::sys::Errno;
use crate::sys::reopen::Descriptors;
use crate::sys::resolve::resolve_cached;
use crate::sys::stat::{Known, MNT_ID_UNIQUE, in_memory, statx};

/// A regular file that is open for reading, and nothing else.
pub(crate) struct Opened {
    /// O_NONBLOCK is set. Rings honour it.
    fd: OwnedFd,
    file: Known,
    /// The basic metadata after the file was opened.
    pub(crate) metadata: Metadata,
    filesystem: Arc<Filesystem>,
    /// See [`Handle::with_layers`].
    layers: Option<SourceCache>,
}

impl Opened {
    /// Converts it to a handle.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub(crate) fn into_handle(
        self,
        path: Option<Arc<Path>>,
        mode: Option<Mode>,
    ) -> Result<Handle, Errno> {
        rustix::fs::fcntl_setfl(&self.fd, OFlags::empty())?;
        Ok(self.handle(path, mode))
    }

    fn handle(self, path: Option<Arc<Path>>, mode: Option<Mode>) -> Handle {
        let handle = Handle::of_opened(self.fd, self.file, self.filesystem, path, mode);
        match self.layers {
            Some(layers) => handle.with_layers(layers),
            None => handle,
        }
    }
}

#[cfg(feature = "tokio")]
impl Opened {
    /// Converts it to a handle whose descriptor the program does not get, or not yet: see
    /// [`Handle::opened_nonblocking`]. It makes no system call.
    pub(crate) fn into_private_handle(self) -> Handle {
        self.handle(None, None).opened_nonblocking()
    }
}

/// A regular file for which [`open_cached_regular`] has found no reason to wait.
pub(crate) struct OpenedToRead {
    /// O_NONBLOCK is set.
    fd: OwnedFd,
    /// The basic metadata before the file was opened.
    pub(crate) metadata: Metadata,
    pub(crate) filesystem: Arc<Filesystem>,
}

impl AsFd for OpenedToRead {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The O_PATH descriptor of a regular file that opens at once.
struct Found {
    held: OwnedFd,
    file: Known,
    inode: u64,
    filesystem: Arc<Filesystem>,
}

/// Opens a file for reading in the calling thread, if that does not block. Returns `None` if it might
/// block or has failed: then the engine opens the file and returns the error. The one error that is
/// returned is ENOENT, if the kernel's cache of names says so.
///
/// The kernel resolves the path from its caches or fails (`RESOLVE_CACHED`, openat2(2), Linux
/// 5.12). That is not sufficient: opening a FIFO waits for its other end, and opening a device or a
/// file on a network filesystem may wait as well. Therefore the path is first opened with O_PATH,
/// and its type is asked for. Everything except regular files on filesystems that are known not to
/// wait is left to the engine. So are encrypted files and files with verity, whose keys and hashes
/// must be read. O_NONBLOCK avoids waiting for a lease (fcntl(2)). A wait for a permission event
/// (fanotify(7)) cannot be avoided.
///
/// The path is then resolved again, which takes less time than to open the file of the O_PATH
/// descriptor. If it leads to another file by now, that file is closed and left to the engine.
pub(crate) fn open_cached(path: &Path) -> Option<Result<Opened, Errno>> {
    let found = match find(path)? {
        Ok(found) => found,
        Err(errno) => return Some(Err(errno)),
    };
    let is_layered = found.filesystem.is_overlay();
    let layers = is_layered.then(|| layers(&found.held)).flatten();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = resolve_cached(CWD, path, flags).ok()?;
    let metadata = Metadata::new(statx(fd.as_fd(), StatxFlags::BASIC_STATS).ok()?);
    if (metadata.dev(), metadata.ino()) != (found.file.device, found.inode) {
        return None;
    }
    Some(Ok(Opened {
        fd,
        file: found.file,
        metadata,
        filesystem: found.filesystem,
        layers,
    }))
}

/// As [`open_cached`], for a read with `RWF_NOWAIT` alone, with the metadata, and by one lookup of the
/// path: no file of another type is opened, if /proc is mounted.
pub(crate) fn open_cached_regular(
    path: &Path,
    descriptors: &Descriptors,
) -> Option<Result<OpenedToRead, Errno>> {
    let found = match find(path)? {
        Ok(found) if found.filesystem.nowait_read.is_refused() => return None,
        Ok(found) => found,
        Err(errno) => return Some(Err(errno)),
    };
    let fields = StatxFlags::BASIC_STATS | MNT_ID_UNIQUE;
    let metadata = statx(found.held.as_fd(), fields).ok()?;
    let by_path = |flags| resolve_cached(CWD, path, flags);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let fd = open_held(&found.held, flags, descriptors, by_path).ok()?;
    Some(Ok(OpenedToRead {
        fd,
        metadata: Metadata::new(metadata),
        filesystem: found.filesystem,
    }))
}

fn find(path: &Path) -> Option<Result<Found, Errno>> {
    let held = match resolve_cached(CWD, path, OFlags::PATH) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Some(Err(Errno::NOENT)),
        Err(_) => return None,
    };
    let stat = in_memory(held.as_fd()).ok()?;
    let slow = StatxAttributes::ENCRYPTED | StatxAttributes::VERITY;
    let file = Known::of(&stat);
    if !file.is_regular() || stat.stx_attributes.intersects(slow) {
        return None;
    }
    let filesystem = Filesystem::that_opens_at_once(&file)?;
    Some(Ok(Found {
        held,
        file,
        inode: stat.stx_ino,
        filesystem,
    }))
}

/// The residency source of a file of overlayfs that is opened next.
fn layers(held: &OwnedFd) -> Option<SourceCache> {
    let now = SystemTime::now();
    let stat = statx(held.as_fd(), StatxFlags::CTIME).ok()?;
    let changed = (stat.stx_ctime.tv_sec, i64::from(stat.stx_ctime.tv_nsec));
    Some(SourceCache::of_layered(changed, now))
}
