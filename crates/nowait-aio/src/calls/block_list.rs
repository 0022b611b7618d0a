//! The array of control blocks that the program passes to aio_suspend(3) and lio_listio(3).

use std::ffi::c_int;

use rustix::io::Errno;

use crate::abi::{AIO_LISTIO_MAX, Aiocb};
use crate::control_block::ControlBlock;

/// Checks the array. EINVAL for a bad length, or for null.
///
/// # Safety
/// It must have `count` entries.
pub unsafe fn block_list<'a>(
    list: *const *const Aiocb,
    count: c_int,
) -> Result<&'a [*const Aiocb], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    match (count, list.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::INVAL),
        (n, _) if n > AIO_LISTIO_MAX => Err(Errno::INVAL),
        // SAFETY: the caller's promise.
        (n, false) => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// The blocks, without entries that are null.
pub fn blocks(list: &[*const Aiocb]) -> impl Iterator<Item = ControlBlock> {
    list.iter().filter_map(|raw| ControlBlock::new(*raw))
}
