//! aio_init(3).

use std::ffi::c_void;

/// Does nothing: the library has no use for the hints of aio_init(3).
#[unsafe(no_mangle)]
pub extern "C" fn aio_init(_hints: *const c_void) {}
