//! statx: a file's metadata.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use io_uring::{opcode, squeue, types};
use rustix::fs::{AtFlags, OFlags, StatxFlags};

use super::operation::{Operation, Registered, Step, directory};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::kernel::filesystem::Filesystem;
use crate::metadata::{Metadata, StatxMask};
use crate::sys::Errno;
use crate::sys::resolve::resolve_cached;
use crate::sys::retry;
use crate::sys::stat::known;

/// Gets a file's metadata: statx(2) (Linux 4.11).
#[derive(Debug)]
pub struct Statx(Box<Inner>);

struct Inner {
    at: Option<Handle>,
    path: CString,
    flags: AtFlags,
    mask: StatxFlags,
    out: MaybeUninit<rustix::fs::Statx>,
    filled: bool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statx")
            .field("path", &self.path)
            .field("mask", &self.mask)
            .finish()
    }
}

impl Statx {
    /// Gets the fields in `mask` of the file at `path`, relative to the current directory. `flags`
    /// are those of statx(2), such as `AT_SYMLINK_NOFOLLOW`.
    pub fn new(path: CString, flags: i32, mask: StatxMask) -> Statx {
        let out = MaybeUninit::zeroed();
        Statx(Box::new(Inner {
            at: None,
            path,
            flags: AtFlags::from_bits_retain(flags.cast_unsigned()),
            mask: StatxFlags::from_bits_retain(mask.bits()),
            out,
            filled: false,
        }))
    }

    /// Gets the fields in `mask` of an open file.
    pub fn of(handle: &Handle, mask: StatxMask) -> Statx {
        Statx::new(CString::default(), libc::AT_EMPTY_PATH, mask).at(handle)
    }

    /// Resolves the path relative to this open directory.
    #[must_use]
    pub fn at(mut self, directory: &Handle) -> Statx {
        self.0.at = Some(directory.clone());
        self
    }

    /// Makes the call. Blocks. Later calls of [`try_cached`](Statx::try_cached) on the same mount are answered, if its
    /// filesystem answers from memory (Linux 6.8).
    ///
    /// ```
    /// use nowait::{StatxMask, op::Statx};
    /// let size = || Statx::new(c"Cargo.toml".into(), 0, StatxMask::SIZE);
    /// assert!(size().blocking()?.len() > 0);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of statx(2).
    pub fn blocking(mut self) -> Result<Metadata> {
        let failed = |errno| Error::os(Self::NAME, errno);
        retry::interrupted(|| self.run()).map_err(failed)?;
        self.0.filled = true;
        if self.is_by_path()
            && let Ok(found) = self.resolve_cached()
            && let Ok(file) = known(found.as_fd())
        {
            Filesystem::remember_for_stat(found.as_fd(), &file);
        }
        self.metadata().ok_or(failed(Errno::IO))
    }

