//! io_uring calls that the crate `io-uring` does not have in the required form: entering a ring by
//! its registered descriptor, and making a ring with a flag for which the crate has no method.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use io_uring::IoUring;
use io_uring::types::SubmitArgs;

use super::{Errno, check};

/// `IORING_SETUP_*`.
pub(crate) mod flag {
    pub(crate) const IOPOLL: u32 = 1 << 0;
    pub(crate) const SQPOLL: u32 = 1 << 1;
    pub(crate) const CQSIZE: u32 = 1 << 3;
    pub(crate) const CLAMP: u32 = 1 << 4;
    pub(crate) const TASKRUN_FLAG: u32 = 1 << 9;
    pub(crate) const SINGLE_ISSUER: u32 = 1 << 12;
    pub(crate) const DEFER_TASKRUN: u32 = 1 << 13;
    /// 6.13.
    pub(crate) const HYBRID_IOPOLL: u32 = 1 << 17;
}

const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// Makes a ring. Miri has none.
pub(crate) fn build(builder: &io_uring::Builder, entries: u32) -> std::io::Result<IoUring> {
    if cfg!(miri) {
        return Err(std::io::Error::from_raw_os_error(libc::ENOSYS));
    }
    builder.build(entries)
}

/// io_uring_enter(2), with `IORING_ENTER_EXT_ARG` if there are arguments. `ring` is a descriptor,
/// or the registered number if `flags` has `IORING_ENTER_REGISTERED_RING`.
///
/// # Safety
/// Memory that the entries in the submission queue point to must stay valid until their
/// completions. Memory that `args` points to must be valid during the call.
pub(crate) unsafe fn enter(
    ring: i32,
    to_submit: u32,
    at_least: u32,
    flags: u32,
    args: Option<&SubmitArgs<'_, '_>>,
) -> Result<usize, Errno> {
    let (arg, size) = args.map_or((std::ptr::null(), 0), |args| {
        (std::ptr::from_ref(args).cast(), size_of_val(args))
    });
    let arg: *const libc::c_void = arg;
    // SAFETY: the caller's obligation. `args` has the size that is passed.
    check(unsafe {
        syscall!(
            libc::SYS_io_uring_enter,
            ring,
            to_submit,
            at_least,
            flags,
            arg,
            size,
        )
    })
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

fn register(ring: BorrowedFd<'_>, what: libc::c_uint, update: &mut Update) -> Result<(), Errno> {
    // SAFETY: one `update`, which the kernel reads and writes during the call.
    check(unsafe {
        syscall!(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            what,
            std::ptr::from_mut(update),
            1,
        )
    })
    .map(drop)
}

/// Registers the descriptor of a ring with the calling thread (Linux 5.18). Returns a number for
/// [`enter`], which is valid only in this thread.
pub(crate) fn register_ring(ring: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut update = Update {
        offset: u32::MAX,
        reserved: 0,
        data: u64::from(ring.as_raw_fd().cast_unsigned()),
    };
    register(ring, REGISTER_RING_FDS, &mut update).map(|()| update.offset)
}

/// Unregisters that number. Otherwise the thread would hold the ring until it ends.
pub(crate) fn unregister_ring(ring: BorrowedFd<'_>, number: u32) -> Result<(), Errno> {
    let mut update = Update {
        offset: number,
        reserved: 0,
        data: 0,
    };
    register(ring, UNREGISTER_RING_FDS, &mut update)
}

/// `struct io_uring_params`: the request in the first fields, the kernel's answer in the rest.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Params {
    sq_entries: u32,
    pub(crate) cq_entries: u32,
    pub(crate) flags: u32,
    pub(crate) sq_thread_cpu: u32,
    pub(crate) sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    offsets: [u64; 10],
}

/// io_uring_setup(2).
pub(crate) fn setup(entries: u32, params: &mut Params) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel reads and writes one `io_uring_params` during the call.
    let fd = check(unsafe {
        syscall!(
            libc::SYS_io_uring_setup,
            entries,
            std::ptr::from_mut(params),
        )
    })?;
    let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just made this descriptor, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_are_laid_out_as_the_crates() {
        assert_eq!(size_of::<Params>(), size_of::<io_uring::Parameters>());
        assert_eq!(size_of::<SubmitArgs<'_, '_>>(), 24);
    }
}
