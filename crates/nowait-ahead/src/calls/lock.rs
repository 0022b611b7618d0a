//! Locking the memory of the process, with that of later mappings.

use std::ffi::{c_int, c_long};

use crate::next::interpose;
use crate::residency;

interpose! {
    fn mlockall(flags: c_int) -> c_int, else -1, call => { residency::locks(flags); call() };
    fn munlockall() -> c_int, else -1, call => { let result = call(); residency::unlocks(); result };
}

/// The program locks or unlocks its memory by a number of syscall(2).
pub fn by_number(number: c_long, flags: c_int) {
    if number == libc::SYS_mlockall {
        residency::locks(flags);
    }
}
