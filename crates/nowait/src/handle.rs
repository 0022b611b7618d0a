//! An open file and its learnt properties. It is cheap to clone. Every operation holds a clone, so
//! a descriptor is never closed while the kernel may use it.

pub(crate) mod registered;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::handle::registered::{OpenFile, Slot};
use crate::kernel::alignment::Alignment;
use crate::kernel::filesystem::Filesystem;
use crate::kernel::support::SupportCell;
use crate::policy::false_misses::FalseMisses;
use crate::policy::history::History;
use crate::policy::mode::Mode;
use crate::policy::readahead::Readahead;
#[cfg(feature = "tokio")]
use crate::sys::stat::FilesystemId;
use crate::sys::stat::Known;
use crate::sys::sync::{Mutex, MutexGuard, lock};
use crate::sys::{self, Errno};
use nowait_residency::Probe;
use nowait_residency::magic;
use nowait_residency::source_cache::SourceCache;

/// An open file as operations hold it: the descriptor and the history of its reads.
///
/// All clones refer to the same open file and share its history. The descriptor is closed when the
/// last clone is dropped and no operation on it is in flight.
#[derive(Clone, Debug)]
pub struct Handle(
    Arc<Inner>,
    /// The slot among the files registered with a ring.
    Option<Arc<Slot>>,
);

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    regular: bool,
    /// True for a regular file that is neither in memory, nor open with O_DIRECT, nor strict by itself.
    ordinary: bool,
    /// True if reads and writes of the file may wait without limit.
    unbounded: bool,
    seekable: bool,
    /// See [`Handle::fits_ring`].
    fits_ring: bool,
    direct: bool,
    /// True if each write is synced (O_SYNC, O_DSYNC, or a mount with the option `sync`).
    syncs: bool,
    /// True if it is open for reading only.
    reads_only: bool,
    /// The alignment that O_DIRECT needs. It is boxed, because few files use O_DIRECT.
    alignment: Option<Box<Alignment>>,
    /// True if unaligned reads of the file go through an aligned buffer.
    unaligned: bool,
    mode: Option<Mode>,
    nowait_read: SupportCell,
    false_misses: FalseMisses,
    nowait_write: SupportCell,
    /// See [`Handle::is_served`].
    served: bool,
    filesystem: Arc<Filesystem>,
    history: History,
    readahead: Readahead,
    residency: SourceCache,
    /// True if FADV_RANDOM was set on the file.
    fadv_random: AtomicBool,
    /// True if the descriptor has O_NONBLOCK, which rings honour, and only because it was opened so.
    opened_nonblocking: AtomicBool,
    /// See [`Handle::ends_at`].
    size_when_opened: Option<u64>,
    /// Serializes poll(2) and the read after it, so that no other reader takes the data.
    poll_lock: Mutex<()>,
    path: Option<Arc<Path>>,
}

impl Handle {
    /// Converts an open descriptor of any file type. On NFS and FUSE it waits for the server, which
    /// fstatfs(2) asks.
    ///
    /// # Errors
    /// The errors of fstat(2), fstatfs(2) or fcntl(2).
    pub fn new(fd: impl Into<OwnedFd>) -> Result<Handle> {
        Handle::with(fd.into(), None, None)
    }

    /// Converts an open descriptor, with its own mode instead of the engine's.
    ///
    /// [`Mode::Strict`] sets FADV_RANDOM on the open file, which also affects duplicates of the
    /// descriptor. Otherwise the calling thread would pay for the kernel's readahead.
    ///
    /// # Errors
    /// As [`new`](Handle::new).
    pub fn with_mode(fd: impl Into<OwnedFd>, mode: Mode) -> Result<Handle> {
        Handle::with(fd.into(), None, Some(mode))
    }

    /// Converts a descriptor, with the path it was opened by and its own mode.
    pub(crate) fn with(fd: OwnedFd, path: Option<Arc<Path>>, mode: Option<Mode>) -> Result<Handle> {
        match Properties::of(&fd) {
            Ok(properties) => Ok(Handle::known(fd, properties, path, mode)),
            Err(errno) => Err(Error::os("open", errno).on(path.as_ref())),
        }
    }

