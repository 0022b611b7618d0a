//! The places of an engine: tokio's fair semaphore, with a poll form for our futures.
//!
//! tokio clones wakers under a lock of its own. What it is given is therefore a waker of ours that
//! holds the program's: to clone it counts a reference and runs no code of the program.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::{AcquireError, OwnedSemaphorePermit};

use crate::foreign;
use crate::sys::process::Owner;

/// Bounds the operations in flight. Futures that find no place wait for one, in order.
#[derive(Debug)]
pub(crate) struct Semaphore {
    places: Arc<tokio::sync::Semaphore>,
    depth: usize,
    /// Tells streams that a place came free.
    #[cfg(feature = "tokio")]
    freed: Arc<tokio::sync::Notify>,
    /// How many streams want to be told.
    #[cfg(feature = "tokio")]
    watching: Arc<AtomicUsize>,
}

type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;

/// A future's waiter in the queue for a place. Dropping it gives up the waiter, and the place as well
/// if it has come meanwhile.
pub(crate) struct Waiter {
    acquire: Option<Pin<Box<Acquire>>>,
    process: Owner,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // To give up the waiter locks the queue. In a forked child a thread that is not there may have
        // held that lock, and the memory stays.
        if !self.process.is_here() {
            std::mem::forget(self.acquire.take());
        }
    }
}

/// A stream's wish to be woken when a place comes free. It holds no place and no waiter: a stream whose
/// future was dropped is not polled again, and would keep a place that it was given.
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
            // As for `Waiter`.
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
            places: Arc::new(tokio::sync::Semaphore::new(depth)),
            depth,
            #[cfg(feature = "tokio")]
            freed: Arc::default(),
            #[cfg(feature = "tokio")]
            watching: Arc::default(),
        }
    }

    /// Takes so many places, or none.
    pub(crate) fn try_take(&self, count: usize) -> bool {
        let permits = u32::try_from(count).ok();
        let permits = permits.and_then(|count| self.places.try_acquire_many(count).ok());
        permits.map(|permits| permits.forget()).is_some()
    }

    /// Takes a place, or queues up for one: then `waker` is woken when there is one for `waiter`.
    pub(crate) fn poll_take(&self, waker: &Waker, waiter: &mut Option<Waiter>) -> bool {
        if waiter.is_none() && self.try_take(1) {
            return true;
        }
        let ours = Waker::from(Arc::new(Forward(waker.clone())));
        let queued = waiter.get_or_insert_with(|| Waiter {
            acquire: None,
            process: Owner::current(),
        });
        let acquire = queued
            .acquire
            .get_or_insert_with(|| Box::pin(self.places.clone().acquire_owned()));
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

    /// Takes a place, or has `waker` woken when one comes free that no future in the queue has got.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_take_or_watch(&self, waker: &Waker, watch: &mut Option<Watch>) -> bool {
        while !self.try_take(1) {
            let ours = Waker::from(Arc::new(Forward(waker.clone())));
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
                // A place may have come free before the waker was there.
                Poll::Pending if self.try_take(1) => break,
                Poll::Pending => return false,
            }
        }
        *watch = None;
        true
    }

    /// Gives places back.
    pub(crate) fn give_back(&self, count: usize) {
        self.places.add_permits(count);
        #[cfg(feature = "tokio")]
        if self.watching.load(SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// How many places are taken.
    pub(crate) fn taken(&self) -> usize {
        self.depth.saturating_sub(self.places.available_permits())
    }

    /// How many places there are.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

/// A waker that wakes the program's. Each wake must reach it: the poll that registers it holds a
/// reference as well, and may still run.
struct Forward(Waker);

impl Wake for Forward {
    fn wake(self: Arc<Self>) {
        match Arc::try_unwrap(self) {
            Ok(Forward(waker)) => drop(foreign::call(|| waker.wake())),
            // The poll that registered it has not returned yet.
            Err(shared) => {
                shared.wake_by_ref();
                foreign::discard(shared);
            }
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        foreign::call(|| self.0.wake_by_ref());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_wake_during_the_poll_that_registers_it_is_not_lost() {
        let counts = Arc::new(Counts(AtomicUsize::new(0)));
        let ours = Waker::from(Arc::new(Forward(counts.clone().into())));
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

    async fn take(places: &Semaphore, waiter: &mut Option<Waiter>) {
        let take = |cx: &mut Context<'_>| match places.poll_take(cx.waker(), waiter) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        poll_fn(take).await;
    }

    /// Three futures wait for one place, and one of them is dropped, before its waiter or at it.
    fn all_get_their_turn() {
        let places = Arc::new(Semaphore::new(1));
        assert!(places.try_take(1));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let places = places.clone();
                shuttle::thread::spawn(move || {
                    shuttle::future::block_on(take(&places, &mut None));
                    crate::sync::yield_now();
                    places.give_back(1);
                })
            })
            .collect();
        let mut waiter = None;
        let waker = Waker::noop();
        let taken = places.poll_take(waker, &mut waiter);
        places.give_back(1);
        crate::sync::yield_now();
        drop(waiter);
        assert!(!taken, "its place was taken all the time");
        waiting.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn a_dropped_turn_is_the_next_ones() {
        shuttle::check_random(all_get_their_turn, SCHEDULES);
    }
}
