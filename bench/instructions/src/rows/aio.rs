//! POSIX AIO: that of the C library, or of the library that is preloaded.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use crate::data::{BLOCK, Failure, offset, other_way};

/// aio_read(3), then aio_suspend(3) if it is in progress, aio_error(3) and aio_return(3).
pub fn read(path: &Path, count: usize) -> Result<(), Failure> {
    let file = File::open(path)?;
    let mut buf = vec![0u8; BLOCK];
    for index in 0..count {
        // SAFETY: all bit patterns are valid.
        let mut request: libc::aiocb = unsafe { std::mem::zeroed() };
        request.aio_fildes = file.as_raw_fd();
        request.aio_buf = buf.as_mut_ptr().cast();
        request.aio_nbytes = BLOCK;
        request.aio_offset = offset(index) as libc::off_t;
        // SAFETY: the request and its buffer stay in place until aio_return.
        let result = unsafe {
            if libc::aio_read(&raw mut request) != 0 {
                return Err(io::Error::last_os_error().into());
            }
            let list: [*const libc::aiocb; 1] = [&raw const request];
            while libc::aio_error(&raw const request) == libc::EINPROGRESS {
                libc::aio_suspend(list.as_ptr(), 1, ptr::null());
            }
            libc::aio_return(&raw mut request)
        };
        if result != BLOCK as isize {
            return Err(other_way(result));
        }
    }
    Ok(())
}
