//! membarrier(2): makes other threads of the process execute a full memory barrier, so that they
//! need none themselves.
#![allow(unsafe_code)]

use super::{Errno, check};

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> Result<(), Errno> {
    // SAFETY: the call takes no pointers.
    check(unsafe { syscall!(libc::SYS_membarrier, command, 0, 0) }).map(drop)
}

/// Declares that the process will use [`barrier`] (Linux 4.14). It fails if the kernel or the
/// sandbox does not allow that.
pub(crate) fn register() -> Result<(), Errno> {
    membarrier(REGISTER_PRIVATE_EXPEDITED)
}

/// A full memory barrier on every running thread of the process. The process is registered.
pub(crate) fn barrier() -> Result<(), Errno> {
    membarrier(PRIVATE_EXPEDITED)
}
