//! Operations: conversion from C, and the end of each.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use libc::iovec;
use nowait::buffer::{Buffer, RawMemory, Source};
use nowait::op::{
    Advice, Fadvise, Fallocate, FallocateMode, Fsync, Kind, Nop, Op, Openat2, Read, Readv, Statx,
    SyncFileRange, SyncRange, Write, Writev,
};
use nowait::{RwFlags, StatxMask};

use crate::file::{handle_of, nw_file};
use crate::guard::Outcome;
use crate::mapping::{load, nw_mapping};

/// Does nothing.
pub const NW_OP_NOP: u32 = 0;
/// Reads len bytes at offset into addr: pread(2). flags are RWF_*.
pub const NW_OP_READ: u32 = 1;
/// Writes len bytes at offset from addr: pwrite(2). flags are RWF_*.
pub const NW_OP_WRITE: u32 = 2;
/// Reads at offset into the len iovecs at addr: preadv2(2). flags are RWF_*.
pub const NW_OP_READV: u32 = 3;
/// Writes at offset from the len iovecs at addr: pwritev2(2). flags are RWF_*.
pub const NW_OP_WRITEV: u32 = 4;
/// fsync(2).
pub const NW_OP_FSYNC: u32 = 5;
/// fdatasync(2).
pub const NW_OP_FDATASYNC: u32 = 6;
/// fallocate(2) of len bytes at offset. flags are FALLOC_FL_*.
pub const NW_OP_FALLOCATE: u32 = 7;
/// posix_fadvise(2) of len bytes at offset. flags are POSIX_FADV_*.
pub const NW_OP_FADVISE: u32 = 8;
/// sync_file_range(2) of len bytes at offset. flags are SYNC_FILE_RANGE_*.
pub const NW_OP_SYNC_FILE_RANGE: u32 = 9;
/// Opens the path at addr, relative to file or, if it is null, to the current directory: openat(2).
/// flags are O_*, len is the mode. The result is a descriptor with O_CLOEXEC.
pub const NW_OP_OPENAT: u32 = 10;
/// statx(2) of file, into the struct statx at addr. len is the mask.
pub const NW_OP_STATX: u32 = 11;
/// Borrows len bytes at offset of mapping into the struct nw_resident at addr, once they are
/// resident: nw_mapping(3).
pub const NW_OP_MAPPING_LOAD: u32 = 12;

/// The file's own position, as offset: read(2) and write(2).
pub const NW_OFFSET_CURRENT: u64 = u64::MAX;

/// An operation. Fields that it does not use are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nw_op {
    /// NW_OP_READ and so on.
    pub opcode: u32,
    /// The flags of the operation.
    pub flags: u32,
    /// The file.
    pub file: *const nw_file,
    /// The memory, the iovecs, the path or the place for the result.
    pub addr: *mut c_void,
    /// The number of bytes or iovecs.
    pub len: u64,
    /// The offset, or NW_OFFSET_CURRENT.
    pub offset: u64,
    /// Returned with the completion.
    pub user_data: u64,
    /// The nanoseconds after which the operation is stopped, with −ETIME. 0 is no limit.
    pub timeout_ns: u64,
    /// The mapping of NW_OP_MAPPING_LOAD, otherwise null.
    pub mapping: *const nw_mapping,
}

/// The user data of a statx, and the struct statx to fill.
struct Extra {
    user_data: u64,
    statx: *mut c_void,
}

/// The parts of an operation that has ended.
pub(super) struct Ended {
    pub(super) user_data: u64,
    /// The descriptor of an open.
    pub(super) opened: Option<OwnedFd>,
}

