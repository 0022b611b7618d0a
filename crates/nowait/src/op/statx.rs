//! statx: a file's metadata.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types};
use rustix::fs::{AtFlags, StatxFlags};

use super::operation::{Operation, Registered, Step, directory};
use crate::handle::Handle;
use crate::metadata::{Metadata, StatxMask};
use crate::sys::Errno;

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

    fn run(&mut self) -> Result<usize, Errno> {
        let inner = &mut *self.0;
        let at = directory(inner.at.as_ref());
        let stat = rustix::fs::statx(at, &inner.path, inner.flags, inner.mask)?;
        inner.out.write(stat);
        Ok(0)
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        self.0.filled = result.is_ok();
        Step::Done(result)
    }
}
