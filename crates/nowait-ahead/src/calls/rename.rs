//! New names of files. `nowait run --keep-cache` finds a file by its name when it evicts it.

use std::ffi::{c_char, c_int, c_long, c_uint};

use crate::named::Named;
use crate::next::interpose;
use crate::survey_events;

interpose! {
    fn rename(old: *const c_char, new: *const c_char) -> c_int, else -1, call => names(Named::here(new), call());
    fn renameat(old_dir: c_int, old: *const c_char, dir: c_int, path: *const c_char) -> c_int, else -1,
        call => names(Named { dir, path }, call());
    fn renameat2(old_dir: c_int, old: *const c_char, dir: c_int, path: *const c_char, flags: c_uint) -> c_int, else -1,
        call => names(Named { dir, path }, call());
    fn link(old: *const c_char, new: *const c_char) -> c_int, else -1, call => names(Named::here(new), call());
    fn linkat(old_dir: c_int, old: *const c_char, dir: c_int, path: *const c_char, flags: c_int) -> c_int, else -1,
        call => names(Named { dir, path }, call());
}

/// A call has named a file, or has failed.
fn names(file: Named, result: c_int) -> c_int {
    if result == 0 {
        // SAFETY: the call has succeeded with this path.
        unsafe { survey_events::named(file) };
    }
    result
}

/// Carries out a system call by its number, if it names a file. `None` for other calls.
pub fn by_number(
    number: c_long,
    [_, b, c, d]: [c_long; 4],
    call: impl Fn() -> c_long,
) -> Option<c_long> {
    let file = match number {
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => Named {
            dir: c as c_int,
            path: d as *const c_char,
        },
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename | libc::SYS_link => Named::here(b as *const c_char),
        _ => return None,
    };
    Some(names(file, call() as c_int).into())
}
