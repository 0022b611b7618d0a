//! Sharing descriptors. `nowait run --keep-cache` evicts files that are closed, unless another descriptor,
//! process or mapping may still have them.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, off64_t, size_t, ssize_t};
use nowait_ahead_channel::release_mappings;

use crate::learn;
use crate::next::interpose;
use crate::open_files::{self, SHARED};
use crate::path;
use crate::system_calls::{self, VFORKS};
use crate::watch;
use crate::windows;

interpose! {
    fn dup(fd: c_int) -> c_int, else -1, call => { open_files::remove(fd); duplicates(fd, call) };
    // fcntl(2) takes one more argument, which a variadic function finds where this one does.
    fn fcntl(fd: c_int, command: c_int, a: c_long) -> c_int, else -1, call => controls(fd, command, call);
    fn fcntl64(fd: c_int, command: c_int, a: c_long) -> c_int, else -1, call => controls(fd, command, call);
    fn mmap(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t) -> *mut c_void,
        else libc::MAP_FAILED, call => maps(fd, (offset, len), call);
    fn mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t) -> *mut c_void,
        else libc::MAP_FAILED, call => maps(fd, (offset, len), call);
    fn munmap(address: *mut c_void, len: size_t) -> c_int, else -1, call => { learn::unmaps(address); call() };
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t, else -1,
        call => { windows::are_sent(); sends(message, call()) };
    fn sendmmsg(fd: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int, else -1,
        call => { windows::are_sent(); open_files::share_all(); call() };
    fn unshare(flags: c_int) -> c_int, else -1, call => { open_files::share_all(); call() };
    fn umount(path: *const c_char) -> c_int, else -1, call => watch::unmounts(call, path);
    fn umount2(path: *const c_char, flags: c_int) -> c_int, else -1, call => watch::unmounts(call, path);
    fn fork() -> c_int, else -1, call => forks(call);
    fn _Fork() -> c_int, else -1, call => forks(call);
    fn forkpty(fd: *mut c_int, name: *mut c_char, a: *const c_void, b: *const c_void) -> c_int, else -1,
        call => forks(call);
    // The child begins in another function, and this one returns only in the parent. Up to three
    // arguments follow the fourth.
    fn clone(
        function: *mut c_void, stack: *mut c_void, flags: c_int, a: *mut c_void, b: c_long, c: c_long, d: c_long,
    ) -> c_int, else -1, call => { windows::are_sent(); by_number(libc::SYS_clone); call() };
    fn system(command: *const c_char) -> c_int, else -1, call => { open_files::share_all(); call() };
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE, else std::ptr::null_mut(),
        call => { open_files::share_all(); call() };
    fn posix_spawn(
        pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const c_void, environment: *const c_void,
    ) -> c_int, else libc::ENOSYS, call => { open_files::share_all(); call() };
    fn posix_spawnp(
        pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const c_void, environment: *const c_void,
    ) -> c_int, else libc::ENOSYS, call => { open_files::share_all(); call() };
}

fn maps(
    fd: c_int,
    (offset, len): (off64_t, size_t),
    call: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    open_files::remove(fd);
    windows::is_mapped(fd, offset, len);
    let address = call();
    learns(fd, address, len);
    address
}

/// It does not use the stack of the functions above, which need theirs for a survey.
#[inline(never)]
fn learns(fd: c_int, address: *mut c_void, len: size_t) {
    learn::mapped(fd, address, len);
}

/// The program has sent a message, which may have descriptors if it has control data.
fn sends(message: *const libc::msghdr, result: ssize_t) -> ssize_t {
    // SAFETY: the kernel has just read the message.
    if result >= 0 && unsafe { (*message).msg_controllen } > 0 {
        open_files::share_all();
    }
    result
}

fn controls(fd: c_int, command: c_int, call: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            open_files::remove(fd);
            duplicates(fd, call)
        }
        _ => call(),
    }
}

/// Duplicates a descriptor.
pub fn duplicates<R>(fd: c_int, call: impl FnOnce() -> R) -> R
where
    R: Copy + Into<c_long>,
{
    let new = learn::duplicates(fd, call);
    windows::duplicated(fd, new.into() as c_int);
    new
}

/// Another thread may open a file meanwhile.
fn forks(call: impl FnOnce() -> c_int) -> c_int {
    open_files::share_all();
    let child = call();
    open_files::share_all();
    if child == 0 {
        path::release_memory();
        release_mappings();
    }
    child
}

/// The program starts a process, duplicates a descriptor or passes it on by a number of syscall(2).
pub fn by_number(number: c_long) {
    #[cfg(target_arch = "x86_64")]
    let is_older = matches!(number, libc::SYS_fork | libc::SYS_vfork | libc::SYS_dup2);
    #[cfg(not(target_arch = "x86_64"))]
    let is_older = false;
    const SHARING: [c_long; 11] = [
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_dup,
        libc::SYS_dup3,
        libc::SYS_fcntl,
        libc::SYS_io_uring_register,
        libc::SYS_mmap,
        libc::SYS_pidfd_getfd,
        libc::SYS_sendmmsg,
        libc::SYS_sendmsg,
        libc::SYS_unshare,
    ];
    if is_older || SHARING.contains(&number) {
        open_files::share_all();
    }
    if is_older || [libc::SYS_clone, libc::SYS_clone3].contains(&number) {
        system_calls::shares_memory();
    }
}

/// The next vfork(2). Before it is found, fork(2) does the same.
static VFORK: AtomicPtr<c_void> = AtomicPtr::new(libc::fork as *mut c_void);

/// Finds vfork(2).
pub fn find_vfork() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"vfork".as_ptr()) };
    if !found.is_null() {
        VFORK.store(found, Ordering::Relaxed);
    }
}

/// vfork(2) returns twice from the same frame of the stack, so a function of this library must not
/// be between it and the program. This one counts the call and jumps there.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> c_int {
    std::arch::naked_asm!(
        "lock inc dword ptr [rip + {shared}]",
        "mov dword ptr [rip + {vforks}], 1",
        "jmp qword ptr [rip + {next}]",
        shared = sym SHARED,
        vforks = sym VFORKS,
        next = sym VFORK,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> c_int {
    std::arch::naked_asm!(
        "adrp x9, {shared}",
        "add x9, x9, :lo12:{shared}",
        "2: ldxr w10, [x9]",
        "add w10, w10, #1",
        "stxr w11, w10, [x9]",
        "cbnz w11, 2b",
        "adrp x9, {vforks}",
        "add x9, x9, :lo12:{vforks}",
        "str w10, [x9]",
        "adrp x9, {next}",
        "ldr x16, [x9, :lo12:{next}]",
        "br x16",
        shared = sym SHARED,
        vforks = sym VFORKS,
        next = sym VFORK,
    )
}
