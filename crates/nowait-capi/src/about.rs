//! The version, the capabilities of the process, and the reasons of errors.

use std::ffi::{c_char, c_int, c_uint};

use nowait::support::Kernel;

use crate::guard::guard_or;

/// The system calls that the process may use: a bit of nw_capabilities.
pub const NW_CAN_PREADV2: c_uint = 1;
/// pwritev2(2).
pub const NW_CAN_PWRITEV2: c_uint = 2;
/// cachestat(2).
pub const NW_CAN_CACHESTAT: c_uint = 4;
/// io_uring_setup(2).
pub const NW_CAN_IO_URING: c_uint = 8;

/// The version of the library, as "0.1.0". See nowait(3).
#[unsafe(no_mangle)]
pub extern "C" fn nw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The system calls that the process may use: NW_CAN_PREADV2 and so on. They are tried at the first
/// call. See nowait(3).
#[unsafe(no_mangle)]
pub extern "C" fn nw_capabilities() -> c_uint {
    guard_or(0, || {
        let kernel = Kernel::get();
        let bit = |is_there: bool, bit| if is_there { bit } else { 0 };
        bit(kernel.preadv2.is_yes(), NW_CAN_PREADV2)
            | bit(kernel.pwritev2.is_yes(), NW_CAN_PWRITEV2)
            | bit(kernel.cachestat.is_yes(), NW_CAN_CACHESTAT)
            | bit(kernel.io_uring.is_yes(), NW_CAN_IO_URING)
    })
}

/// The text of an error: of −errno or of errno, as strerror(3), but without a buffer that threads
/// share. The text is a constant. See nowait(3).
#[unsafe(no_mangle)]
pub extern "C" fn nw_strerror(error: c_int) -> *const c_char {
    unsafe extern "C" {
        /// strerrordesc_np(3) (glibc 2.32).
        fn strerrordesc_np(errno: c_int) -> *const c_char;
    }
    // SAFETY: no memory is passed. The texts of glibc are constants.
    let text = unsafe { strerrordesc_np(error.saturating_abs()) };
    if text.is_null() {
        c"Unknown error".as_ptr()
    } else {
        text
    }
}
