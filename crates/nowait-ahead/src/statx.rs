//! statx(2) of an open file, with little stack. No server is asked.

use std::ffi::c_long;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use nowait_ahead_channel::birth;
use rustix::fs::{FileType, makedev};

use crate::next::functions;

functions!(find syscall);

/// syscall(2) of the C library.
pub type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// syscall(2), which is not that of this library.
pub fn syscall() -> Option<Syscall> {
    let next = find::syscall.address();
    // SAFETY: this is its type.
    (!next.is_null()).then(|| unsafe { std::mem::transmute::<_, Syscall>(next) })
}

/// A part of `struct statx`.
pub struct Stat {
    /// The device and the inode number.
    pub id: (u64, u64),
    /// The [`birth`], or 0.
    pub birth: u32,
    /// The filesystem has a device of its own.
    pub has_device: bool,
    pub is_regular: bool,
    pub is_immutable: bool,
    pub size: u64,
    /// An ID of the mount, if it was asked for and the kernel has it.
    pub mount: Option<u64>,
}

/// Asks for the state of a file. `mount` is the flag of an ID of the mount, or 0.
#[inline(never)]
pub fn statx(fd: BorrowedFd<'_>, mount: u32) -> Option<Stat> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_SIZE | libc::STATX_BTIME | mount;
    let next = syscall()?;
    let mut stat = MaybeUninit::<libc::statx>::uninit();
    let (fd, path) = (fd.as_raw_fd(), c"".as_ptr());
    // SAFETY: the path is a C string, and the kernel writes into the struct.
    let result = unsafe { next(libc::SYS_statx, fd, path, flags, mask, stat.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: the kernel has written the whole struct.
    let stat = unsafe { stat.assume_init_ref() };
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    let has_birth = stat.stx_mask & libc::STATX_BTIME != 0;
    let has_mount = mount != 0 && stat.stx_mask & mount != 0;
    Some(Stat {
        id: (
            makedev(stat.stx_dev_major, stat.stx_dev_minor),
            stat.stx_ino,
        ),
        birth: birth(has_birth.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))),
        has_device: stat.stx_dev_major != 0,
        is_regular: kind == FileType::RegularFile,
        is_immutable: stat.stx_attributes & libc::STATX_ATTR_IMMUTABLE as u64 != 0,
        size: stat.stx_size,
        mount: has_mount.then_some(stat.stx_mnt_id),
    })
}
