//! Opening a file in the calling thread, if that does not block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, OFlags, StatxAttributes, StatxFlags};

use super::reopen::open_held;
use crate::handle::Handle;
use crate::kernel::filesystem::Filesystem;
use crate::metadata::Metadata;
use crate::policy::mode::Mode;
use crate::sys::Errno;
use crate::sys::reopen::Descriptors;
use crate::sys::resolve::resolve_cached;
use crate::sys::stat::in_memory;

/// A regular file that is open for reading, and nothing else.
pub(crate) struct Opened {
    /// O_NONBLOCK is set. Rings honour it.
    fd: OwnedFd,
    /// The basic metadata before the file was opened.
    pub(crate) metadata: Metadata,
    /// The size, as it was asked for last: by [`open_cached`] after the file was opened.
    pub(crate) size: u64,
    pub(crate) filesystem: Arc<Filesystem>,
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
        let changed = (self.metadata.ctime(), self.metadata.ctime_nsec());
        let is_layered = self.filesystem.is_overlay();
        let file = self.metadata.known();
        let handle = Handle::of_opened(self.fd, file, self.filesystem, path, mode);
        match is_layered {
            true => handle.changed_before(changed),
            false => handle,
        }
    }
}

#[cfg(feature = "tokio")]
impl Opened {
    /// The same, for a handle that is not given to the program. No call is made.
    pub(crate) fn into_private_handle(self) -> Handle {
        self.handle(None, None).opened_nonblocking()
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a file for reading in the calling thread, if that does not block, and asks for its basic
/// metadata. Returns `None` if it might block or has failed: then the engine opens the file and
/// returns the error. The one error that is returned is ENOENT, if the kernel's cache of names says
/// so.
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
    let any = |_: &Filesystem| true;
    open_held_by(path, any, |_, metadata, flags| {
        let fd = resolve_cached(CWD, path, flags | OFlags::NOCTTY)?;
        let opened = rustix::fs::fstat(&fd)?;
        let is_same = (opened.st_dev, opened.st_ino) == (metadata.dev(), metadata.ino());
        let size = opened.st_size.cast_unsigned();
        is_same.then_some((fd, size)).ok_or(Errno::AGAIN)
    })
}

/// As [`open_cached`], for a read with `RWF_NOWAIT` alone, and by one lookup of the path: no file of
/// another type is opened, if /proc is mounted.
pub(crate) fn open_cached_regular(
    path: &Path,
    descriptors: &Descriptors,
) -> Option<Result<Opened, Errno>> {
    let may_work = |filesystem: &Filesystem| !filesystem.nowait_read.is_refused();
    open_held_by(path, may_work, |held, metadata, flags| {
        let by_path = |flags| resolve_cached(CWD, path, flags);
        let fd = open_held(held, flags, descriptors, by_path)?;
        Ok((fd, metadata.len()))
    })
}

fn open_held_by(
    path: &Path,
    is_useful: impl FnOnce(&Filesystem) -> bool,
    open: impl FnOnce(&OwnedFd, &Metadata, OFlags) -> Result<(OwnedFd, u64), Errno>,
) -> Option<Result<Opened, Errno>> {
    let held = match resolve_cached(CWD, path, OFlags::PATH) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Some(Err(Errno::NOENT)),
        Err(_) => return None,
    };
    let stat = in_memory(held.as_fd(), StatxFlags::BASIC_STATS).ok()?;
    let slow = StatxAttributes::ENCRYPTED | StatxAttributes::VERITY;
    let is_slow = stat.stx_attributes.intersects(slow);
    let metadata = Metadata::new(stat);
    if !metadata.is_file() || is_slow {
        return None;
    }
    let filesystem = Filesystem::that_opens_at_once(&metadata.known());
    let filesystem = filesystem.filter(|it| is_useful(it))?;
    let (fd, size) = open(&held, &metadata, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
    Some(Ok(Opened {
        fd,
        metadata,
        size,
        filesystem,
    }))
}
