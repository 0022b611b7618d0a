//! The end of a process, the start of another program in it, and its working directory.

use std::ffi::{c_char, c_int, c_void};

use crate::learn;
use crate::next::interpose;

interpose! {
    // These do not return.
    fn _exit(status: c_int) -> c_int, else -1, call => { learn::ends(); call() };
    fn _Exit(status: c_int) -> c_int, else -1, call => { learn::ends(); call() };
    fn execve(path: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int, else -1,
        call => { learn::executes(); call() };
    fn execv(path: *const c_char, arguments: *const c_void) -> c_int, else -1, call => { learn::executes(); call() };
    fn execvp(path: *const c_char, arguments: *const c_void) -> c_int, else -1, call => { learn::executes(); call() };
    fn execvpe(path: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int, else -1,
        call => { learn::executes(); call() };
    fn chdir(path: *const c_char) -> c_int, else -1, call => { let result = call(); learn::moves(); result };
    fn fchdir(fd: c_int) -> c_int, else -1, call => { let result = call(); learn::moves(); result };
    fn fexecve(fd: c_int, arguments: *const c_void, environment: *const c_void) -> c_int, else -1,
        call => { learn::executes(); call() };
}
