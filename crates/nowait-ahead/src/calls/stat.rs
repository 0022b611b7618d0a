//! stat(2) under all its names, and by number.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use super::{close, descriptor, directory, execute, lock, open, read, rename, sandbox};
use crate::named::Named;
use crate::next::interpose;
use crate::watch;

interpose! {
    fn stat(path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn stat64(path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn lstat(path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn lstat64(path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn fstatat(dir: c_int, path: *const c_char, buf: *mut c_void, flags: c_int) -> c_int, else -1, call => watch::stat(call, Named { dir, path });
    fn fstatat64(dir: c_int, path: *const c_char, buf: *mut c_void, flags: c_int) -> c_int, else -1, call => watch::stat(call, Named { dir, path });
    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named { dir, path });
    fn __xstat(version: c_int, path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn __xstat64(version: c_int, path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn __lxstat(version: c_int, path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn __lxstat64(version: c_int, path: *const c_char, buf: *mut c_void) -> c_int, else -1, call => watch::stat(call, Named::here(path));
    fn __fxstatat(version: c_int, dir: c_int, path: *const c_char, buf: *mut c_void, flags: c_int) -> c_int, else -1, call => watch::stat(call, Named { dir, path });
    fn __fxstatat64(version: c_int, dir: c_int, path: *const c_char, buf: *mut c_void, flags: c_int) -> c_int, else -1, call => watch::stat(call, Named { dir, path });
    // syscall(2) takes up to six arguments. In the C calling conventions of x86-64 and AArch64 a
    // variadic function finds them where a function of seven finds its own.
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long, else -1,
        call => match number {
            libc::SYS_statx | libc::SYS_newfstatat => {
                watch::stat(call, Named { dir: a as c_int, path: b as *const c_char })
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => watch::stat(call, Named::here(a as *const c_char)),
            libc::SYS_prctl => {
                sandbox::controls(a as c_int);
                call()
            }
            libc::SYS_seccomp => {
                sandbox::filters();
                call()
            }
            libc::SYS_getdents64 => directory::listed(call(), a as c_int, b as *const c_void),
            libc::SYS_openat2 | libc::SYS_openat => open::by_number(number, [a, b, c], call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::by_number(number, [a, b, c], call),
            _ => {
                descriptor::by_number(number);
                execute::by_number(number);
                lock::by_number(number, a as c_int);
                others(number, [a, b, c, d, e], call)
            }
        };
}

fn others(number: c_long, arguments: [c_long; 5], call: impl Fn() -> c_long) -> c_long {
    let [a, b, c, d, _] = arguments;
    let closed = close::by_number(number, [a, b, c], &call);
    closed
        .or_else(|| read::by_number(number, [a, b, c, d], &call))
        .or_else(|| rename::by_number(number, arguments, &call))
        .unwrap_or_else(call)
}
