//! The C types and constants of <aio.h> and <signal.h>, laid out as glibc lays them out on 64-bit
//! Linux.
//!
//! `struct aiocb` has private fields after the public ones. The library keeps the state of a
//! request in these; `control_block.rs` alone reads and writes them.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64};

use crate::notification_slot::NotificationSlot;

/// `union sigval`: a value that a notification passes to the program.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Sigval(pub *mut c_void);

// SAFETY: Assumption: the library passes the value on and never dereferences it.
unsafe impl Send for Sigval {}
// SAFETY: as above.
unsafe impl Sync for Sigval {}

/// The function that SIGEV_THREAD calls. It may end its thread by pthread_exit(3), which unwinds.
pub type NotifyFunction = unsafe extern "C-unwind" fn(Sigval);

/// `struct sigevent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sigevent {
    pub(crate) value: Sigval,
    pub(crate) signo: c_int,
    pub(crate) notify: c_int,
    pub(crate) notify_function: Option<NotifyFunction>,
    pub(crate) notify_attributes: *const libc::pthread_attr_t,
    reserved: [u64; 4],
}

/// `struct aiocb`, and `struct aiocb64`, which is the same on 64-bit Linux.
#[repr(C)]
pub struct Aiocb {
    pub(crate) fildes: c_int,
    pub(crate) lio_opcode: c_int,
    pub(crate) reqprio: c_int,
    pub(crate) buf: *mut u8,
    pub(crate) nbytes: usize,
    pub(crate) sigevent: Sigevent,
    /// `__next_prio`: the generation of the process that submitted the block.
    pub(crate) generation: AtomicU64,
    /// `__abs_prio` and `__policy`: the slot of the request's notification, or null.
    pub(crate) notification_slot: AtomicPtr<NotificationSlot>,
    /// `__error_code`: EINPROGRESS, then the error or 0.
    pub(crate) error_code: AtomicI32,
    /// `__return_value`: set before the error code.
    pub(crate) return_value: AtomicI64,
    pub(crate) offset: i64,
    /// In `__glibc_reserved`: the block's address at submission, which tells it from a copy.
    pub(crate) address: AtomicPtr<Aiocb>,
    reserved: [u8; 24],
}

const _: () = {
    assert!(size_of::<Aiocb>() == size_of::<libc::aiocb>());
    assert!(size_of::<Sigevent>() == size_of::<libc::sigevent>());
    assert!(offset_of!(Aiocb, buf) == offset_of!(libc::aiocb, aio_buf));
    assert!(offset_of!(Aiocb, nbytes) == offset_of!(libc::aiocb, aio_nbytes));
    assert!(offset_of!(Aiocb, sigevent) == offset_of!(libc::aiocb, aio_sigevent));
    assert!(offset_of!(Aiocb, offset) == offset_of!(libc::aiocb, aio_offset));
    assert!(offset_of!(Aiocb, address) == offset_of!(Aiocb, offset) + size_of::<i64>());
    assert!(offset_of!(Sigevent, notify) == offset_of!(libc::sigevent, sigev_notify));
};

/// Operations of lio_listio(3), in `aio_lio_opcode`.
pub const LIO_READ: c_int = 0;
pub const LIO_WRITE: c_int = 1;
pub const LIO_NOP: c_int = 2;

/// Modes of lio_listio(3).
pub const LIO_WAIT: c_int = 0;
pub const LIO_NOWAIT: c_int = 1;

/// Answers of aio_cancel(3).
pub const AIO_CANCELED: c_int = 0;
pub const AIO_NOTCANCELED: c_int = 1;
pub const AIO_ALLDONE: c_int = 2;

/// The largest `aio_reqprio`: glibc's <limits.h>.
pub const AIO_PRIO_DELTA_MAX: c_int = 20;

/// The length of the longest list for lio_listio(3) and aio_suspend(3). glibc's <limits.h> has no
/// limit.
pub const AIO_LISTIO_MAX: usize = 65_536;
