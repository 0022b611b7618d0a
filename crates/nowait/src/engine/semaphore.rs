//! The permits of an engine: tokio's fair semaphore, with a poll form for the futures of this
//! crate.
//!
//! tokio clones wakers under a lock of its own. It is therefore given a waker of this crate, which
//! holds the program's waker. Cloning that only increments a reference count, and runs no code of
//! the program.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use crate::sys::process::Owner;
use crate::user_code;
use crate::user_code::paused_clock::Hold;

/// Limits the operations in flight. Futures that find no permit wait for one, in order.
#[derive(Debug)]
pub(crate) struct Semaphore {
    permits: Arc<tokio::sync::Semaphore>,
    depth: usize,
    #[cfg(feature = "tokio")]
    streams: Arc<Streams>,
}

/// The streams that wait for a free permit.
#[cfg(feature = "tokio")]
#[derive(Debug, Default)]
struct Streams {
    freed: Arc<tokio::sync::Notify>,
    watching: AtomicUsize,
}

#[cfg(feature = "tokio")]
impl Streams {
    /// Wakes them. Called after a permit became free.
    fn notify(&self) {
        if self.watching.load(SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }
}

type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;

/// A future's position in the queue for a permit. Dropping it leaves the queue, and gives back the
/// permit if one was assigned meanwhile.
pub(crate) struct Waiter {
    acquire: Option<Pin<Box<Acquire>>>,
    process: Owner,
    #[cfg(feature = "tokio")]
    streams: Arc<Streams>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(acquire) = self.acquire.take() else {
            return;
        };
        // Leaving the queue locks it. In a forked child, a thread of the parent may have held that
        // lock at the fork, so the memory is leaked.
        if !self.process.is_here() {
            return std::mem::forget(acquire);
        }
        drop(acquire);
        // It may have given back a permit that no other future in the queue takes.
        #[cfg(feature = "tokio")]
        self.streams.notify();
    }
}

/// A stream's registration to be woken when a permit becomes free. It holds no permit and no
/// position in the queue: a stream whose future was dropped is not polled again, and would keep the
/// permit.
#[cfg(feature = "tokio")]
pub(crate) struct Watch {
    notified: Option<Pin<Box<tokio::sync::futures::OwnedNotified>>>,
    streams: Arc<Streams>,
    process: Owner,
}

#[cfg(feature = "tokio")]
impl Drop for Watch {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.streams.watching.fetch_sub(1, SeqCst);
        } else {
            // A thread of the parent may have held this lock at the fork, so the memory is leaked.
            std::mem::forget(self.notified.take());
        }
    }
}

#[cfg(feature = "tokio")]
impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// A permit that was taken. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a Semaphore);

impl Permit<'_> {
    /// From now on an operation has the permit.
    pub(super) fn used(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

impl Semaphore {
    pub(crate) fn new(depth: usize) -> Semaphore {
        Semaphore {
            permits: Arc::new(tokio::sync::Semaphore::new(depth)),
            depth,
            #[cfg(feature = "tokio")]
            streams: Arc::default(),
        }
    }

    /// Takes `count` permits, or none.
    pub(crate) fn try_acquire(&self, count: usize) -> bool {
        let permits = u32::try_from(count).ok();
        let permits = permits.and_then(|count| self.permits.try_acquire_many(count).ok());
        permits.map(|permits| permits.forget()).is_some()
    }

    /// Takes a permit and returns true, or enters `waiter` into the queue. `waker` is woken when
    /// `waiter` has a permit.
    pub(crate) fn poll_acquire(&self, waker: &Waker, waiter: &mut Option<Waiter>) -> bool {
        if waiter.is_none() && self.try_acquire(1) {
            return true;
        }
        let ours = Forward::waker(waker);
        let queued = waiter.get_or_insert_with(|| Waiter {
            acquire: None,
            process: Owner::current(),
            #[cfg(feature = "tokio")]
            streams: self.streams.clone(),
        });
        let acquire = queued
            .acquire
            .get_or_insert_with(|| Box::pin(self.permits.clone().acquire_owned()));
        match acquire.as_mut().poll(&mut Context::from_waker(&ours)) {
            Poll::Ready(permit) => {
                // The semaphore is never closed.
                let taken = permit.map(OwnedSemaphorePermit::forget).is_ok();
                queued.acquire = None;
                *waiter = None;
                taken
            }
            Poll::Pending => false,
        }
    }

    /// Takes a permit and returns true, or has `waker` woken when a permit becomes free that no
    /// future in the queue has taken.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_acquire_or_watch(&self, waker: &Waker, watch: &mut Option<Watch>) -> bool {
        while !self.try_acquire(1) {
            let ours = Forward::waker(waker);
            let watch = watch.get_or_insert_with(|| {
                self.streams.watching.fetch_add(1, SeqCst);
                Watch {
                    notified: None,
                    streams: self.streams.clone(),
                    process: Owner::current(),
                }
            });
            let notified = watch
                .notified
                .get_or_insert_with(|| Box::pin(self.streams.freed.clone().notified_owned()));
            match notified.as_mut().poll(&mut Context::from_waker(&ours)) {
                Poll::Ready(()) => watch.notified = None,
                // A permit may have become free before the waker was registered.
                Poll::Pending if self.try_acquire(1) => break,
                Poll::Pending => return false,
            }
        }
        *watch = None;
        true
    }

    /// A guard of a permit that the caller has taken.
    pub(super) fn guard(&self) -> Permit<'_> {
        Permit(self)
    }

    /// Gives `count` permits back.
    pub(crate) fn release(&self, count: usize) {
        self.permits.add_permits(count);
        #[cfg(feature = "tokio")]
        self.streams.notify();
    }

    /// The number of permits taken.
    pub(crate) fn in_use(&self) -> usize {
        self.depth.saturating_sub(self.permits.available_permits())
    }

    /// The number of permits.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

