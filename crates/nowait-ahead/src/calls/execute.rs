//! All ways to execute another program, and to end the process. tests/c/ways.c of nowait-cli uses each function that is
//! defined here. exit(3) calls the function that `start` has registered.

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::learn;
use crate::next::interpose;

interpose! {
    // These do not return.
    fn _exit(status: c_int) -> c_int, else -1, call => { learn::ends(); call() };
    fn _Exit(status: c_int) -> c_int, else -1, call => { learn::ends(); call() };
    fn quick_exit(status: c_int) -> c_int, else -1, call => { learn::ends(); call() };
    fn execve(path: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int, else -1,
        call => { learn::executes(); call() };
    fn execveat(
        fd: c_int, path: *const c_char, arguments: *const c_void, environment: *const c_void, flags: c_int,
    ) -> c_int, else -1, call => { learn::executes(); call() };
    fn execv(path: *const c_char, arguments: *const c_void) -> c_int, else -1, call => { learn::executes(); call() };
    fn execvp(path: *const c_char, arguments: *const c_void) -> c_int, else -1, call => { learn::executes(); call() };
    fn execvpe(path: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int, else -1,
        call => { learn::executes(); call() };
    fn fexecve(fd: c_int, arguments: *const c_void, environment: *const c_void) -> c_int, else -1,
        call => { learn::executes(); call() };
}

/// The program executes another one by a number of syscall(2), or ends.
pub fn by_number(number: c_long) {
    match number {
        libc::SYS_execve | libc::SYS_execveat => learn::executes(),
        libc::SYS_exit_group => learn::ends(),
        _ => {}
    }
}

/// The functions that take the arguments of the program one by one. These may be any number, in registers and on the stack,
/// so a function of this library must not be between the C library and its caller. It keeps the registers and jumps there.
macro_rules! variadic {
    ($($name:ident $number:literal)*) => {
        $crate::next::functions!(find_variadic $($name)*);
        /// The program is about to call the function with this number. Returns that of the C library.
        extern "C" fn before<const NUMBER: usize>() -> *mut c_void {
            learn::executes();
            [$(&find_variadic::$name),*][NUMBER].address()
        }
    $(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> c_int {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                before = sym before::<$number>,
            )
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> c_int {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                "br x16",
                before = sym before::<$number>,
            )
        }
    )*};
}

variadic! { execl 0 execlp 1 execle 2 }
