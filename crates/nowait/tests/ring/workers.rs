//! Limits for the kernel's workers of a ring.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use nowait::engine::{Availability, Backend, Feature, Options};
use nowait::op::OpenDirect;
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::common::backends::backends;
use crate::common::children::alone;
use crate::common::completions::{finish, queued};
use crate::common::files::scratch;
use crate::common::results::nothing_for_a_while;

/// The number of worker threads that the kernel has started for rings of this process.
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("iou-wrk"))
        .count()
}

/// Submits four operations that wait: opens of fifos without a reader. Returns the number of workers
/// meanwhile.
fn most(options: Options) -> usize {
    let mut engine = options.build_local().unwrap();
    let files = engine.file_set(4).unwrap();
    let slots: Vec<_> = (0..4).map(|_| files.reserve().unwrap()).collect();
    let dir = scratch();
    let fifo = |i: u32| dir.path().join(i.to_string());
    for i in 0..4 {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, fifo(i), FileType::Fifo, mode, 0).unwrap();
        let path = CString::new(fifo(i).as_os_str().as_bytes()).unwrap();
        // Only the ring opens into a slot. With O_CREAT a kernel worker does it.
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let slot = &slots[i as usize];
        queued(
            &mut engine,
            OpenDirect::new(slot, path, flags.bits().cast_signed(), mode.bits()),
        );
    }
    nothing_for_a_while(&mut engine);
    let most = workers();
    let open = |i| rustix::fs::open(fifo(i), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let _readers: Vec<_> = (0..4).map(|i| open(i).unwrap()).collect();
    finish(&mut engine, 4);
    most
}

#[test]
fn the_kernel_keeps_to_the_limit() {
    if backends()[0] == Backend::Threads {
        return;
    }
    // In a child: the limits belong to the thread, and all threads of the process are counted.
    alone(|| {
        let ring = || Options::new().backend(Backend::Uring);
        assert_eq!(most(ring().ring_workers(1, 1)), 1);
        assert!(most(ring().ring_workers(8, 8)) > 1, "the test sees nothing");
    });
}

#[test]
fn it_is_said_whether_there_are_limits() {
    for backend in backends() {
        let options = Options::new().backend(backend);
        let state = |options: &Options| {
            let engine = options.build().unwrap();
            engine.features().get(Feature::RingWorkers).clone()
        };
        if backend == Backend::Uring {
            assert_eq!(state(&options), Availability::NotAsked);
            assert_eq!(state(&options.ring_workers(2, 2)), Availability::Available);
        } else {
            let state = state(&options.ring_workers(2, 2));
            assert!(matches!(state, Availability::Lacking(_)), "{state:?}");
        }
    }
}

#[test]
fn a_ring_gives_its_number_back() {
    // A thread can register 16 rings. Each engine frees its registration.
    for _ in 0..40 {
        if let Ok(engine) = Options::new().backend(Backend::Uring).build_local() {
            assert!(engine.features().has(Feature::RegisteredRing));
        }
    }
}