    /// As [`with`](Handle::with), if that is known to wait for no server. Returns the descriptor
    /// otherwise.
    pub(crate) fn with_at_once(
        fd: OwnedFd,
        path: Option<Arc<Path>>,
        mode: Option<Mode>,
    ) -> Result<Handle, OwnedFd> {
        let known = sys::stat::known(fd.as_fd()).ok();
        let known = known.filter(Filesystem::is_identified_at_once);
        match known.map(|file| Properties::of_known(&fd, file)) {
            Some(Ok(properties)) => Ok(Handle::known(fd, properties, path, mode)),
            // A worker returns the error.
            Some(Err(_)) | None => Err(fd),
        }
    }

    /// As [`new`](Handle::new), or as [`with_mode`](Handle::with_mode) with a mode. Returns the
    /// descriptor with an error instead of closing it.
    ///
    /// # Errors
    /// As [`new`](Handle::new).
    pub fn try_new(fd: OwnedFd, mode: Option<Mode>) -> Result<Handle, (Error, OwnedFd)> {
        match Properties::of(&fd) {
            Ok(properties) => Ok(Handle::known(fd, properties, None, mode)),
            Err(errno) => Err((Error::os("open", errno), fd)),
        }
    }

    /// Converts the descriptor of a regular file of this filesystem that is open for reading, and without
    /// further flags.
    pub(crate) fn of_opened(
        fd: OwnedFd,
        file: Known,
        filesystem: Arc<Filesystem>,
        path: Option<Arc<Path>>,
        mode: Option<Mode>,
    ) -> Handle {
        let properties = Properties {
            file,
            filesystem,
            flags: OFlags::RDONLY,
            syncs: false,
        };
        Handle::known(fd, properties, path, mode)
    }

