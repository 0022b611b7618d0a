//! A blocking read of a file to its end.

use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::retry;

/// The memory for a file of unknown size, to begin with.
const FIRST: usize = 4096;

/// Reads a file of this size to its end. `read` appends to the bytes that were read before, and returns
/// the number of bytes that it has appended. Returns the memory that the file needs, if that is more than `most` bytes:
/// it has grown, or its size was not known.
pub(crate) fn to_end(
    size: u64,
    most: u64,
    mut read: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>,
) -> Result<Result<Vec<u8>, u64>, Errno> {
    // One more byte, so that the last read is short.
    let mut bytes = room(if size == 0 { FIRST } else { to_usize(size) })?;
    loop {
        let so_far = bytes.len() as u64;
        if so_far > most {
            return Ok(Err(so_far.saturating_mul(2)));
        }
        if bytes.len() == bytes.capacity() {
            let more = bytes.try_reserve(bytes.len());
            more.map_err(|_| Errno::NOMEM)?;
        }
        let asked = bytes.capacity() - bytes.len();
        let n = retry::interrupted(|| read(&mut bytes))?;
        // A short read is the end of the file only if the size says so: procfs returns less before.
        if n == 0 || (n < asked && bytes.len() as u64 == size) {
            return Ok(Ok(bytes));
        }
    }
}

/// Memory for a file of this size, and one byte more.
pub(crate) fn room(size: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let room = bytes.try_reserve_exact(size.saturating_add(1));
    room.map(|()| bytes).map_err(|_| Errno::NOMEM)
}
