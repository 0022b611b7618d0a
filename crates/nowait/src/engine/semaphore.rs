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
    /// Notifies streams that a permit became free.
    #[cfg(feature = "tokio")]
    freed: Arc<tokio::sync::Notify>,
    /// The number of streams that wait for a free permit.
    #[cfg(feature = "tokio")]
    watching: Arc<AtomicUsize>,
}

type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;

/// A future's position in the queue for a permit. Dropping it leaves the queue, and gives back the
/// permit if one was assigned meanwhile.
pub(crate) struct Waiter {
    acquire: Option<Pin<Box<Acquire>>>,
    process: Owner,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Leaving the queue locks it. In a forked child, a thread of the parent may have held that
        // lock at the fork, so the memory is leaked.
        if !self.process.is_here() {
            std::mem::forget(self.acquire.take());
        }
    }
}

/// A stream's registration to be woken when a permit becomes free. It holds no permit and no
/// position in the queue: a stream whose future was dropped is not polled again, and would keep the
/// permit.
#[cfg(feature = "tokio")]
pub(crate) struct Watch {
    notified: Option<Pin<Box<tokio::sync::futures::OwnedNotified>>>,
    watching: Arc<AtomicUsize>,
    process: Owner,
}

#[cfg(feature = "tokio")]
impl Drop for Watch {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.watching.fetch_sub(1, SeqCst);
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
            freed: Arc::default(),
            #[cfg(feature = "tokio")]
            watching: Arc::default(),
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
        });
        let acquire = queued
            .acquire
            .get_or_insert_with(|| Box::pin(self.permits.clone().acquire_owned()));
        match acquire.as_mut().poll(&mut Context::from_waker(&ours)) {
            Poll::Ready(permit) => {
                // The semaphore is never closed.
                let taken = permit.map(OwnedSemaphorePermit::forget).is_ok();
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
                self.watching.fetch_add(1, SeqCst);
                Watch {
                    notified: None,
                    watching: self.watching.clone(),
                    process: Owner::current(),
                }
            });
            let notified = watch
                .notified
                .get_or_insert_with(|| Box::pin(self.freed.clone().notified_owned()));
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

    /// Gives `count` permits back.
    pub(crate) fn release(&self, count: usize) {
        self.permits.add_permits(count);
        #[cfg(feature = "tokio")]
        if self.watching.load(SeqCst) > 0 {
            self.freed.notify_waiters();
        }
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

    #[test]
    fn a_dropped_turn_is_the_next_ones() {
        shuttle::check_random(all_get_their_turn, SCHEDULES);
    }
}
