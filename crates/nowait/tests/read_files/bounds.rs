//! The limits: files and bytes in the window, descriptors, and paths that are taken.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use nowait::engine::Engine;
use nowait::read_files::Options;
use test_support::opens;

use crate::common::cache::evict;
use crate::common::children::{alone, in_child_by, this_program};
use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;
use crate::common::open_paths::open_below;
use crate::common::wait::wait_until;
use crate::{FACES, engines, results};

/// The variable with the directory of a test in a child.
const DIRECTORY: &str = "NOWAIT_TEST_DIRECTORY";

#[test]
fn paths_are_taken_a_window_at_most() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 100);
    for face in FACES {
        for window in [1, 2, 100, 1000] {
            let _limit = Limit::new(format!("{face:?} {window}"));
            let taken = Cell::new(0usize);
            let endless = std::iter::repeat_with(|| {
                taken.set(taken.get() + 1);
                &path
            });
            let options = Options::new().max_buffered(window, 1 << 20);
            let mut files = options.read(endless);
            assert_eq!(taken.get(), 0, "nothing is done before a file is asked for");
            for returned in 0..5000 {
                match face {
                    crate::Face::Future => pollster::block_on(files.next_file()),
                    _ => files.next(),
                }
                .unwrap()
                .unwrap();
                assert!(taken.get() - returned <= window, "{returned}");
            }
            assert!(window < 100 || taken.get() >= 5000 + window / 2);
        }
    }
}

/// The limit is kept by the files that are held, counted here and by the library.
#[test]
fn bytes_stay_within_the_window() {
    let dir = scratch();
    let sizes = (0..400).map(|i| 1 + i * 7919 % 20_000).collect::<Vec<_>>();
    let small: Vec<_> = (0..400)
        .map(|i| patterned(dir.path(), &format!("f{i}"), sizes[i]))
        .collect();
    for engine in engines() {
        for face in FACES {
            for bytes in [30_000, 100_000, 1_000_000] {
                let _limit = Limit::new(format!("{} {face:?} {bytes}", engine.backend()));
                small.iter().step_by(2).for_each(|path| evict(path));
                let options = Options::new().max_buffered(1000, bytes).engine(&engine);
                let mut files = options.read(&small);
                let mut nothing = Context::from_waker(Waker::noop());
                let mut count = 0;
                // The window fills while no file is returned.
                if !matches!(face, crate::Face::Caller) {
                    count += usize::from(files.poll_next_file(&mut nothing).is_ready());
                }
                for file in files.by_ref() {
                    file.unwrap();
                    count += 1;
                }
                assert_eq!(count, small.len());
                let held = files.stats().max_held;
                assert!(held <= bytes && held > 0, "{held} of {bytes}");
            }
        }
    }
}

/// It is larger than the window, so nothing else is held meanwhile, and it is not put off without end.
#[test]
fn a_file_larger_than_the_window_is_read_alone() {
    let dir = scratch();
    let small = patterned(dir.path(), "small", 1000);
    let large = patterned(dir.path(), "large", 500_000);
    for engine in engines() {
        for face in FACES {
            for in_order in [false, true] {
                let _limit = Limit::new(format!("{} {face:?}", engine.backend()));
                let options = Options::new().max_buffered(64, 100_000).engine(&engine);
                let options = options.in_order(in_order);
                let endless = std::iter::once(&large).chain(std::iter::repeat(&small));
                let mut files = options.read(endless);
                let mut before = 0;
                loop {
                    let file = match face {
                        crate::Face::Future => pollster::block_on(files.next_file()),
                        _ => files.next(),
                    };
                    if file.unwrap().unwrap().bytes().len() == 500_000 {
                        break;
                    }
                    before += 1;
                }
                assert!(before <= 64, "it was put off: {before}");
                // A quarter of the window is for cached files. In order, the others may be full as well.
                let most = if in_order { 600_000 } else { 525_000 };
                assert!(files.stats().max_held <= most, "{:?}", files.stats());
            }
        }
    }
}

/// Two for each worker, and those are closed at the end.
#[test]
fn descriptors_are_bounded_by_the_workers() {
    alone(|| {
        let dir = scratch();
        let paths: Vec<_> = (0..2000)
            .map(|i| patterned(dir.path(), &format!("f{i}"), 5000))
            .collect();
        for engine in engines() {
            let workers = 4;
            let options = Options::new().workers(workers).engine(&engine);
            let (over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        most.fetch_max(open_below(dir.path()).len(), Ordering::Relaxed);
                    }
                });
                for _ in 0..5 {
                    paths.iter().for_each(|path| evict(path));
                    results(&options, crate::Face::Workers, &paths);
                }
                over.store(true, Ordering::Relaxed);
            });
            // One for `evict`.
            let most = most.load(Ordering::Relaxed);
            assert!(most <= 2 * workers + 1, "{most}");
            wait_until("files stay open", || open_below(dir.path()).is_empty());
        }
    });
}

#[test]
fn a_stream_that_is_dropped_holds_nothing() {
    alone(|| {
        let dir = scratch();
        let paths: Vec<_> = (0..500)
            .map(|i| patterned(dir.path(), &format!("f{i}"), 5000))
            .collect();
        for engine in engines() {
            for returned in [0, 1, 10, 499] {
                for face in FACES {
                    let _limit = Limit::new(format!("{} {face:?} {returned}", engine.backend()));
                    paths.iter().for_each(|path| evict(path));
                    let mut files = Options::new().engine(&engine).read(&paths);
                    for _ in 0..returned {
                        match face {
                            crate::Face::Future => pollster::block_on(files.next_file()),
                            _ => files.next(),
                        };
                    }
                    if returned == 0 {
                        let mut nothing = Context::from_waker(Waker::noop());
                        let _ = files.poll_next_file(&mut nothing);
                    }
                    drop(files);
                    wait_until("files stay open", || open_below(dir.path()).is_empty());
                }
            }
        }
    });
}

/// An iterator that blocks or panics does so in the calling thread.
#[test]
fn a_panic_of_the_paths_is_the_callers() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 100);
    let mut left = 100;
    let paths = std::iter::from_fn(|| {
        left -= 1;
        assert!(left > 0, "the paths panic");
        Some(&path)
    });
    let mut files = Options::new().max_buffered(10, 1000).read(paths);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        files.by_ref().for_each(|file| drop(file.unwrap()));
    }));
    assert!(caught.is_err());
    drop(files);
    let again = Options::new().engine(&Engine::process().unwrap());
    assert_eq!(results(&again, crate::Face::Future, [&path; 10]).len(), 10);
}

/// A try that does not wait, and if it fails a call that may wait, finds the type of a file. Another call opens it.
#[test]
fn each_file_is_opened_with_at_most_three_calls() {
    const FILES: usize = 2_000;
    let dir = match std::env::var_os(DIRECTORY) {
        None => scratch(),
        Some(dir) => {
            let paths = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
            assert_eq!(
                nowait::read_files(paths).filter(Result::is_ok).count(),
                FILES
            );
            return;
        }
    };
    for i in 0..FILES {
        patterned(dir.path(), &format!("f{i}"), 100);
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = slowdisk::require!(opens::traced(log.path()));
    command.arg(this_program()).env(DIRECTORY, dir.path());
    in_child_by(command, "counted");
    // The test program itself, and each worker, needs some more.
    let opens = opens::count(log.path());
    let expected = 2 * FILES..=3 * FILES + 500;
    assert!(expected.contains(&opens), "{opens} opens");
}
