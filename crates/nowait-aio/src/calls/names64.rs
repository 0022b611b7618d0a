//! The functions by their names with 64. On 64-bit Linux they are the same.

use std::ffi::c_int;

use crate::abi::{Aiocb, Sigevent};
use crate::calls::{
    aio_cancel, aio_error, aio_fsync, aio_read, aio_return, aio_suspend, aio_write, lio_listio,
};

macro_rules! aliases {
    ($($alias:ident = $function:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(#[doc = concat!("The same as [`", stringify!($function), "`].")]
        ///
        /// # Safety
        /// The same.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $alias($($arg: $kind),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { $function($($arg),*) }
        })*
    };
}

aliases! {
    aio_read64 = aio_read(block: *mut Aiocb) -> c_int;
    aio_write64 = aio_write(block: *mut Aiocb) -> c_int;
    aio_fsync64 = aio_fsync(op: c_int, block: *mut Aiocb) -> c_int;
    aio_error64 = aio_error(block: *const Aiocb) -> c_int;
    aio_return64 = aio_return(block: *mut Aiocb) -> isize;
    aio_suspend64 = aio_suspend(
        list: *const *const Aiocb, count: c_int, timeout: *const libc::timespec
    ) -> c_int;
    aio_cancel64 = aio_cancel(fildes: c_int, block: *mut Aiocb) -> c_int;
    lio_listio64 = lio_listio(
        mode: c_int, list: *const *mut Aiocb, count: c_int, event: *const Sigevent
    ) -> c_int;
}
