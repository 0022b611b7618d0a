//! Mapped files whose cached parts are read by pointer, without a system call.
//!
//! A [`Mapping`] maps a file, and divides it into *windows* of 2 MiB. A window is *resident* after
//! [`load`](Mapping::load) or [`prefetch`](Mapping::prefetch): it can be read, and is locked in
//! memory (mlock2(2)). [`get`](Mapping::get) borrows bytes of resident windows. An access to them
//! causes no page fault on the device. It does not raise SIGBUS either, because the file cannot be
//! truncated while the mapping holds a *lease* (fcntl(2), `F_SETLEASE`).
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("file");
//! # std::fs::write(&path, vec![7; 10_000])?;
//! use nowait::{File, Mapping};
//! let file = File::blocking_open(&path)?;
//! let mapping = Mapping::new(&file)?;
//! match mapping.blocking_load(0..100) {
//!     Ok(bytes) => assert_eq!(bytes.len(), 100),
//!     // No lease or no locked memory can be had here.
//!     Err(_) => println!("{:?}", mapping.why()),
//! }
//! // This works in any case.
//! let mut buf = vec![0; 4096];
//! assert_eq!(mapping.blocking_read_at(&mut buf[..], 0)?, 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The lease
//! The kernel asks the holder of a lease before a file is opened for writing or truncated. A thread
//! of the library then stops all borrowing, replaces the windows that are borrowed at that moment
//! by private copies, and gives the lease back. The borrowed bytes do not change. Later reads use
//! read(2) as usual.
//!
//! Leases are trusted on ext4, xfs, btrfs and tmpfs. The file must be the user's own, or the
//! process must have `CAP_LEASE`, and no program may have it open for writing. On xfs, no user but
//! root and the process's own may own the file or write to it. [`Mapping::why`] has the reason if
//! bytes cannot be borrowed.
//!
//! # Limits of the promise
//! - A process that is stopped for longer than `/proc/sys/fs/lease-break-time` (45 seconds) loses
//!   the lease.
//! - If there is no memory for the copies, if the process has too many mappings for them
//!   (`vm.max_map_count`), or if the file cannot be read for them, the lease is kept until the
//!   borrowed bytes are returned, at most for that time. The library keeps 32 mappings of one page,
//!   which it gives up for the copies.
//! - A copy replaces a window by one call of mremap(2). The kernel may run out of memory
//!   for its own structures in the middle of that call. Other threads may also use up all mappings
//!   of the process at that moment, including those that the library has just given up. The call
//!   may then leave no bytes at these addresses: an access raises SIGSEGV, or sees memory that
//!   another thread mapped there. The library never uses the addresses again, and keeps the lease
//!   as above.
//! - If a sandbox denies membarrier(2) after the first use of a budget, no window is released for
//!   others any more, and copies stay until their mapping is dropped.
//! - A program that opens the file for writing with `O_NONBLOCK`, as truncate(1) does, gets EAGAIN
//!   while the lease is given back.
//! - The kernel does not ask the holder of the lease if a file is truncated through an overlayfs
//!   that has the file in its upper layer. Map the file of the overlayfs: it is refused.
//! - Some calls drop the pages of a file from memory, and the kernel does not ask the holder of the
//!   lease. The bytes stay as they are, but an access reads them again: it waits for the device,
//!   and raises SIGBUS if the device fails. On xfs, ioctl_fideduperange(2) does so. Programs such
//!   as duperemove call it. The descriptor need not be open for writing: root, the owner of the
//!   file, and users that may write to it can make the call. On kernels before 6.3 that lack a
//!   later correction, `FS_IOC_ENABLE_VERITY` does so, for the same users. The kernel does so with
//!   a page whose memory begins to fail.
//! - In a forked child, `get` returns `None`, and borrowed bytes are empty. A slice that was
//!   obtained from them before the fork must not be used there: the child's memory shows whatever
//!   the file has, and raises SIGBUS if the file was truncated. If the parent ends before such a
//!   child, other programs may wait for that time when they open the file for writing.
//! - The signal of a lease is SIGRTMAX; SIGIO reports that the queue of signals was full. They are
//!   sent to the thread of the library, which blocks them and waits for them. A program should not
//!   wait for these signals itself with sigwait(3) in threads that block them: the library's thread
//!   could take them.
//! - A failure of the memory itself raises SIGBUS, as for all memory.
#![allow(unsafe_code)]

mod borrows;
mod budget;
mod frames;
mod lease;
mod load;
mod mapped;
mod protection;
mod read_at;
mod resident;
mod windows;