    /// The same file of overlayfs, with its residency source. The handle must not have clones yet.
    pub(crate) fn with_layers(mut self, source: SourceCache) -> Handle {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.residency = source;
        }
        self
    }

    /// Converts any descriptor. If its type cannot be determined, it counts as not regular: nothing
    /// is tried on it, and calls return the kernel's errors.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_any(fd: OwnedFd) -> Handle {
        let properties = Properties::of(&fd).unwrap_or_else(|_| Properties::unknown(&fd));
        Handle::known(fd, properties, None, None)
    }

    fn known(
        fd: OwnedFd,
        properties: Properties,
        path: Option<Arc<Path>>,
        mode: Option<Mode>,
    ) -> Handle {
        let Properties {
            file,
            filesystem,
            flags,
            syncs,
        } = properties;
        let direct = flags.contains(OFlags::DIRECT);
        let alignment = if direct { Alignment::of(&fd) } else { Ok(None) };
        let alignment = alignment.ok().flatten().map(Box::new);
        let seekable = file.is_regular() || sys::stat::is_seekable(fd.as_fd());
        let may_try = !direct && !filesystem.is_memory() && mode != Some(Mode::Strict);
        let inner = Arc::new(Inner {
            regular: file.is_regular(),
            ordinary: file.is_regular() && may_try,
            unbounded: !file.is_bounded() || filesystem.is_in_kernel(),
            seekable,
            fits_ring: seekable && filesystem.magic() != magic::FUSE,
            direct,
            served: filesystem.is_served(file.looks_local),
            // O_DSYNC is one of the two bits of O_SYNC.
            syncs: flags.intersects(OFlags::SYNC) || syncs,
            reads_only: flags & OFlags::RWMODE == OFlags::RDONLY,
            alignment,
            unaligned: false,
            mode,
            nowait_read: SupportCell::like(&filesystem.nowait_read),
            false_misses: FalseMisses::default(),
            nowait_write: SupportCell::like(&filesystem.nowait_write),
            filesystem,
            history: History::default(),
            readahead: Readahead::default(),
            residency: SourceCache::default(),
            fadv_random: AtomicBool::new(false),
            opened_nonblocking: AtomicBool::new(false),
            size_when_opened: None,
            poll_lock: Mutex::new(()),
            fd,
            path,
        });
        let handle = Handle(inner, None);
        if mode == Some(Mode::Strict) {
            handle.leave_readahead_to_the_engine();
        }
        handle
    }

    /// Turns off the kernel's readahead for a strict file. Readahead leaves marks on pages, and a
    /// cached read of a marked page starts the next readahead in the calling thread. A strict file
    /// has only the readahead that the engine's workers start. This is done once, at the latest by
    /// the first strict read of a handle without its own mode.
    pub(crate) fn leave_readahead_to_the_engine(&self) {
        if self.0.regular
            && !self.0.fadv_random.load(Relaxed)
            && !self.0.fadv_random.swap(true, Relaxed)
        {
            let _ = rustix::fs::fadvise(&self.0.fd, 0, None, rustix::fs::Advice::Random);
        }
    }

    /// The filesystem of the file, and its learnt properties.
    pub fn filesystem(&self) -> &Filesystem {
        &self.0.filesystem
    }

    /// Returns true if the file was opened with O_DIRECT.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.0.direct
    }

    /// Returns true if each write waits for the device: the file was opened with O_SYNC or O_DSYNC,
    /// or its filesystem is mounted with the option `sync`.
    pub(crate) fn syncs(&self) -> bool {
        self.0.syncs
    }

    /// The alignment that O_DIRECT needs for reads and writes. `None` if the file is not open with
    /// O_DIRECT or the kernel does not report an alignment. It is determined once, when the handle
    /// is created.
    pub fn alignment(&self) -> Option<Alignment> {
        self.0.alignment.as_deref().copied()
    }

    /// The same open file, whose unaligned reads go through an aligned buffer. It must not have
    /// clones yet.
    pub(crate) fn with_unaligned_reads(mut self) -> Handle {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.unaligned = inner.direct;
        }
        self
    }

    /// The same open file, whose descriptor has O_NONBLOCK. The flag is cleared before a ring uses the file. The
    /// handle must not have clones yet. [`clear_nonblocking`](Handle::clear_nonblocking) must be called before the
    /// program gets the descriptor.
    #[cfg(feature = "tokio")]
    pub(crate) fn opened_nonblocking(mut self) -> Handle {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            *inner.opened_nonblocking.get_mut() = true;
        }
        self
    }

    /// The same file, which had this size after it was opened and is read once from its beginning to its end. The handle
    /// must not have clones yet.
    #[cfg(feature = "tokio")]
    pub(crate) fn expecting_end(mut self, size: u64) -> Handle {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.size_when_opened = Some(size);
        }
        self
    }

    /// Returns true if a short read that ends at this offset has reached the end of the file, of a file that is
    /// [read once](Self::expecting_end).
    pub(crate) fn ends_at(&self, offset: u64) -> bool {
        self.0.size_when_opened == Some(offset)
    }

    /// The alignment of the buffer for unaligned reads, if such reads are permitted.
    pub(crate) fn bounce_alignment(&self) -> Option<Alignment> {
        let needed = || self.alignment().unwrap_or(Alignment::SAFE);
        self.0.unaligned.then(needed)
    }

    /// Returns true if it is a regular file. Only regular files have a page cache to try.
    pub fn is_regular(&self) -> bool {
        self.0.regular
    }

    /// Returns true if reads and writes may wait for another program without limit: those of pipes,
    /// sockets, terminals and similar files.
    pub(crate) fn waits_without_end(&self) -> bool {
        self.0.unbounded
    }

    /// Returns true if the file has offsets. Pipes, sockets and terminals have none: positional
    /// reads and writes fail with ESPIPE.
    pub fn is_seekable(&self) -> bool {
        self.0.seekable
    }

    /// Returns true if a ring reads and writes the file at offsets as pread(2) and pwrite(2) do. The ring ignores
    /// offsets on pipes and sockets. After a short read of a FUSE file with `FOPEN_DIRECT_IO` it continues at the
    /// wrong offset.
    #[inline]
    pub(crate) fn fits_ring(&self) -> bool {
        self.0.fits_ring && self.clear_nonblocking().is_ok()
    }

    /// Clears O_NONBLOCK, if the descriptor was opened with it.
    #[inline]
    pub(crate) fn clear_nonblocking(&self) -> Result<(), Errno> {
        match self.0.opened_nonblocking.load(Relaxed) {
            true => self.clear_nonblocking_once(),
            false => Ok(()),
        }
    }

    #[cold]
    fn clear_nonblocking_once(&self) -> Result<(), Errno> {
        // A second call would clear flags that the program has set after the first one.
        let _once = lock(&self.0.poll_lock);
        if self.0.opened_nonblocking.load(Relaxed) {
            rustix::fs::fcntl_setfl(&self.0.fd, OFlags::empty())?;
            self.0.opened_nonblocking.store(false, Relaxed);
        }
        Ok(())
    }

    /// Returns true if O_NONBLOCK is set now. Every holder of the open file can change it.
    pub(crate) fn is_nonblocking(&self) -> bool {
        sys::stat::flags(self.as_fd()).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// The path by which the file was opened, if it was.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the descriptor, if this is the last clone and no operation on it is in flight.
    ///
    /// # Errors
    /// The handle itself, if the descriptor is still in use.
    pub fn into_fd(self) -> Result<OwnedFd, Handle> {
        // Drop the slot first: it may hold the file until a ring was informed.
        let Handle(inner, slot) = self;
        drop(slot);
        Arc::try_unwrap(inner)
            .map(|inner| inner.fd)
            .map_err(|inner| Handle(inner, None))
    }

    /// Closes the descriptor, and returns the error of close(2). If other clones or operations use
    /// the descriptor, and close(2) may fail, a duplicate is closed: the filesystem reports the same
    /// errors.
    ///
    /// # Errors
    /// Those of close(2), or of dup(2) if a duplicate is closed.
    pub fn close(self) -> Result<()> {
        let path = self.shared_path().cloned();
        let closed = match self.into_fd() {
            Ok(fd) => sys::close::close(fd),
            // Nothing can be lost.
            Err(used) if used.closes_at_once() => Ok(()),
            Err(used) => rustix::io::fcntl_dupfd_cloexec(&used, 0).and_then(sys::close::close),
        };
        closed.map_err(|errno| Error::os("close", errno).on(path.as_ref()))
    }

    /// Returns true if close(2) does not wait: the file is open for reading only, and its filesystem
    /// does nothing when a descriptor is closed. overlayfs asks the filesystem of a layer, which is taken
    /// for a local one if it has the attribute `nodump` (chattr(1)), or `compressed` and the file is
    /// immutable: no server has either.
    pub fn closes_at_once(&self) -> bool {
        self.0.filesystem.is_local() && !self.0.served && self.0.reads_only
    }

    /// Returns true if an ordinary read of cached data, or fstat(2), may wait for a server: on NFS, FUSE,
    /// SMB, Ceph, Lustre, AFS and 9p, which ask for the size of a file from time to time, and on overlayfs if
    /// the layer of the file does not look local. Workers make such calls for futures.
    ///
    /// ```
    /// let file = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
    /// if file.is_served() {
    ///     println!("workers read it, also if it is cached");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_served(&self) -> bool {
        self.0.served
    }

    /// The same file without a slot.
    pub(crate) fn plain(&self) -> Handle {
        Handle(self.0.clone(), None)
    }

    /// The open file alone, as held by a registered slot.
    pub(crate) fn open_file(&self) -> Arc<dyn OpenFile> {
        self.0.clone()
    }

    /// The same file with this slot.
    pub(crate) fn in_slot(self, slot: Arc<Slot>) -> Handle {
        Handle(self.0, Some(slot))
    }

    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.1.as_deref()
    }

    pub(crate) fn shared_path(&self) -> Option<&Arc<Path>> {
        self.0.path.as_ref()
    }

    pub(crate) fn mode(&self) -> Option<Mode> {
        self.0.mode
    }

    pub(crate) fn history(&self) -> &History {
        &self.0.history
    }

    pub(crate) fn readahead(&self) -> &Readahead {
        &self.0.readahead
    }

    pub(crate) fn residency(&self) -> &SourceCache {
        &self.0.residency
    }

    /// Queries the residency of the file, with the source that was chosen for it.
    pub(crate) fn probe(&self) -> Probe<'_> {
        Probe::with_cache(self.as_fd(), &self.0.residency, self.shared_path())
    }

    /// Returns true if a residency source is correct for this file.
    pub(crate) fn has_residency(&self) -> bool {
        self.0.residency.is_available(self.as_fd())
    }

    /// The bytes of a range that are in the page cache. `None` if the kernel does not report them,
    /// and for files without a page cache or on a server.
    pub(crate) fn resident_bytes(&self, offset: u64, len: usize) -> Option<u32> {
        let has_pages = self.0.regular && !self.0.filesystem.is_memory();
        let cacheable = has_pages && !self.0.direct && !self.0.served;
        cacheable
            .then(|| {
                self.0
                    .residency
                    .count(self.as_fd(), offset, len, self.0.filesystem.is_overlay())
            })
            .flatten()
            .and_then(|bytes| u32::try_from(bytes).ok())
    }

    /// The tries of the file that have failed although its page was resident.
    pub(crate) fn false_misses(&self) -> &FalseMisses {
        &self.0.false_misses
    }

    /// Records that cached reads of this file do not work any more.
    pub(crate) fn nowait_read_stopped(&self) {
        self.0.nowait_read.refused();
    }

    /// Records that a cached read worked.
    pub(crate) fn nowait_read_worked(&self) {
        self.0.nowait_read.worked();
        self.0.filesystem.nowait_read.worked();
    }

    /// Records that a cached read was refused. The filesystem counts as refusing only if none has
    /// worked on it.
    pub(crate) fn nowait_read_refused(&self) {
        self.0.nowait_read.refused();
        self.0.filesystem.nowait_read.refused_once();
    }

    /// Returns true if `RWF_NOWAIT` works on the file, and its recent reads were hits. In eager mode, the plan of the
    /// next read is then to try the page cache, whatever the costs are. A further hit changes neither the history of
    /// the file nor what is known of `RWF_NOWAIT`.
    #[inline]
    pub(crate) fn expects_hits(&self) -> bool {
        let file = &*self.0;
        file.ordinary
            && file.nowait_read.works()
            && file.history.always_hits()
            && file.false_misses.is_none()
    }

    /// Waits until no other worker reads this file after poll(2) has reported data.
    pub(crate) fn lock_poll(&self) -> MutexGuard<'_, ()> {
        lock(&self.0.poll_lock)
    }

    /// Support for `RWF_NOWAIT` reads on this file.
    pub(crate) fn nowait_read(&self) -> &SupportCell {
        &self.0.nowait_read
    }

    /// Returns true if `RWF_NOWAIT` reads have worked on this file, or on others of its filesystem
    /// and were not refused on this one.
    #[cfg(feature = "tokio")]
    pub(crate) fn supports_nowait_read(&self) -> bool {
        let (own, others) = (&self.0.nowait_read, &self.0.filesystem.nowait_read);
        own.works() || others.works() && !own.is_refused()
    }

    /// Support for buffered `RWF_NOWAIT` writes on this file.
    pub(crate) fn nowait_write(&self) -> &SupportCell {
        &self.0.nowait_write
    }

    /// Records that a NOWAIT write worked: it wrote bytes or failed with EAGAIN.
    pub(crate) fn nowait_write_worked(&self) {
        self.0.nowait_write.worked();
        self.0.filesystem.nowait_write.worked();
    }

    /// Records that a NOWAIT write was refused.
    pub(crate) fn nowait_write_refused(&self) {
        self.0.nowait_write.refused();
        self.0.filesystem.nowait_write.refused_once();
    }
}