impl nw_op {
    /// Converts an operation. EINVAL for an unknown opcode, unknown flags, or a field that has to
    /// be 0.
    ///
    /// # Safety
    /// The memory of the operation is as nw_submit(3) demands, until the completion.
    pub(super) unsafe fn convert(&self) -> Outcome<Op> {
        if !self.mapping.is_null() && self.opcode != NW_OP_MAPPING_LOAD {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's promise.
        let op = unsafe { self.op()? };
        let op = if self.timeout_ns > 0 {
            let timeout = Duration::from_nanos(self.timeout_ns);
            op.deadline(Instant::now() + timeout)
        } else {
            op
        };
        let user_data = self.user_data;
        if self.opcode != NW_OP_STATX {
            return Ok(op.user_data(user_data));
        }
        let statx = self.addr;
        let extra = Box::new(Extra { user_data, statx });
        Ok(op.user_data(Box::into_raw(extra) as u64))
    }

    /// The operation, without user data.
    ///
    /// # Safety
    /// As `convert`.
    unsafe fn op(&self) -> Outcome<Op> {
        // SAFETY: the caller's promise.
        let file = || unsafe { handle_of(self.file) };
        // SAFETY: the caller's promise.
        let memory = || unsafe { memory(self.addr, self.len) };
        // SAFETY: the caller's promise.
        let iovecs = || unsafe { self.iovecs() };
        let offset = match self.offset {
            NW_OFFSET_CURRENT => None,
            offset => Some(offset),
        };
        Ok(match self.opcode {
            NW_OP_NOP => Op::from(Nop),
            NW_OP_READ => {
                let read = Read::raw(file()?, memory()?, offset);
                read.flags(self.rw_flags()).into()
            }
            NW_OP_WRITE => {
                let write = Write::raw(file()?, memory()?, offset);
                write.flags(self.rw_flags()).into()
            }
            NW_OP_READV => {
                let memory = iovecs()?.into_iter();
                let buffers = memory.map(|memory| Box::new(memory) as Buffer).collect();
                let read = match offset {
                    Some(offset) => Readv::new(file()?, buffers, offset),
                    None => Readv::stream(file()?, buffers),
                };
                read.flags(self.rw_flags()).into()
            }
            NW_OP_WRITEV => {
                let memory = iovecs()?.into_iter();
                let sources = memory.map(|memory| Box::new(memory) as Source).collect();
                let write = match offset {
                    Some(offset) => Writev::new(file()?, sources, offset),
                    None => Writev::stream(file()?, sources),
                };
                write.flags(self.rw_flags()).into()
            }
            NW_OP_FSYNC if self.flags == 0 => Fsync::new(file()?).into(),
            NW_OP_FDATASYNC if self.flags == 0 => Fsync::data(file()?).into(),
            NW_OP_FALLOCATE => {
                let mode = FallocateMode::from_bits_retain(self.flags);
                Fallocate::new(file()?, mode, self.offset, self.len).into()
            }
            NW_OP_FADVISE => Fadvise::new(file()?, self.offset, self.len, self.advice()?).into(),
            NW_OP_SYNC_FILE_RANGE => {
                let what = SyncRange::from_bits(self.flags).ok_or(libc::EINVAL)?;
                SyncFileRange::new(file()?, self.offset, self.len, what).into()
            }
            // SAFETY: the caller's promise.
            NW_OP_OPENAT => unsafe { self.openat()? },
            NW_OP_STATX if self.flags == 0 => Statx::of(file()?, self.statx_mask()?).into(),
            NW_OP_MAPPING_LOAD if self.flags == 0 && self.file.is_null() => {
                let len = usize::try_from(self.len).map_err(|_| libc::EINVAL)?;
                // SAFETY: the caller's promise.
                unsafe { load(self.mapping, self.offset, len, self.addr.cast())? }.into()
            }
            _ => return Err(libc::EINVAL),
        })
    }

    /// # Safety
    /// As `convert`.
    unsafe fn openat(&self) -> Outcome<Op> {
        // SAFETY: the caller's promise.
        let path = unsafe { self.path()? };
        let mode = u32::try_from(self.len).map_err(|_| libc::EINVAL)?;
        let open = Openat2::new(path, self.flags.cast_signed(), mode);
        if self.file.is_null() {
            return Ok(open.into());
        }
        // SAFETY: the caller's promise.
        Ok(open.at(unsafe { handle_of(self.file)? }).into())
    }

    /// The mask of a statx, if there is a place for its result.
    fn statx_mask(&self) -> Outcome<StatxMask> {
        if self.addr.is_null() {
            return Err(libc::EFAULT);
        }
        let mask = u32::try_from(self.len).map_err(|_| libc::EINVAL)?;
        Ok(StatxMask::from_bits_retain(mask))
    }

    fn rw_flags(&self) -> RwFlags {
        RwFlags::from_bits_retain(self.flags)
    }

    fn advice(&self) -> Outcome<Advice> {
        Ok(match self.flags.cast_signed() {
            libc::POSIX_FADV_NORMAL => Advice::Normal,
            libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
            libc::POSIX_FADV_RANDOM => Advice::Random,
            libc::POSIX_FADV_NOREUSE => Advice::NoReuse,
            libc::POSIX_FADV_WILLNEED => Advice::WillNeed,
            libc::POSIX_FADV_DONTNEED => Advice::DontNeed,
            _ => return Err(libc::EINVAL),
        })
    }

    /// The pieces of memory of a vectored operation.
    ///
    /// # Safety
    /// As `convert`.
    unsafe fn iovecs(&self) -> Outcome<Vec<RawMemory>> {
        let count = usize::try_from(self.len).map_err(|_| libc::EINVAL)?;
        if count > isize::MAX as usize / size_of::<iovec>() {
            return Err(libc::EINVAL);
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.addr.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: the caller's promise.
        let iovecs = unsafe { std::slice::from_raw_parts(self.addr.cast::<iovec>(), count) };
        let piece = |iov: &iovec| {
            // SAFETY: the caller's promise.
            unsafe { memory(iov.iov_base, iov.iov_len as u64) }
        };
        iovecs.iter().map(piece).collect()
    }

    /// The path of an open.
    ///
    /// # Safety
    /// As `convert`.
    unsafe fn path(&self) -> Outcome<CString> {
        // SAFETY: the caller's promise.
        unsafe { path(self.addr.cast()) }
    }
}

/// A path of the program. EFAULT for a null pointer.
///
/// # Safety
/// It is null, or ends with a null byte.
pub(super) unsafe fn path(path: *const c_char) -> Outcome<CString> {
    if path.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(path) }.to_owned())
}

