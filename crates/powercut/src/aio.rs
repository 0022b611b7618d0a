//! One POSIX AIO request and the wait for it, by the functions of <aio.h>.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Writes all bytes by aio_write(3).
pub(crate) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut block = block(file);
    block.aio_buf = bytes.as_ptr().cast_mut().cast();
    block.aio_nbytes = bytes.len();
    block.aio_offset = offset.try_into().map_err(io::Error::other)?;
    // SAFETY: the block and the bytes outlive the request: `wait` returns when it is done.
    let written = wait(&mut block, |block| unsafe { libc::aio_write(block) })?;
    if written == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Makes what was written durable by aio_fsync(3).
pub(crate) fn sync(file: &File) -> io::Result<()> {
    // SAFETY: the block outlives the request: `wait` returns when it is done.
    let call = |block: *mut libc::aiocb| unsafe { libc::aio_fsync(libc::O_DSYNC, block) };
    wait(&mut block(file), call).map(drop)
}

/// A control block for a file, without a notification.
fn block(file: &File) -> libc::aiocb {
    // SAFETY: a control block of zeros is a valid one.
    let mut block: libc::aiocb = unsafe { std::mem::zeroed() };
    block.aio_fildes = file.as_raw_fd();
    block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    block
}

/// Submits a request and waits until it is done.
fn wait(
    block: &mut libc::aiocb,
    submit: impl FnOnce(*mut libc::aiocb) -> libc::c_int,
) -> io::Result<usize> {
    let block: *mut libc::aiocb = block;
    if submit(block) != 0 {
        return Err(io::Error::last_os_error());
    }
    loop {
        let list = [block.cast_const()];
        // SAFETY: the list names one control block of a request that was submitted.
        match unsafe { libc::aio_error(block) } {
            // SAFETY: as above. An interruption is followed by another look.
            libc::EINPROGRESS => unsafe {
                libc::aio_suspend(list.as_ptr(), 1, std::ptr::null());
            },
            // SAFETY: as above; the request is done.
            0 => return Ok(unsafe { libc::aio_return(block) } as usize),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}
