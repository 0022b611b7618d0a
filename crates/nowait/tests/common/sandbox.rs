//! Sandboxes for children that a test makes: seccomp filters that deny system calls.
#![allow(unsafe_code, reason = "prctl(2) and seccomp(2)")]

use crate::engines::{in_child, role};

/// cachestat(2), which libc has not.
#[allow(dead_code, reason = "not every test binary needs it")]
pub const CACHESTAT: libc::c_long = 451;

/// What is new since containers were first locked up.
#[allow(dead_code, reason = "not every test binary needs it")]
pub const OLD_CONTAINER: [libc::c_long; 8] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_openat2,
    CACHESTAT,
    libc::SYS_mincore,
];

/// Denies system calls with an errno, from now on, in every thread of this process.
pub fn deny(calls: &[libc::c_long], errno: i32) {
    let mut program = vec![load(NUMBER)];
    for call in calls {
        program.extend([unless(*call as u32, 1), refuse(errno)]);
    }
    filter(program);
}

/// As [`deny`], but only calls with this value of an argument (of which 32 bits are looked at).
#[allow(dead_code, reason = "not every test binary needs it")]
pub fn deny_with(call: libc::c_long, argument: u32, value: u32, errno: i32) {
    filter(vec![
        load(NUMBER),
        unless(call as u32, 3),
        load(ARGUMENTS + 8 * argument),
        unless(value, 1),
        refuse(errno),
    ]);
}

/// Where a filter finds the number of the call, and its arguments (the lower half first).
const NUMBER: u32 = 0;
const ARGUMENTS: u32 = 16;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

/// Skips statements unless this value was loaded.
fn unless(value: u32, skips: u8) -> libc::sock_filter {
    let jump = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value);
    libc::sock_filter { jf: skips, ..jump }
}

fn refuse(errno: i32) -> libc::sock_filter {
    let refused = libc::SECCOMP_RET_ERRNO | errno as u32;
    statement(libc::BPF_RET | libc::BPF_K, refused)
}

/// Puts the filter on, which allows what it does not refuse.
fn filter(mut program: Vec<libc::sock_filter>) {
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

/// Runs `body` in a child of each role, once with ENOSYS and once with EPERM.
pub fn sandboxed(test: &str, body: impl FnOnce(i32)) {
    match role().as_deref() {
        None => ["ENOSYS", "EPERM"]
            .iter()
            .for_each(|role| drop(in_child(test, role))),
        Some("ENOSYS") => body(libc::ENOSYS),
        Some(_) => body(libc::EPERM),
    }
}
