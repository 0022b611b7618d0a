//! One open file and what has been learnt of it. Cheap to clone; every operation holds one, so a
//! descriptor is never closed while the kernel may use it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::OFlags;

use crate::alignment::Alignment;
use crate::engine::Slot;
use crate::error::{Error, Result};
use crate::kernel::{Filesystem, Learnt};
use crate::read::history::History;
use crate::read::plan::{Facts, Mode};
use crate::{residency, sys};

/// An open file, as operations hold it: the descriptor, and what its reads have taught.
///
/// All clones are the same open file and share its history. The descriptor is closed when the
/// last clone is dropped and no operation is in flight on it.
#[derive(Clone, Debug)]
pub struct Handle(
    Arc<Inner>,
    /// Its place among the files registered with a ring.
    Option<Arc<Slot>>,
);

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    regular: bool,
    /// Whether its reads and writes may wait without end.
    unbounded: bool,
    seekable: bool,
    direct: bool,
    /// What O_DIRECT demands of it; boxed, because few files are open so.
    alignment: Option<Box<Alignment>>,
    /// Whether its misaligned reads go through a window.
    unaligned: bool,
    mode: Option<Mode>,
    nowait_read: Learnt,
    nowait_write: Learnt,
    filesystem: Arc<Filesystem>,
    history: History,
    residency: residency::Once,
    /// Whether the file was told to have no readahead.
    strict: AtomicBool,
    path: Option<Arc<Path>>,
}

impl Handle {
    /// Takes in an open descriptor of any kind.
    ///
    /// # Errors
    /// What fstat(2), fstatfs(2) or fcntl(2) say.
    pub fn new(fd: impl Into<OwnedFd>) -> Result<Handle> {
        Handle::with(fd.into(), None, None)
    }

    /// Takes in an open descriptor, with a mode of its own instead of its engine's.
    ///
    /// [`Mode::Strict`] puts FADV_RANDOM on the open file (also on other descriptors of it): the
    /// kernel's readahead would be paid for by the caller.
    ///
    /// # Errors
    /// As [`new`](Handle::new).
    pub fn with_mode(fd: impl Into<OwnedFd>, mode: Mode) -> Result<Handle> {
        Handle::with(fd.into(), None, Some(mode))
    }

    /// Takes in a descriptor with the path it was opened by and a mode of its own.
    pub(crate) fn with(fd: OwnedFd, path: Option<Arc<Path>>, mode: Option<Mode>) -> Result<Handle> {
        let failed = |errno| Error::os("open", errno).on(path.as_ref());
        let identity = sys::stat::identity(fd.as_fd()).map_err(failed)?;
        let flags = sys::stat::flags(fd.as_fd()).map_err(failed)?;
        Ok(Handle::known(fd, identity, flags, path, mode))
    }

