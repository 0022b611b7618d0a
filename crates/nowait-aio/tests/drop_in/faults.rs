//! System calls that fail: each call of the library, once or always from some call on, with the errors that
//! it can have. The program checks that no request hangs, that no descriptor leaks, and that results are
//! true.

use std::sync::Mutex;

use crate::common::{OURS, Program, Under};

/// A call, and its errors.
type Fault = (libc::c_long, &'static [i32]);

/// The call of epoll_wait(3). Newer architectures have epoll_pwait(2) alone.
#[cfg(target_arch = "x86_64")]
const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_pwait;

/// Calls of the library itself. A sandbox causes EPERM and ENOSYS.
const OWN: &[Fault] = &[
    (
        libc::SYS_socketpair,
        &[libc::EMFILE, libc::ENOMEM, libc::EPERM],
    ),
    (libc::SYS_fcntl, &[libc::EMFILE, libc::EPERM]),
    (libc::SYS_fstat, &[libc::ENOMEM, libc::EPERM]),
    (libc::SYS_newfstatat, &[libc::ENOMEM]),
    (
        libc::SYS_sendmsg,
        &[libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN],
    ),
    (libc::SYS_recvmsg, &[libc::ENOMEM]),
    (libc::SYS_close_range, &[libc::ENOSYS, libc::EPERM]),
    (libc::SYS_unshare, &[libc::EPERM, libc::ENOMEM]),
    (libc::SYS_kcmp, &[libc::EPERM, libc::ENOSYS]),
    (libc::SYS_epoll_create1, &[libc::EMFILE, libc::ENOMEM]),
    (libc::SYS_epoll_ctl, &[libc::ENOMEM, libc::ENOSPC]),
    (EPOLL_WAIT, &[libc::EPERM]),
    (libc::SYS_prctl, &[libc::EPERM]),
    (libc::SYS_rt_sigqueueinfo, &[libc::EPERM]),
    (libc::SYS_clone3, &[libc::EAGAIN]),
    (libc::SYS_prlimit64, &[libc::EPERM]),
    (libc::SYS_preadv2, &[libc::EPERM, libc::EOPNOTSUPP]),
    (libc::SYS_pwritev2, &[libc::EPERM, libc::EOPNOTSUPP]),
    (libc::SYS_preadv, &[libc::EPERM]),
    (libc::SYS_readv, &[libc::EPERM]),
    (libc::SYS_madvise, &[libc::EINVAL, libc::ENOMEM]),
];

/// Calls of its engine for requests.
const ENGINES: &[Fault] = &[
    (libc::SYS_eventfd2, &[libc::EMFILE]),
    (libc::SYS_io_uring_setup, &[libc::ENOMEM, libc::EPERM]),
    (libc::SYS_pread64, &[libc::EIO]),
    (libc::SYS_pwrite64, &[libc::EIO, libc::ENOSPC]),
    (libc::SYS_fdatasync, &[libc::EIO]),
];

/// Runs the program with each fault. Two processes run at a time, because they mostly wait.
fn runs(faults: &[Fault]) {
    let program = Program::compile("faults.c");
    let case = "nothing_hangs_leaks_or_lies";
    program.run(case, Under::Glibc, &[]).unwrap();
    let mut all = Vec::new();
    for under in OURS {
        for (call, errors) in faults {
            for error in *errors {
                let once = [1, 2, 3, 5, 8].map(|at| (at, 1));
                for (at, once) in once.into_iter().chain([(1, 0), (3, 0)]) {
                    all.push((under, *call, *error, at, once));
                }
            }
        }
    }
    let (left, wrong) = (Mutex::new(all), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(fault) = left.lock().unwrap().pop() else {
                        return;
                    };
                    let (under, call, error, at, once) = fault;
                    let numbers = [call as i32, error, at, once].map(|n| n.to_string());
                    let names = ["FAULT_CALL", "FAULT_ERRNO", "FAULT_AT", "FAULT_ONCE"];
                    let pairs = names.into_iter().zip(numbers.iter().map(String::as_str));
                    let env: Vec<(&str, &str)> = pairs.collect();
                    if let Err(why) = program.run(case, under, &env) {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("{under:?} {env:?}: {why}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn failing_calls_of_the_library() {
    runs(OWN);
}

#[test]
fn failing_calls_of_its_engine() {
    runs(ENGINES);
}