/// Memory of the program. EFAULT for a null pointer, EINVAL for more bytes than one call transfers.
///
/// # Safety
/// As [`RawMemory::new`].
pub(super) unsafe fn memory(start: *mut c_void, len: u64) -> Outcome<RawMemory> {
    let len = usize::try_from(len).map_err(|_| libc::EINVAL)?;
    if len > isize::MAX as usize {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let memory = unsafe { RawMemory::new(start.cast(), len) };
    if memory.is_null() {
        return Err(libc::EFAULT);
    }
    Ok(memory)
}

/// Ends an operation: frees what it owns, and fills the struct statx of a statx that succeeded.
pub(super) fn end(op: Op, succeeded: bool) -> Ended {
    let user_data = op.get_user_data();
    let mut ended = Ended {
        user_data,
        opened: None,
    };
    match op.into_kind() {
        Kind::Openat2(open) => ended.opened = open.into_fd(),
        Kind::Statx(statx) => {
            // SAFETY: `convert` made the user data of a statx from a box.
            let extra = unsafe { Box::from_raw(user_data as *mut Extra) };
            ended.user_data = extra.user_data;
            if let (true, Some(metadata)) = (succeeded, statx.metadata()) {
                let bytes = metadata.as_bytes();
                let n = bytes.len().min(size_of::<libc::statx>());
                // SAFETY: the program's promise: nw_submit(3).
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), extra.statx.cast(), n) };
            }
        }
        _ => {}
    }
    ended
}

/// Frees an operation that the engine did not take.
pub(super) fn give_back(op: Op) {
    end(op, false);
}