use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::AsFd;
use std::sync::Arc;

pub use budget::{Budget, BudgetOptions};
pub use load::Load;
pub use mapped::Stats;
pub use protection::Unavailable;
pub use read_at::ReadAt;
pub use resident::{Resident, SendResident};

use crate::buffer::{IoBufMut, UninitSlice};
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::sys::process::Owner;

use frames::Refused;
use mapped::{Mapped, failed, protected};

/// A mapped file. Its resident bytes can be borrowed.
///
/// It maps the file with the size that the file has when the mapping is made.
#[derive(Debug)]
pub struct Mapping {
    /// Or the reason why no bytes can be borrowed.
    mapped: std::result::Result<Mapped, Unavailable>,
    file: File,
    len: u64,
    process: Owner,
}

impl Mapping {
    /// Maps a file, within the budget of the process ([`Budget::process`]).
    ///
    /// # Errors
    /// The errors of fstat(2). It is not an error if no bytes can be borrowed: see
    /// [`why`](Mapping::why).
    pub fn new(file: &File) -> Result<Mapping> {
        Mapping::within(file, &Budget::process()?)
    }

    /// Maps a file, within a budget that other mappings may share.
    ///
    /// # Errors
    /// As [`new`](Mapping::new). [`ErrorKind::Forked`] if the budget was made before a fork.
    pub fn within(file: &File, budget: &Budget) -> Result<Mapping> {
        check_process(budget)?;
        let mapped = protected(file, budget)?;
        let len = match &mapped {
            Ok(mapped) => mapped.windows.len() as u64,
            Err(_) => file.len()?,
        };
        Ok(Mapping::of(file, len, mapped))
    }

    /// Maps a file that is known to stay as it is. No lease is taken.
    ///
    /// # Safety
    /// The file is neither written nor truncated, by any program, while the mapping exists.
    ///
    /// # Errors
    /// As [`within`](Mapping::within).
    pub unsafe fn trust(file: &File, budget: &Budget) -> Result<Mapping> {
        check_process(budget)?;
        let len = file.len()?;
        let mapped = Mapped::of(file, file.as_fd(), budget, len, false);
        Ok(Mapping::of(file, len, mapped))
    }

    fn of(file: &File, len: u64, mapped: std::result::Result<Mapped, Unavailable>) -> Mapping {
        Mapping {
            mapped,
            file: file.clone(),
            len,
            process: Owner::current(),
        }
    }

