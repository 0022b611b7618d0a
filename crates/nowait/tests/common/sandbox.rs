//! Children in a sandbox: a seccomp filter denies system calls.
#![allow(unsafe_code, reason = "prctl(2) and seccomp(2)")]

use super::children::{in_child, role};

/// Denies system calls with an errno from now on, in every thread of this process.
pub fn deny(calls: &[libc::c_long], errno: i32) {
    let mut program = vec![load(NUMBER)];
    for call in calls {
        program.extend([unless(*call as u32, 1), refuse(errno)]);
    }
    filter(program);
}

/// The offset of the system call's number in `struct seccomp_data`.
pub const NUMBER: u32 = 0;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Loads 32 bits at an offset of `struct seccomp_data`.
pub fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

/// Skips this number of statements unless this value was loaded.
pub fn unless(value: u32, skips: u8) -> libc::sock_filter {
    let jump = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value);
    libc::sock_filter { jf: skips, ..jump }
}

/// Ends the program: the call fails with this errno.
pub fn refuse(errno: i32) -> libc::sock_filter {
    let refused = libc::SECCOMP_RET_ERRNO | errno as u32;
    statement(libc::BPF_RET | libc::BPF_K, refused)
}

/// Installs the filter. A call that it does not refuse is allowed.
pub fn filter(mut program: Vec<libc::sock_filter>) {
    let allow = libc::SECCOMP_RET_ALLOW;
    program.push(statement(libc::BPF_RET | libc::BPF_K, allow));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives through both calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let done = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        );
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Runs the calling test in two children: with ENOSYS for the calls that `body` denies, and with EPERM.
pub fn sandboxed(body: impl FnOnce(i32)) {
    match role().as_deref() {
        None => ["ENOSYS", "EPERM"].into_iter().for_each(in_child),
        Some("ENOSYS") => body(libc::ENOSYS),
        Some(_) => body(libc::EPERM),
    }
}
