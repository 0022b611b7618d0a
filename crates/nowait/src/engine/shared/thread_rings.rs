//! Rings of the threads that poll futures: [`Options::thread_rings`](super::Options::thread_rings).
//!
//! ```text
//!  polling thread                         │ the runtime
//!                                         │
//!  poll ─► submit ─► the thread's ring ───┼─► device ─► the ring's descriptor is readable (epoll)
//!                                         │        └─► reaper ─► deliver ─► the future's waker
//! ```
//! A reaper is a task of the runtime. It takes the completions of one ring.
//!
//! The kernel finishes a buffered read in the thread that submitted it. If the thread exits, its
//! uncached reads fail with EFAULT or ECANCELED. A worker repeats them. Other requests than
//! buffered reads of regular files go to the owner.
//!
//! A ring ends with its thread, with the engine or with the runtime. The reaper then takes the
//! remaining completions. If the runtime has ended, another thread takes them.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};

use crate::engine::core::Core;
use crate::engine::request::Request;
use crate::engine::ring::options::RingOptions;
use crate::engine::ring::{Returned, Ring, WaitFor};
use crate::engine::workers::Pools;
use crate::op::Kind;
use crate::policy::mode::Mode;
use crate::policy::stats::Count;
use crate::sys::sync::{Mutex, lock, spawn};

/// The number of reads that one ring may hold. Further reads go to the owner.
const DEPTH: usize = 64;
/// The number of rings of an engine. Further threads have none.
const MAX_RINGS: usize = 64;
/// The interval at which a ring without a reaper is drained.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);

/// The thread rings of one engine.
pub(super) struct ThreadRings {
    core: Arc<Core>,
    pools: Arc<Pools>,
    rings: Mutex<Vec<Weak<ThreadRing>>>,
    /// True after a ring could not be made, or the runtime has no I/O driver.
    is_unavailable: AtomicBool,
}

/// The ring of one thread, for one engine and one runtime.
struct ThreadRing {
    core: Arc<Core>,
    pools: Arc<Pools>,
    runtime: Id,
    /// `None` after the ring was closed and had no more requests.
    ring: Mutex<Option<Ring>>,
    /// True if the ring takes no more requests. It is set while `ring` is locked.
    is_closed: AtomicBool,
}

thread_local! {
    static OF_THIS_THREAD: OfThread = const { OfThread(RefCell::new(Vec::new())) };
}

/// The rings of a thread, which are closed when it ends.
struct OfThread(RefCell<Vec<Arc<ThreadRing>>>);

impl ThreadRings {
    pub(super) fn new(core: &Arc<Core>, pools: &Arc<Pools>) -> ThreadRings {
        ThreadRings {
            core: core.clone(),
            pools: pools.clone(),
            rings: Mutex::default(),
            is_unavailable: AtomicBool::new(false),
        }
    }

    /// Submits a request to the calling thread's ring. Returns the request if it is for the owner.
    #[must_use]
    pub(super) fn submit(&self, request: Request) -> Option<Request> {
        if !self.takes(&request) {
            return Some(request);
        }
        match self.of_this_thread() {
            Some(ring) => ring.submit(request),
            None => Some(request),
        }
    }

    /// Returns true for a read that the kernel does without its own workers, and whose copy may be
    /// made in the calling thread. While the engine is congested, the submission may wait.
    fn takes(&self, request: &Request) -> bool {
        let Kind::Read(read) = &request.op.body.kind else {
            return false;
        };
        let Some(handle) = request.op.body.kind.handle() else {
            return false;
        };
        let policy = &self.core.policy;
        handle.is_regular()
            && !handle.is_direct()
            && handle.nowait_read().works()
            && handle.mode().unwrap_or(policy.mode) == Mode::Eager
            && request.op.body.kind.is_unflagged()
            && request.op.get_deadline().is_none()
            && !policy.congestion.is_congested(self.core.files_in_flight())
            && read
                .left_range()
                .is_some_and(|(_, len)| len <= policy.copy_limit)
    }

    /// The calling thread's ring for its runtime. It is made at the first call.
    fn of_this_thread(&self) -> Option<Arc<ThreadRing>> {
        let runtime = Handle::try_current().ok()?;
        let id = runtime.id();
        let find = |of_thread: &OfThread| {
            let mut rings = of_thread.0.borrow_mut();
            rings.retain(|ring| !ring.is_closed());
            let is_ours =
                |ring: &&Arc<ThreadRing>| ring.runtime == id && Arc::ptr_eq(&ring.core, &self.core);
            if let Some(ring) = rings.iter().find(is_ours) {
                return Some(ring.clone());
            }
            let ring = self.start(&runtime)?;
            rings.push(ring.clone());
            Some(ring)
        };
        OF_THIS_THREAD.try_with(find).ok().flatten()
    }

