//! A blocking read into borrowed memory.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use crate::buffer::bounce::BounceBuffer;
use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::kernel::alignment::Alignment;
use crate::op::is_end;
use crate::sys::retry;
use crate::sys::rw;
use crate::sys::uninit_slice::UninitSlice;
use crate::sys::{self, Errno};

/// The reason to refuse a blocking read into borrowed memory before the system call.
#[inline]
pub(crate) fn refused(
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: u64,
) -> Option<ErrorKind> {
    if !handle.is_direct() {
        return None;
    }
    let needed = handle
        .alignment()
        .filter(|_| handle.bounce_alignment().is_none())?;
    needed.refuses(true, Some(offset), piece(space))
}

/// A blocking read into borrowed memory, until that is full or the file ends.
#[inline]
pub(crate) fn fill_space(
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: u64,
) -> Result<usize, Errno> {
    if handle.is_direct() || space.is_empty() {
        return fill_rest(handle, space, offset, 0);
    }
    match rw::preadv2(handle.as_fd(), space, Some(offset), 0) {
        Ok(n) if n == space.len() || n == 0 => Ok(n),
        Ok(n) => fill_rest(handle, space, offset, n),
        Err(Errno::INTR) => fill_rest(handle, space, offset, 0),
        Err(errno) => Err(errno),
    }
}

/// The same after `done` bytes.
#[inline(never)]
fn fill_rest(
    handle: &Handle,
    space: &mut UninitSlice<'_>,
    offset: u64,
    mut done: usize,
) -> Result<usize, Errno> {
    let len = space.len();
    rw::checked(Some(offset), len)?;
    let misaligned =
        |needed: &Alignment| needed.refuses(true, Some(offset), piece(space)).is_some();
    let bounce = handle.bounce_alignment().filter(misaligned);
    let bounce = bounce.and_then(|needed| BounceBuffer::new(needed, len));
    let end = offset.saturating_add(len as u64);
    while done < len {
        let at = offset + done as u64;
        let mut rest = space.skip(done);
        let (start, asked, from) = match &bounce {
            Some(bounce) => bounce.over(at, end),
            None => (rest.as_mut_ptr(), len - done, at),
        };
        // SAFETY: the memory belongs to the bounce buffer or is borrowed mutably, during the call.
        let read = || unsafe { rw::preadv2_raw(handle.as_fd(), start, asked, Some(from), 0) };
        let n = retry::interrupted(read)?;
        let ended = match &bounce {
            Some(bounce) => {
                // SAFETY: the kernel has returned `n` bytes.
                done += unsafe { bounce.copy_to(n, at, &mut rest) }?;
                n == 0 || (n < asked && sys::stat::ends_by(handle.as_fd(), from + n as u64))
            }
            None => {
                done += n;
                is_end(n, handle)
            }
        };
        if ended {
            break;
        }
    }
    Ok(done)
}

/// The address and the length of a read's memory.
fn piece(space: &mut UninitSlice<'_>) -> std::iter::Once<(usize, usize)> {
    std::iter::once((space.as_mut_ptr().addr(), space.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    fn this_file() -> (Handle, Vec<u8>) {
        let mut test = TestFile::new();
        let file = std::fs::File::open(&test.path).unwrap();
        (Handle::new(file).unwrap(), std::mem::take(&mut test.bytes))
    }

    #[test]
    fn no_call_is_made_for_an_empty_buffer() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let handle = Handle::new(reader).unwrap();
        let filled = fill_space(&handle, &mut UninitSlice::from(&mut [0; 0]), 0);
        assert_eq!(filled, Ok(0), "pread(2) of a pipe fails with ESPIPE");
    }

    #[test]
    fn borrowed_memory_is_filled_to_the_end_of_the_file() {
        let (handle, bytes) = this_file();
        let mut room = vec![std::mem::MaybeUninit::uninit(); bytes.len() + 10];
        let n = fill_space(&handle, &mut UninitSlice::from(&mut room[..]), 3).unwrap();
        assert_eq!(n, bytes.len() - 3);
        // SAFETY: so many were read.
        let read = room[..n].iter().map(|byte| unsafe { byte.assume_init() });
        assert!(read.eq(bytes[3..].iter().copied()));
    }
}