    /// Makes the call in the calling thread, if that does not block. `None` if it might: the path is
    /// not cached (`RESOLVE_CACHED`, openat2(2), Linux 5.12), the filesystem may ask a device or a
    /// server, or the flags have `AT_STATX_FORCE_SYNC`. Then an engine makes it.
    ///
    /// ext4, xfs and f2fs answer from memory after a file on them was opened. btrfs and tmpfs do, too,
    /// and overlayfs if its layers are local. By path that needs Linux 6.8, where a call of
    /// [`blocking`](Statx::blocking) is as good as an open.
    ///
    /// # Errors
    /// ENOENT, if the kernel's cache of names says so; the errors of statx(2) of an open file.
    ///
    /// ```
    /// use nowait::{StatxMask, op::Statx};
    /// let file = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
    /// match Statx::of(&file, StatxMask::SIZE).try_cached() {
    ///     Some(metadata) => assert!(metadata?.len() > 0),
    ///     None => println!("for the engine"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_cached(&self) -> Option<Result<Metadata>> {
        let inner = &*self.0;
        if inner.flags.contains(AtFlags::STATX_FORCE_SYNC) {
            return None;
        }
        let failed = |errno| Error::os(Self::NAME, errno);
        let statx = |file: BorrowedFd<'_>| {
            let flags = inner.flags | AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let stat = rustix::fs::statx(file, c"", flags, inner.mask);
            stat.map(Metadata::new).map_err(failed)
        };
        if !self.is_by_path() {
            let open = inner.at.as_ref()?;
            let filesystem = open.filesystem();
            let at_once = filesystem.stats_at_once()
                || (filesystem.is_overlay()
                    && known(open.as_fd()).is_ok_and(|file| file.looks_local));
            return at_once.then(|| statx(open.as_fd()));
        }
        let found = match self.resolve_cached() {
            Ok(found) => found,
            Err(Errno::NOENT) => return Some(Err(failed(Errno::NOENT))),
            Err(_) => return None,
        };
        let file = known(found.as_fd()).ok()?;
        Filesystem::stats_in_memory(&file).then(|| statx(found.as_fd()))
    }

    /// The file at its path, opened with O_PATH, if the kernel has the path in memory.
    fn resolve_cached(&self) -> std::result::Result<OwnedFd, Errno> {
        let follow = match self.0.flags.contains(AtFlags::SYMLINK_NOFOLLOW) {
            true => OFlags::NOFOLLOW,
            false => OFlags::empty(),
        };
        let directory = directory(self.0.at.as_ref());
        resolve_cached(directory, &self.0.path, OFlags::PATH | follow)
    }

    /// The metadata, if the operation succeeded.
    pub fn metadata(&self) -> Option<Metadata> {
        // SAFETY: statx(2) fills the whole structure if it succeeds.
        let statx = self.0.filled.then(|| unsafe { self.0.out.assume_init() });
        statx.map(Metadata::new)
    }

    /// Returns true if it resolves a path.
    pub(crate) fn is_by_path(&self) -> bool {
        !self.0.path.is_empty()
    }
}

impl Operation for Statx {
    const OPCODE: u8 = opcode::Statx::CODE;
    const NAME: &'static str = "statx";

    fn handle(&self) -> Option<&Handle> {
        self.0.at.as_ref()
    }

    fn sqe(&mut self, _: &Registered<'_>) -> squeue::Entry {
        let inner = &mut *self.0;
        let directory = types::Fd(directory(inner.at.as_ref()).as_raw_fd());
        let out: *mut types::statx = inner.out.as_mut_ptr().cast();
        opcode::Statx::new(directory, inner.path.as_ptr(), out)
            .flags(inner.flags.bits().cast_signed())
            .mask(inner.mask.bits())
            .build()
    }

    fn run(&mut self) -> std::result::Result<usize, Errno> {
        let inner = &mut *self.0;
        let at = directory(inner.at.as_ref());
        let stat = rustix::fs::statx(at, &inner.path, inner.flags, inner.mask)?;
        inner.out.write(stat);
        Ok(0)
    }

    fn settle(&mut self, result: std::result::Result<usize, Errno>) -> Step {
        self.0.filled = result.is_ok();
        Step::Done(result)
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::test_file::TestFile;

    fn by_path(path: &std::path::Path, flags: i32) -> Option<Result<Metadata>> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        Statx::new(path, flags, StatxMask::BASIC_STATS).try_cached()
    }

    #[test]
    fn cached_metadata_is_that_of_the_standard_library() {
        let test = TestFile::new();
        let link = test.path.with_extension("link");
        std::os::unix::fs::symlink(&test.path, &link).unwrap();
        let file = Handle::new(std::fs::File::open(&test.path).unwrap()).unwrap();
        let of = Statx::of(&file, StatxMask::BASIC_STATS).try_cached();
        let target = std::fs::metadata(&test.path).unwrap();
        let own = std::fs::symlink_metadata(&link).unwrap();
        let found = [
            (of, &target),
            (by_path(&test.path, 0), &target),
            (by_path(&link, 0), &target),
            (by_path(&link, libc::AT_SYMLINK_NOFOLLOW), &own),
        ];
        // `None` where the filesystem is not known to answer at once.
        for (cached, expected) in found {
            let Some(cached) = cached else { continue };
            let cached = cached.unwrap();
            assert_eq!(
                (cached.ino(), cached.size()),
                (expected.ino(), expected.size())
            );
            assert_eq!(
                (cached.dev(), cached.mtime_nsec()),
                (expected.dev(), expected.mtime_nsec())
            );
        }
        std::fs::remove_file(&link).unwrap();
        let missing = by_path(&link, 0);
        assert!(missing.is_none_or(|missing| missing.unwrap_err().errno() == Some(libc::ENOENT)));
    }
}
