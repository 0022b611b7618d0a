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
        call => renames(Named { dir: old_dir, path: old }, Named { dir, path }, flags, call());
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

/// A call of renameat2(2) has named one file or two, or has failed.
fn renames(old: Named, new: Named, flags: c_uint, result: c_int) -> c_int {
    if flags & libc::RENAME_EXCHANGE != 0 {
        names(old, result);
    }
    names(new, result)
}

/// Carries out a system call by its number, if it names a file. `None` for other calls.
pub fn by_number(
    number: c_long,
    [a, b, c, d, e]: [c_long; 5],
    call: impl Fn() -> c_long,
) -> Option<c_long> {
    let in_directory = |dir: c_long, path: c_long| Named {
        dir: dir as c_int,
        path: path as *const c_char,
    };
    let file = match number {
        libc::SYS_renameat | libc::SYS_linkat => in_directory(c, d),
        libc::SYS_renameat2 => {
            let (old, new) = (in_directory(a, b), in_directory(c, d));
            return Some(renames(old, new, e as c_uint, call() as c_int).into());
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename | libc::SYS_link => Named::here(b as *const c_char),
        _ => return None,
    };
    Some(names(file, call() as c_int).into())
}