/// The properties of an open file of which a handle is made.
struct Properties {
    file: Known,
    filesystem: Arc<Filesystem>,
    flags: OFlags,
    /// True if the filesystem is mounted with the option `sync`. Not asked for if the file is open for reading
    /// only.
    syncs: bool,
}

impl Properties {
    fn of(fd: &OwnedFd) -> Result<Properties, Errno> {
        Properties::of_known(fd, sys::stat::known(fd.as_fd())?)
    }

    fn of_known(fd: &OwnedFd, file: Known) -> Result<Properties, Errno> {
        let flags = sys::stat::flags(fd.as_fd())?;
        let (filesystem, syncs) = if flags & OFlags::RWMODE == OFlags::RDONLY {
            (Filesystem::of(fd.as_fd(), &file)?, false)
        } else {
            Filesystem::asked(fd.as_fd(), &file)?
        };
        Ok(Properties {
            file,
            filesystem,
            flags,
            syncs,
        })
    }

    #[cfg(feature = "tokio")]
    fn unknown(fd: &OwnedFd) -> Properties {
        Properties {
            file: Known::nothing(),
            filesystem: Filesystem::with_id(FilesystemId::default()),
            flags: sys::stat::flags(fd.as_fd()).unwrap_or(OFlags::RDWR),
            syncs: false,
        }
    }
}

impl AsFd for Handle {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl AsFd for Inner {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl OpenFile for Inner {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_file_is_at_most_200_bytes() {
        // Including the counters of `Arc`.
        assert!(size_of::<Inner>() + 16 <= 200, "{}", size_of::<Inner>());
    }
}
