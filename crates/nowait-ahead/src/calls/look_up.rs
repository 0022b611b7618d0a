//! Paths that are looked up without stat(2), and the working directory.

use std::ffi::{c_char, c_int, c_long};

use libc::{size_t, ssize_t};

use crate::learn;
use crate::named::Named;
use crate::next::interpose;
use crate::watch;

interpose! {
    fn chdir(path: *const c_char) -> c_int, else -1, call => { let result = call(); learn::moves(); result };
    fn fchdir(fd: c_int) -> c_int, else -1, call => { let result = call(); learn::moves(); result };
    fn access(path: *const c_char, mode: c_int) -> c_int, else -1, call => looked_up(Named::here(path), call());
    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, else -1,
        call => looked_up(Named { dir, path }, call());
    fn readlink(path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t, else -1,
        call => looked_up(Named::here(path), call() as c_long) as ssize_t;
    fn readlinkat(dir: c_int, path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t, else -1,
        call => looked_up(Named { dir, path }, call() as c_long) as ssize_t;
}

fn looked_up<R: Copy + Into<c_long>>(path: Named, result: R) -> R {
    watch::looked_up(result.into() < 0, path);
    result
}