/// A waker that wakes the program's waker. No wake may be lost: the poll that registers it holds
/// another reference, and may still run.
///
/// Panics of the program's waker end here. The poll that drops a `Forward` may have taken a permit,
/// and must return to its caller.
struct Forward(
    Option<Waker>,
    #[allow(dead_code, reason = "dropped to end it")] Hold,
);

impl Forward {
    fn waker(waker: &Waker) -> Waker {
        Waker::from(Arc::new(Forward(Some(waker.clone()), Hold::current())))
    }
}

impl Wake for Forward {
    fn wake(self: Arc<Self>) {
        match Arc::try_unwrap(self) {
            Ok(mut last) => {
                let waker = last.0.take();
                user_code::call(|| waker.map(Waker::wake));
            }
            // The poll that registered it has not returned yet.
            Err(shared) => shared.wake_by_ref(),
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        user_code::call(|| self.0.as_ref().map(Waker::wake_by_ref));
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        user_code::discard(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    struct CountsWakes(AtomicUsize);

    impl Wake for CountsWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_wake_during_the_poll_that_registers_it_is_not_lost() {
        let counts = Arc::new(CountsWakes(AtomicUsize::new(0)));
        let ours = Forward::waker(&counts.clone().into());
        let registered = ours.clone();
        registered.wake();
        assert_eq!(counts.0.load(SeqCst), 1);
        ours.wake();
        assert_eq!(counts.0.load(SeqCst), 2);
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_permit_that_a_dropped_future_gives_back_wakes_a_stream() {
        let permits = Semaphore::new(1);
        assert!(permits.try_acquire(1));
        let (mut waiter, mut watch) = (None, None);
        assert!(!permits.poll_acquire(Waker::noop(), &mut waiter));
        // The future in the queue is assigned the permit.
        permits.release(1);
        let counts = Arc::new(CountsWakes(AtomicUsize::new(0)));
        assert!(!permits.poll_acquire_or_watch(&counts.clone().into(), &mut watch));
        assert_eq!(counts.0.load(SeqCst), 0);
        drop(waiter);
        assert_eq!(counts.0.load(SeqCst), 1);
        assert!(permits.poll_acquire_or_watch(Waker::noop(), &mut watch));
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    const SCHEDULES: usize = 10_000;

    async fn take(permits: &Semaphore, waiter: &mut Option<Waiter>) {
        let take = |cx: &mut Context<'_>| match permits.poll_acquire(cx.waker(), waiter) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        poll_fn(take).await;
    }

    /// Three futures wait for one permit. One of them is dropped, before or after it is assigned
    /// the permit.
    fn all_get_their_turn() {
        let permits = Arc::new(Semaphore::new(1));
        assert!(permits.try_acquire(1));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let permits = permits.clone();
                shuttle::thread::spawn(move || {
                    shuttle::future::block_on(take(&permits, &mut None));
                    crate::sys::sync::yield_now();
                    permits.release(1);
                })
            })
            .collect();
        let mut waiter = None;
        let waker = Waker::noop();
        let taken = permits.poll_acquire(waker, &mut waiter);
        permits.release(1);
        crate::sys::sync::yield_now();
        drop(waiter);
        assert!(!taken, "the permit was taken all the time");
        waiting.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(permits.in_use(), 0);
    }

    /// A stream and a future wait for one permit. The future is dropped, before or after it is
    /// assigned the permit.
    #[cfg(feature = "tokio")]
    fn the_stream_gets_its_turn() {
        let permits = Arc::new(Semaphore::new(1));
        assert!(permits.try_acquire(1));
        let mut waiter = None;
        let taken = permits.poll_acquire(Waker::noop(), &mut waiter);
        assert!(!taken, "the permit was taken all the time");
        let of_stream = permits.clone();
        let stream = shuttle::thread::spawn(move || {
            let mut watch = None;
            let take = |cx: &mut Context<'_>| {
                crate::sys::sync::yield_now();
                match of_stream.poll_acquire_or_watch(cx.waker(), &mut watch) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            };
            shuttle::future::block_on(poll_fn(take));
            of_stream.release(1);
        });
        crate::sys::sync::yield_now();
        permits.release(1);
        crate::sys::sync::yield_now();
        drop(waiter);
        stream.join().unwrap();
        assert_eq!(permits.in_use(), 0);
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_dropped_turn_is_a_streams() {
        shuttle::check_random(the_stream_gets_its_turn, SCHEDULES);
    }

    #[test]
    fn a_dropped_turn_is_the_next_ones() {
        shuttle::check_random(all_get_their_turn, SCHEDULES);
    }
}