    /// Takes in any descriptor. One of which the kernel will not say what it is counts as no regular
    /// file: nothing is tried on it, and its calls say what is wrong.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_any(fd: OwnedFd) -> Handle {
        let identity = sys::stat::identity(fd.as_fd()).unwrap_or_default();
        let flags = sys::stat::flags(fd.as_fd()).unwrap_or(OFlags::empty());
        Handle::known(fd, identity, flags, None, None)
    }

    fn known(
        fd: OwnedFd,
        identity: sys::stat::Identity,
        flags: OFlags,
        path: Option<Arc<Path>>,
        mode: Option<Mode>,
    ) -> Handle {
        let filesystem = Filesystem::of(identity.filesystem);
        let direct = flags.contains(OFlags::DIRECT);
        let alignment = if direct { Alignment::of(&fd) } else { Ok(None) };
        let alignment = alignment.ok().flatten().map(Box::new);
        let inner = Arc::new(Inner {
            regular: identity.regular,
            unbounded: !identity.bounded || filesystem.is_in_kernel(),
            seekable: identity.regular || sys::stat::is_seekable(fd.as_fd()),
            direct,
            alignment,
            unaligned: false,
            mode,
            nowait_read: Learnt::like(&filesystem.nowait_read),
            nowait_write: Learnt::like(&filesystem.nowait_write),
            filesystem,
            history: History::default(),
            residency: residency::Once::new(),
            strict: AtomicBool::new(false),
            fd,
            path,
        });
        let handle = Handle(inner, None);
        if mode == Some(Mode::Strict) {
            handle.leave_readahead_to_the_engine();
        }
        handle
    }

    /// Readahead leaves marks on pages, and a cached read of a marked page starts the next one: in
    /// the caller. A strict file has none but what the engine's workers do for it. Done once, at
    /// the latest by the first strict read of a handle that leaves its mode to the engine.
    fn leave_readahead_to_the_engine(&self) {
        if self.0.regular && !self.0.strict.load(Relaxed) && !self.0.strict.swap(true, Relaxed) {
            let _ = rustix::fs::fadvise(&self.0.fd, 0, None, rustix::fs::Advice::Random);
        }
    }

    /// The filesystem it lies on, and what was learnt of that.
    pub fn filesystem(&self) -> &Filesystem {
        &self.0.filesystem
    }

    /// Whether it was opened with O_DIRECT.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    /// What O_DIRECT demands of its reads and writes; `None` if it is not open with that, or nobody
    /// says. Asked for once, when the descriptor is taken in.
    pub fn alignment(&self) -> Option<Alignment> {
        self.0.alignment.as_deref().copied()
    }

    /// The same open file, whose misaligned reads go through aligned memory of our own. Nobody else
    /// may have a clone of it yet.
    pub(crate) fn with_unaligned_reads(mut self) -> Handle {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.unaligned = inner.direct;
        }
        self
    }

    /// What the window of a misaligned read has to keep to, if such reads go through one.
    pub(crate) fn window(&self) -> Option<Alignment> {
        let needed = || self.alignment().unwrap_or(Alignment::SAFE);
        self.0.unaligned.then(needed)
    }

    /// Whether it is a regular file: only those have a page cache to try.
    pub fn is_regular(&self) -> bool {
        self.0.regular
    }

    /// Whether its reads and writes may wait without end, for another program: those of pipes,
    /// sockets, terminals and the like.
    pub(crate) fn waits_without_end(&self) -> bool {
        self.0.unbounded
    }

    /// Whether it has offsets: pipes, sockets and terminals don't, and say ESPIPE to positional
    /// reads and writes.
    pub fn is_seekable(&self) -> bool {
        self.0.seekable
    }

    /// Whether it has O_NONBLOCK now: anybody who shares it may have set that.
    pub(crate) fn is_nonblocking(&self) -> bool {
        sys::stat::flags(self.as_fd()).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// The path it was opened by, if it was.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The descriptor back, if this is the last clone and nothing is in flight on it.
    ///
    /// # Errors
    /// The handle itself, if somebody still uses it.
    pub fn into_fd(self) -> Result<OwnedFd, Handle> {
        // The slot first: it may hold the file until a ring was told.
        let Handle(inner, slot) = self;
        drop(slot);
        Arc::try_unwrap(inner)
            .map(|inner| inner.fd)
            .map_err(|inner| Handle(inner, None))
    }

    /// The same file, without a slot.
    pub(crate) fn plain(&self) -> Handle {
        Handle(self.0.clone(), None)
    }

    /// The same file, in this slot.
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

    pub(crate) fn residency(&self) -> &residency::Once {
        &self.0.residency
    }

    /// What the plan has to know. Asks for the residency source only where the plan depends on it.
    pub(crate) fn facts(&self, mode: Mode) -> Facts {
        if mode == Mode::Strict {
            self.leave_readahead_to_the_engine();
        }
        let nowait_refused = self.0.nowait_read.is_refused() || !self.0.regular;
        let asks = mode == Mode::Strict || nowait_refused;
        let memory = self.0.filesystem.is_memory();
        Facts {
            direct: self.0.direct,
            memory: memory && self.0.regular,
            nowait_refused,
            nowait_works: self.0.nowait_read.works(),
            residency: asks && !memory && self.0.regular && residency::can_ask(self),
        }
    }

    /// A cached read worked.
    pub(crate) fn nowait_read_worked(&self) {
        self.0.nowait_read.worked();
        self.0.filesystem.nowait_read.worked();
    }

    /// A cached read was refused: by this file surely, by its filesystem perhaps.
    pub(crate) fn nowait_read_refused(&self) {
        self.0.nowait_read.refused();
        self.0.filesystem.nowait_read.refused_once();
    }

    /// Whether `RWF_NOWAIT` reads are known to be refused on this file.
    pub(crate) fn nowait_read(&self) -> &Learnt {
        &self.0.nowait_read
    }

    /// Whether a buffered write with `RWF_NOWAIT` is worth a try.
    pub(crate) fn nowait_write(&self) -> &Learnt {
        &self.0.nowait_write
    }

    /// A NOWAIT write was answered: by data taken or by "not now", either proves support.
    pub(crate) fn nowait_write_worked(&self) {
        self.0.nowait_write.worked();
        self.0.filesystem.nowait_write.worked();
    }

    /// A NOWAIT write was refused.
    pub(crate) fn nowait_write_refused(&self) {
        self.0.nowait_write.refused();
        self.0.filesystem.nowait_write.refused_once();
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_file_is_at_most_200_bytes() {
        // With the counts that `Arc` adds.
        assert!(size_of::<Inner>() + 16 <= 200, "{}", size_of::<Inner>());
    }
}
