//! The wakers of scans and walks may cancel, drop or poll what they wake, and may panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::task::noop_waker;
use nowait::scan::Canceller;
use nowait::{ReadFiles, Scan, Walk};

use crate::common::files::scratch;
use crate::common::hooked::{Event, hooked};
use crate::common::limit::Limit;
use crate::common::wait::wait_until;

/// A scan or a walk.
trait Source: Send + 'static {
    fn begin(path: &Path) -> Self;
    /// The number of entries that are left.
    fn poll(&mut self, waker: &Waker) -> Poll<Option<nowait::Result<usize>>>;
    fn canceller(&self) -> Canceller;
}

impl Source for Scan {
    fn begin(path: &Path) -> Scan {
        Scan::blocking_open(path).unwrap()
    }
    fn poll(&mut self, waker: &Waker) -> Poll<Option<nowait::Result<usize>>> {
        let polled = self.poll_batch(&mut Context::from_waker(waker));
        polled.map_ok(|batch| batch.len())
    }
    fn canceller(&self) -> Canceller {
        Scan::canceller(self)
    }
}

impl Source for Walk {
    fn begin(path: &Path) -> Walk {
        Walk::blocking_open(path).unwrap()
    }
    fn poll(&mut self, waker: &Waker) -> Poll<Option<nowait::Result<usize>>> {
        let polled = self.poll_batch(&mut Context::from_waker(waker));
        polled.map_ok(|found| found.len())
    }
    fn canceller(&self) -> Canceller {
        Walk::canceller(self)
    }
}

impl Source for ReadFiles<std::vec::IntoIter<PathBuf>> {
    fn begin(path: &Path) -> Self {
        let walk = Walk::blocking_open(path).unwrap().map(Result::unwrap);
        let files: Vec<PathBuf> = walk.map(|entry| entry.path()).collect();
        nowait::read_files(files)
    }
    fn poll(&mut self, waker: &Waker) -> Poll<Option<nowait::Result<usize>>> {
        let polled = self.poll_next_file(&mut Context::from_waker(waker));
        polled.map_ok(|_| 1)
    }
    fn canceller(&self) -> Canceller {
        ReadFiles::canceller(self)
    }
}

/// A tree with some batches for a scan and a walk.
fn tree() -> tempfile::TempDir {
    let dir = scratch();
    for i in 0..40 {
        let below = dir.path().join(format!("below {i}"));
        std::fs::create_dir(&below).unwrap();
        for j in 0..20 {
            std::fs::write(below.join(format!("file {j}")), "").unwrap();
        }
    }
    dir
}

/// Polls to the end and counts the entries; an error ends it, too.
fn count(source: &mut impl Source) -> usize {
    let woken = Arc::new(AtomicBool::new(true));
    let wake = woken.clone();
    let waker = hooked(move |event| {
        if event == Event::Wake {
            wake.store(true, SeqCst);
        }
    });
    let mut entries = 0;
    loop {
        wait_until("a poll is worth it", || woken.swap(false, SeqCst));
        loop {
            match source.poll(&waker) {
                Poll::Ready(Some(Ok(more))) => entries += more,
                Poll::Ready(Some(Err(_)) | None) => return entries,
                Poll::Pending => break,
            }
        }
    }
}

fn a_dropped_waker_may_cancel<S: Source>() {
    let _limit = Limit::new("a waker that cancels when it is dropped".into());
    let dir = tree();
    // On a busy machine the workers may be done before the first poll.
    let (mut rounds, mut pending) = (0, 0);
    while rounds < 300 || pending == 0 {
        rounds += 1;
        let mut source = S::begin(dir.path());
        let canceller = source.canceller();
        let waker = hooked(move |event| {
            if event == Event::Drop {
                canceller.cancel();
            }
        });
        let waits = source.poll(&waker).is_pending();
        // The scan has its own clone of the waker.
        std::mem::forget(waker);
        if waits {
            pending += 1;
            let _ = source.poll(&noop_waker());
        }
        drop(source);
    }
}

#[test]
fn a_waker_that_is_dropped_may_cancel_its_scan() {
    a_dropped_waker_may_cancel::<Scan>();
}