    /// The file, for ordinary reads.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The size of the file in bytes when it was mapped.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the file was empty when it was mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Borrows a range of bytes, if all of it is resident. It makes no system call and does not
    /// wait. A range within one window takes some nanoseconds.
    ///
    /// It returns `None` if a part is not resident or lies beyond the end of the file, or if the
    /// range is empty. It may return `None` at any time, for example after the lease was broken.
    /// [`load`](Mapping::load) and [`read_at`](Mapping::read_at) are for such cases.
    #[inline(always)]
    pub fn get(&self, range: Range<u64>) -> Option<Resident<'_>> {
        match &self.mapped {
            Ok(mapped) => mapped.get(range),
            Err(_) => None,
        }
    }

    /// Borrows a range of bytes as [`get`](Mapping::get) does. The result may be moved to other
    /// threads, and kept by futures that do. It is slower, since it changes memory that threads
    /// share.
    pub fn get_send(&self, range: Range<u64>) -> Option<SendResident<'_>> {
        self.mapped.as_ref().ok()?.get_send(range)
    }

    /// Borrows a range of bytes as [`get_send`](Mapping::get_send) does. The result keeps the
    /// mapping, and has no lifetime: it can be given to a thread or a task, or be the owner of a
    /// `bytes::Bytes`. A `Bytes` must not be used in a forked child, since it keeps the slice.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("file");
    /// # std::fs::write(&path, b"some bytes")?;
    /// use nowait::{File, Mapping};
    /// use std::sync::Arc;
    /// let mapping = Arc::new(Mapping::new(&File::blocking_open(&path)?)?);
    /// mapping.prefetch(0..10);
    /// if let Some(bytes) = mapping.get_owned(5..10) {
    ///     let thread = std::thread::spawn(move || assert_eq!(*bytes, *b"bytes"));
    ///     assert!(thread.join().is_ok());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_owned(self: &Arc<Self>, range: Range<u64>) -> Option<OwnedResident> {
        let bytes = self.get_send(range)?;
        // SAFETY: the result keeps the mapping, and drops it after the bytes.
        let bytes = unsafe { bytes.extend() };
        Some(OwnedResident {
            bytes,
            _mapping: self.clone(),
        })
    }

    /// Makes a range resident, and borrows it. Workers of the file's engine read it: madvise(2),
    /// `MADV_POPULATE_READ` (Linux 5.14).
    ///
    /// The windows of the range must fit into the budget together.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("file");
    /// # std::fs::write(&path, b"some bytes")?;
    /// use nowait::{File, Mapping};
    /// let mapping = Mapping::new(&File::open(&path).await?)?;
    /// if let Ok(bytes) = mapping.load(0..4).await {
    ///     assert_eq!(*bytes, *b"some");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(&self, range: Range<u64>) -> Load<'_> {
        Load::new(&self.file, self.loadable(), range)
    }

    /// Makes a range resident, and borrows it. Blocks.
    ///
    /// # Errors
    /// As [`Load`].
    pub fn blocking_load(&self, range: Range<u64>) -> Result<SendResident<'_>> {
        let mapped = self.loadable()?;
        let held = mapped.load(&range).map_err(|why| failed(&self.file, why))?;
        Ok(mapped.loaded(&range, held))
    }

    /// Makes a range resident in the background, as much of it as fits into the budget. It does not
    /// wait. Errors are dropped: [`get`](Mapping::get) then returns `None`.
    pub fn prefetch(&self, range: Range<u64>) {
        if let Ok(mapped) = self.loadable() {
            load::start(&self.file, mapped.clone(), range);
        }
    }

    /// Reads into `buffer` from `offset` on: by copying, if the range is resident, otherwise as
    /// [`File::read_at`] does.
    pub fn read_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt::new(&self.file, self.mapped.as_ref().ok(), buffer, offset)
    }

    /// Reads into borrowed memory from `offset` on: by copying, if the range is resident, otherwise
    /// as [`File::blocking_read_at`] does. Blocks.
    ///
    /// # Errors
    /// As [`File::blocking_read_at`].
    pub fn blocking_read_at<'a>(
        &self,
        buf: impl Into<UninitSlice<'a>>,
        offset: u64,
    ) -> Result<usize> {
        let mut space = buf.into();
        let copied = self.mapped.as_ref().ok();
        match copied.and_then(|mapped| mapped.copy(&mut space, offset)) {
            Some(n) => Ok(n),
            None => self.file.blocking_read_at(space, offset),
        }
    }

    /// The reason why no bytes can be borrowed. `None` if they can, after they were loaded.
    pub fn why(&self) -> Option<Unavailable> {
        self.available().err()
    }

    /// The numbers of this mapping. All are 0 in a forked child.
    pub fn stats(&self) -> Stats {
        match &self.mapped {
            Ok(mapped) if self.process.is_here() => mapped.stats(),
            _ => Stats::default(),
        }
    }

    fn available(&self) -> std::result::Result<&Mapped, Unavailable> {
        if !self.process.is_here() {
            return Err(Unavailable::Forked);
        }
        match &self.mapped {
            Err(why) => Err(*why),
            Ok(mapped) if mapped.windows.is_closed() => Err(Unavailable::LeaseBroken),
            Ok(mapped) if mapped.frames.limit == 0 => Err(Unavailable::NoBudget),
            Ok(mapped) => Ok(mapped),
        }
    }

    fn loadable(&self) -> Result<&Mapped> {
        self.available().map_err(|why| match why {
            Unavailable::Forked => Error::new("load", ErrorKind::Forked),
            Unavailable::NoBudget => failed(&self.file, Refused::NoRoom),
            _ => failed(&self.file, Refused::Closed),
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may have held the locks.
        if let (true, Ok(mapped)) = (self.process.is_here(), &self.mapped) {
            mapped.frames.release(&mapped.windows);
        }
    }
}

/// Bytes of a mapped file, borrowed by [`Mapping::get_owned`]. They stay in memory and do not
/// change until this value is dropped, in any thread. It keeps the mapping.
///
/// In a forked child it is empty.
#[must_use]
pub struct OwnedResident {
    // Fields are dropped in their order.
    bytes: SendResident<'static>,
    _mapping: Arc<Mapping>,
}

impl Deref for OwnedResident {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for OwnedResident {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedResident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedResident")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

fn check_process(budget: &Budget) -> Result<()> {
    match budget.frames().process.is_here() {
        true => Ok(()),
        false => Err(Error::new("map", ErrorKind::Forked)),
    }
}