    /// Makes a ring for the calling thread, and starts its reaper.
    fn start(&self, runtime: &Handle) -> Option<Arc<ThreadRing>> {
        let mut rings = lock(&self.rings);
        rings.retain(|ring| ring.strong_count() > 0);
        if rings.len() >= MAX_RINGS || self.is_unavailable.load(Ordering::Relaxed) {
            return None;
        }
        let options = RingOptions {
            is_of_thread: true,
            ..RingOptions::default()
        };
        let started = Ring::new(&self.core, DEPTH, &options).and_then(|(ring, _)| {
            let number = ring.descriptor().as_raw_fd();
            let ring = Arc::new(ThreadRing {
                core: self.core.clone(),
                pools: self.pools.clone(),
                runtime: runtime.id(),
                ring: Mutex::new(Some(ring)),
                is_closed: AtomicBool::new(false),
            });
            let watched = Watched(ring.clone(), number);
            // A runtime without an I/O driver panics.
            #[allow(deprecated, reason = "the function that replaces it needs tokio 1.54")]
            let watch = || AsyncFd::with_interest(watched, Interest::READABLE);
            let watched = catch_unwind(AssertUnwindSafe(watch))
                .unwrap_or(Err(std::io::ErrorKind::Unsupported.into()))?;
            runtime.spawn(reap(watched));
            Ok(ring)
        });
        match started {
            Ok(ring) => {
                rings.push(Arc::downgrade(&ring));
                Some(ring)
            }
            Err(_) => {
                self.is_unavailable.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Closes all rings: their reapers end when the rings are empty.
    pub(super) fn close(&self) {
        let rings = std::mem::take(&mut *lock(&self.rings));
        rings
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|ring| ring.close());
    }
}

impl Drop for OfThread {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(|ring| ring.close());
    }
}

impl ThreadRing {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Submits a request. Returns it if the ring is full or closed.
    fn submit(&self, request: Request) -> Option<Request> {
        let mut request = Some(request);
        self.with_ring(|ring, out| {
            if self.is_closed()
                || !request
                    .as_ref()
                    .is_some_and(|r| ring.supports(&r.op.body.kind))
            {
                return;
            }
            request = request.take().and_then(|request| ring.push(request));
            if request.is_none() {
                self.core.policy.counters.count(Count::ThreadRings);
                ring.flush(out);
                ring.drain(out);
            }
        });
        request
    }

    /// Delivers the completions that are there. Returns true if the ring is closed and empty.
    fn reap(&self) -> bool {
        let mut is_empty = true;
        self.with_ring(|ring, out| {
            ring.drain(out);
            is_empty = ring.held() == 0;
        });
        is_empty && self.is_closed()
    }

    /// Takes no more requests, and wakes the reaper.
    fn close(&self) {
        if self.core.process.is_here() {
            self.with_ring(|ring, _| {
                self.is_closed.store(true, Ordering::Release);
                ring.complete_nop();
            });
        }
    }

    /// Runs a closure on the ring, and delivers what leaves the ring after it is unlocked.
    fn with_ring(&self, act: impl FnOnce(&mut Ring, &mut dyn FnMut(Returned))) {
        let mut outs = Vec::new();
        if let Some(ring) = &mut *lock(&self.ring) {
            act(ring, &mut |out| outs.push(out));
        }
        for out in outs {
            match out {
                Returned::Done(request, outcome) => {
                    let (target, completion) = request.finish(&self.core, outcome);
                    if let Some(dropped) = target.deliver(&self.core, completion) {
                        self.pools.discard(dropped);
                    }
                }
                Returned::Worker(request) => self.pools.push(request),
            }
        }
    }

    /// Takes completions until the kernel owes none, and frees the closed ring.
    fn drain(&self) {
        while !self.reap() {
            self.with_ring(|ring, _| ring.wait(WaitFor::count(1), Some(DRAIN_INTERVAL)));
        }
        let ring = lock(&self.ring).take();
        drop(ring);
    }
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        if !self.core.process.is_here()
            && let Some(ring) = lock(&self.ring).take()
        {
            ring.forget();
        }
    }
}

/// A ring whose descriptor the runtime watches.
struct Watched(Arc<ThreadRing>, RawFd);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.1
    }
}

impl Drop for Watched {
    /// The reaper has ended, or the runtime. Nothing else takes the completions that are still
    /// owed.
    fn drop(&mut self) {
        let ring = self.0.clone();
        ring.close();
        if !ring.core.process.is_here() {
            return;
        }
        let other = ring.clone();
        if ring.reap() || spawn(c"nowait-drain", move || other.drain()).is_err() {
            ring.drain();
        }
    }
}

/// Delivers the completions of a ring until it is closed and empty.
async fn reap(watched: AsyncFd<Watched>) {
    // `readable` returns an error after the runtime has shut down.
    while let Ok(mut ready) = watched.readable().await {
        ready.clear_ready();
        if watched.get_ref().0.reap() {
            return;
        }
    }
}