#[test]
fn a_waker_that_is_dropped_may_cancel_its_walk() {
    a_dropped_waker_may_cancel::<Walk>();
}

fn a_waker_may_panic<S: Source>() {
    let _limit = Limit::new("a waker that panics".into());
    let dir = tree();
    let all = count(&mut S::begin(dir.path()));
    for when in [Event::Clone, Event::Wake, Event::Drop] {
        for _ in 0..100 {
            let armed = Arc::new(AtomicBool::new(true));
            let is_armed = armed.clone();
            let waker = hooked(move |event| {
                if event == when && is_armed.load(SeqCst) && !std::thread::panicking() {
                    resume_unwind(Box::new("a panic of the program's"));
                }
            });
            let mut source = S::begin(dir.path());
            let mut seen = 0;
            let polled = catch_unwind(AssertUnwindSafe(|| source.poll(&waker)));
            if let Ok(Poll::Ready(Some(Ok(more)))) = &polled {
                seen = *more;
            }
            assert!(polled.is_ok() || when == Event::Clone, "{when:?}");
            // The rest is returned to another waker.
            assert_eq!(seen + count(&mut source), all, "{when:?}");
            armed.store(false, SeqCst);
            drop(waker);
        }
    }
    assert_eq!(count(&mut S::begin(dir.path())), all);
}

#[test]
fn a_waker_of_a_scan_may_panic() {
    a_waker_may_panic::<Scan>();
}

#[test]
fn a_waker_of_a_walk_may_panic() {
    a_waker_may_panic::<Walk>();
}

/// A task that polls its scan in the thread that wakes it, the worker, until it waits again.
struct Task<S>(Mutex<(Option<S>, usize)>);

impl<S: Source> Task<S> {
    fn run(self: &Arc<Self>) {
        let task = Arc::downgrade(self);
        let waker = hooked(move |event| {
            if let (Event::Wake, Some(task)) = (event, task.upgrade()) {
                task.run();
            }
        });
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (source, entries) = &mut *state;
        while let Some(polled) = source.as_mut().map(|source| source.poll(&waker)) {
            match polled {
                Poll::Ready(Some(more)) => *entries += more.unwrap(),
                // The worker that completed the scan drops it.
                Poll::Ready(None) => *source = None,
                Poll::Pending => break,
            }
        }
    }

    fn is_over(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.is_none()
    }
}

fn a_waker_may_poll<S: Source>() {
    let _limit = Limit::new("a waker that polls".into());
    let dir = tree();
    let all = count(&mut S::begin(dir.path()));
    for _ in 0..50 {
        let task = Arc::new(Task(Mutex::new((Some(S::begin(dir.path())), 0))));
        task.run();
        wait_until("the end is found", || task.is_over());
        assert_eq!(task.0.lock().unwrap().1, all);
    }
}

/// A program may drop a scan under a lock that its waker takes.
fn a_drop_wakes_no_task<S: Source>() {
    let dir = tree();
    // On a busy machine the workers may be done before the first poll.
    let (mut rounds, mut pending) = (0, 0);
    while rounds < 100 || pending == 0 {
        rounds += 1;
        let mut source = S::begin(dir.path());
        let (this, woken) = (
            std::thread::current().id(),
            Arc::new(AtomicBool::new(false)),
        );
        let by_this = woken.clone();
        let waker = hooked(move |event| {
            if event == Event::Wake && std::thread::current().id() == this {
                by_this.store(true, SeqCst);
            }
        });
        pending += usize::from(source.poll(&waker).is_pending());
        drop(source);
        assert!(!woken.load(SeqCst));
    }
}

#[test]
fn a_scan_that_is_dropped_wakes_no_task() {
    a_drop_wakes_no_task::<Scan>();
}

#[test]
fn a_walk_that_is_dropped_wakes_no_task() {
    a_drop_wakes_no_task::<Walk>();
}

#[test]
fn reads_of_files_that_are_dropped_wake_no_task() {
    a_drop_wakes_no_task::<ReadFiles<std::vec::IntoIter<PathBuf>>>();
}

#[test]
fn a_waker_may_poll_its_scan() {
    a_waker_may_poll::<Scan>();
}

#[test]
fn a_waker_may_poll_its_walk() {
    a_waker_may_poll::<Walk>();
}
