//! Limits for the kernel's workers of a ring.
#![allow(unsafe_code, reason = "fcntl(2) with a lease")]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nowait::ServedBy;
use nowait::engine::{Backend, Feature, Options};
use nowait::op::Openat2;
use nowait::support::Support;

use crate::common::backends::backends;
use crate::common::children::alone;
use crate::common::completions::{finish, queued};
use crate::common::files::{patterned, scratch};
use crate::common::results::nothing_for_a_while;
use crate::common::wait::{LONG, wait_until};

/// The number of worker threads that the kernel has started for rings of this process.
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("iou-wrk"))
        .count()
}

/// Opens a file and takes a lease on it. An open for writing waits until this one is closed.
fn leased(path: &Path) -> File {
    let file = File::open(path).unwrap();
    // SAFETY: F_SETLEASE takes an int.
    let taken = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    assert_eq!(taken, 0);
    file
}

/// Submits four operations that wait: opens of files with leases. Returns the greatest number of workers
/// within some time, or when it is enough.
fn most(options: Options, enough: usize, limit: Duration) -> usize {
    let mut engine = options.build_local().unwrap();
    let dir = scratch();
    let mut files = Vec::new();
    for i in 0..4 {
        let path = patterned(dir.path(), &i.to_string(), 1);
        files.push(leased(&path));
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        queued(&mut engine, Openat2::new(path, libc::O_WRONLY, 0));
    }
    wait_until("a worker", || workers() > 0);
    let begin = Instant::now();
    let mut most = 0;
    while most < enough && begin.elapsed() < limit {
        nothing_for_a_while(&mut engine);
        most = most.max(workers());
    }
    drop(files);
    for done in finish(&mut engine, 4) {
        assert_eq!(done.provenance.served_by, ServedBy::Ring, "{done:?}");
    }
    most
}

#[test]
fn the_kernel_keeps_to_the_limit() {
    if backends()[0] == Backend::Threads {
        return;
    }
    // In a child: the limits belong to the thread, and all threads of the process are counted.
    alone(|| {
        // The holder of a lease gets a signal when the file is opened.
        // SAFETY: SIGIO has no handler in this program.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let ring = || Options::new().backend(Backend::Uring);
        let moment = Duration::from_millis(200);
        assert_eq!(most(ring().ring_workers(1, 1), 2, moment), 1);
        assert!(
            most(ring().ring_workers(8, 8), 2, LONG) > 1,
            "the test sees nothing"
        );
    });
}

#[test]
fn it_is_said_whether_there_are_limits() {
    for backend in backends() {
        let options = Options::new().backend(backend);
        let state = |options: &Options| {
            let engine = options.build().unwrap();
            engine.support(Feature::RingWorkers)
        };
        if backend == Backend::Uring {
            assert_eq!(state(&options), Support::Untried);
            assert_eq!(state(&options.ring_workers(2, 2)), Support::Yes);
        } else {
            let state = state(&options.ring_workers(2, 2));
            assert!(matches!(state, Support::No(_)), "{state:?}");
        }
    }
}

#[test]
fn a_ring_gives_its_number_back() {
    // A thread can register 16 rings. Each engine frees its registration.
    for _ in 0..40 {
        if let Ok(engine) = Options::new().backend(Backend::Uring).build_local() {
            assert!(engine.support(Feature::RegisteredRing).is_yes());
        }
    }
}
