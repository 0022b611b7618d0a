//! Forked children in which a system call fails: always, once at its n-th call, or from its n-th call on.
//! seccomp(2) answers the call; the kernel does not carry it out.
#![allow(unsafe_code, reason = "fork(2), seccomp(2), seccomp_unotify(2)")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Instant;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::common::wait::LONG;

/// The calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Always,
    /// The n-th call only, counted from 1.
    Nth(u32),
    /// The n-th call and each later one.
    From(u32),
}

/// The calls of one number that are counted and may fail.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    All,
    /// Calls whose third argument differs: reads and writes of eventfds work.
    UnlessCount(u32),
    /// futex(2) calls that wait. A call that wakes has no error that the kernel could return.
    FutexWaits,
}

/// The call that fails, and the errno.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub call: libc::c_long,
    pub which: Which,
    pub errno: i32,
    pub when: When,
}

/// Memory that parent and child share.
#[derive(Default)]
pub struct Page {
    /// The step that the child is at, for messages.
    pub stage: AtomicU32,
    /// A value that the child reports.
    pub fact: AtomicU32,
    listener: AtomicI32,
    go: AtomicU32,
}

impl Page {
    /// A new page. It is never unmapped.
    pub fn new() -> &'static Page {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, zeroed, and large enough.
        unsafe {
            let page = mmap_anonymous(std::ptr::null_mut(), 4096, access, MapFlags::SHARED);
            &*page.unwrap().cast()
        }
    }
}

/// Runs `body` in a forked child in which the call fails. Returns the number of calls that were counted, 0
/// for `When::Always`. Returns an error if the child panics, dies or hangs.
pub fn failing(case: Case, page: &Page, body: impl FnOnce()) -> Result<u32, String> {
    page.stage.store(0, Ordering::SeqCst);
    page.fact.store(0, Ordering::SeqCst);
    page.listener.store(-1, Ordering::SeqCst);
    page.go.store(0, Ordering::SeqCst);
    // SAFETY: no other thread of the parent holds a lock of the library.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: no memory is involved. A child that hangs ends with a signal.
        unsafe { libc::alarm(LONG.as_secs() as u32) };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            put_on(case, page);
            body();
        }));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let counted = match case.when {
        When::Always => 0,
        When::Nth(n) => answer(pid, |call| call == n, case.errno, page),
        When::From(n) => answer(pid, |call| call >= n, case.errno, page),
    };
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    let stage = page.stage.load(Ordering::SeqCst);
    let how = match (libc::WIFSIGNALED(status), libc::WTERMSIG(status)) {
        (true, libc::SIGALRM) => "hangs",
        (true, _) => "dies",
        (false, _) if status != 0 => "fails; its message is above",
        _ => return Ok(counted),
    };
    let Case {
        name, errno, when, ..
    } = case;
    Err(format!(
        "{name} {errno} {when:?}, stage {stage}: {how} ({status:#x})"
    ))
}

/// Installs the filter.
fn put_on(case: Case, page: &Page) {
    let action = match case.when {
        When::Always => libc::SECCOMP_RET_ERRNO | case.errno as u32,
        When::Nth(_) | When::From(_) => libc::SECCOMP_RET_USER_NOTIF,
    };
    let load = |at| (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equal = |value, yes, no| (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let end = |action| (libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let and = |mask: i32| {
        (
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            0,
            0,
            mask as u32,
        )
    };
    let argument = |number: u32| load(16 + number * 8);
    let allow = end(libc::SECCOMP_RET_ALLOW);
    let mut program = vec![load(0), equal(case.call as u32, 1, 0), allow];
    match case.which {
        Which::All => {}
        Which::UnlessCount(count) => program.extend([argument(2), equal(count, 0, 1), allow]),
        Which::FutexWaits => program.extend([
            argument(1),
            and(libc::FUTEX_CMD_MASK),
            equal(libc::FUTEX_WAIT as u32, 2, 0),
            equal(libc::FUTEX_WAIT_BITSET as u32, 1, 0),
            allow,
        ]),
    }
    program.push(end(action));
    let mut program: Vec<_> = program
        .into_iter()
        .map(|(code, jt, jf, k)| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        })
        .collect();
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let flags = match case.when {
        When::Always => 0,
        When::Nth(_) | When::From(_) => libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
    };
    // SAFETY: the program lives through both calls.
    let listener = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    };
    assert!(listener >= 0, "{}", std::io::Error::last_os_error());
    if case.when != When::Always {
        page.listener.store(listener as i32, Ordering::SeqCst);
        while page.go.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // SAFETY: the descriptor is this process's copy, and nothing else uses it.
        drop(unsafe { OwnedFd::from_raw_fd(listener as i32) });
    }
}

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Answers the calls of a child until it ends, and returns their number. `fails` is given the number of the
/// call, counted from 1. The kernel carries out the calls that do not fail.
fn answer(pid: i32, fails: impl Fn(u32) -> bool, errno: i32, page: &Page) -> u32 {
    let end = Instant::now() + 2 * LONG;
    let number = loop {
        match page.listener.load(Ordering::SeqCst) {
            number if number >= 0 => break number,
            _ => assert!(Instant::now() < end, "the child has no filter"),
        }
        std::thread::yield_now();
    };
    // SAFETY: no memory is involved; the descriptors are new.
    let listener = unsafe {
        let child = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        let child = OwnedFd::from_raw_fd(child as i32);
        let listener = libc::syscall(libc::SYS_pidfd_getfd, child.as_raw_fd(), number, 0);
        assert!(listener >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(listener as i32)
    };
    page.go.store(1, Ordering::SeqCst);
    let mut seen = 0;
    loop {
        let mut poll = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` and the two structures live through the calls; the kernel wants the first
        // zeroed.
        unsafe {
            libc::poll(&raw mut poll, 1, -1);
            if poll.revents & libc::POLLIN == 0 {
                // The child has ended.
                return seen;
            }
            let mut call: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut call) != 0 {
                continue;
            }
            seen += 1;
            let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
            answer.id = call.id;
            if fails(seen) {
                answer.error = -errno;
            } else {
                answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            }
            libc::ioctl(listener.as_raw_fd(), SEND, &raw mut answer);
        }
    }
}
