//! openat2: opens a file by its path.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use io_uring::{opcode, squeue, types};
use once_cell::race::OnceNonZeroUsize;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::operation::{Operation, Registered, Step, directory};
use crate::handle::Handle;
use crate::sys::resolve::resolve_cached;
use crate::sys::{self, Errno};

/// Opens a file: openat2(2). The descriptor is O_CLOEXEC. It is closed if the program does not take
/// it.
#[derive(Debug)]
pub struct Openat2(Box<Inner>);

#[derive(Debug)]
struct Inner {
    at: Option<Handle>,
    path: CString,
    how: types::OpenHow,
    flags: OFlags,
    mode: Mode,
    opened: Option<OwnedFd>,
    opens: OnceNonZeroUsize,
}

/// The longest wait of open(2), as far as the kernel's caches tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// At most for a device: a regular file or a directory, or no file is opened (O_PATH).
    AtOnce,
    /// Without end: a FIFO waits for its other end, a terminal for its line.
    MayWait,
    /// Unknown until the path is resolved.
    Unknown,
}

impl Opens {
    const ALL: [Opens; 3] = [Opens::AtOnce, Opens::MayWait, Opens::Unknown];
}

impl Openat2 {
    /// Opens `path`, relative to the current directory. `flags` are those of open(2) (`O_RDONLY`
    /// and so on). `mode` has the permission bits of a file that is created.
    pub fn new(path: CString, flags: i32, mode: u32) -> Openat2 {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let (how, flags, mode) = how(flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
        Openat2(Box::new(Inner {
            at: None,
            path,
            how,
            flags,
            mode,
            opened: None,
            opens: OnceNonZeroUsize::new(),
        }))
    }

    /// Resolves the path relative to this open directory.
    #[must_use]
    pub fn at(mut self, directory: &Handle) -> Openat2 {
        self.0.at = Some(directory.clone());
        self
    }

    /// Returns the open file, if the operation succeeded.
    pub fn into_fd(mut self) -> Option<OwnedFd> {
        self.0.opened.take()
    }

    /// The longest wait of this open. The kernel is asked once for each submission, without
    /// waiting.
    pub(crate) fn opens(&self) -> Opens {
        // The index of the variant plus 1, because the cell holds no enum.
        let index = self
            .0
            .opens
            .get_or_init(|| NonZero::<usize>::MIN.saturating_add(self.look() as usize));
        Opens::ALL[index.get() - 1]
    }

    fn look(&self) -> Opens {
        let Inner {
            at, path, flags, ..
        } = &*self.0;
        if flags.intersects(OFlags::PATH | OFlags::DIRECTORY | OFlags::NONBLOCK) {
            return Opens::AtOnce;
        }
        let follow = *flags & OFlags::NOFOLLOW;
        let look = resolve_cached(directory(at.as_ref()), path, OFlags::PATH | follow);
        let known = look.and_then(|file| sys::stat::known(file.as_fd()));
        match known.map(|file| file.kind) {
            Ok(FileType::RegularFile | FileType::Directory | FileType::Symlink) => Opens::AtOnce,
            Ok(_) => Opens::MayWait,
            Err(_) => Opens::Unknown,
        }
    }
}

/// Converts the flags and permission bits of open(2) for openat2(2). openat2 refuses some that open
/// ignores: a mode if no file is created, unknown bits of the mode, unknown flags, and most flags
/// with O_PATH.
fn how(flags: OFlags, mode: Mode) -> (types::OpenHow, OFlags, Mode) {
    let flags = if flags.contains(OFlags::PATH) {
        flags & WITH_PATH
    } else {
        flags & KNOWN
    };
    let makes = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode = if makes {
        mode & Mode::from_raw_mode(0o7777)
    } else {
        Mode::empty()
    };
    let how = types::OpenHow::new()
        .flags(u64::from(flags.bits()))
        .mode(u64::from(mode.bits()));
    (how, flags, mode)
}

/// The flags that have a meaning with O_PATH.
const WITH_PATH: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// All flags of open(2).
const KNOWN: OFlags = OFlags::RWMODE
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOCTTY)
    .union(OFlags::TRUNC)
    .union(OFlags::APPEND)
    .union(OFlags::NONBLOCK)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC)
    .union(OFlags::from_bits_retain(libc::O_ASYNC as u32))
    .union(OFlags::DIRECT)
    .union(OFlags::LARGEFILE)
    .union(OFlags::NOATIME)
    .union(OFlags::TMPFILE)
    .union(WITH_PATH);

impl Operation for Openat2 {
    const OPCODE: u8 = opcode::OpenAt2::CODE;
    const NAME: &'static str = "openat2";

    fn handle(&self) -> Option<&Handle> {
        self.0.at.as_ref()
    }

    fn sqe(&mut self, _: &Registered<'_>) -> squeue::Entry {
        let directory = types::Fd(directory(self.0.at.as_ref()).as_raw_fd());
        opcode::OpenAt2::new(directory, self.0.path.as_ptr(), &raw const self.0.how).build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let Inner {
            at,
            path,
            flags,
            mode,
            ..
        } = &*self.0;
        let at = directory(at.as_ref());
        match rustix::fs::openat2(at, path, *flags, *mode, ResolveFlags::empty()) {
            // Sandboxes made before Linux 5.6 deny openat2. This call needs nothing that openat
            // cannot do.
            Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(at, path, *flags, *mode),
            other => other,
        }
        .map(|fd| fd.into_raw_fd().cast_unsigned() as usize)
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        // The program may submit the operation again, and the path lead to another file.
        self.0.opens = OnceNonZeroUsize::new();
        Step::Done(result.and_then(|fd| {
            let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
            // SAFETY: the kernel has just made this descriptor, and no other value owns it.
            self.0.opened = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(0)
        }))
    }
}
