//! The deadlines of operations in flight, and of futures that wait for a permit.
//!
//! A local engine checks them each time it reaps. A shared engine has a timer thread that sleeps
//! until the next deadline. It is started with the first deadline. A deadline is removed when its
//! operation is done or its future is dropped, so there are never more deadlines than operations
//! and futures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::completion::Ticket;
use crate::sys::process::Owner;
use crate::sys::sync::{Condvar, Mutex, lock, spawn, wait, wait_timeout};
use crate::user_code::waker::WakerSlot;

/// The deadlines of one engine.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: BTreeMap<(Instant, Ticket), Due>,
    watched: bool,
    closing: bool,
}

/// The event at a deadline.
#[derive(Debug)]
enum Due {
    /// None: the operation is being handed over, and cannot be cancelled yet.
    Nothing,
    /// The ring or a worker has the operation, which is cancelled.
    Cancel,
    /// A future waits for a permit, and is woken.
    Wake(Arc<WakerSlot>),
}

impl State {
    /// The next deadline that has an event.
    fn next(&self) -> Option<(Instant, Ticket)> {
        self.due
            .iter()
            .find(|(_, due)| !matches!(due, Due::Nothing))
            .map(|(key, _)| *key)
    }
}

impl Deadlines {
    /// Adds the deadline of an operation that is about to be handed over.
    pub(crate) fn add(&self, at: Instant, ticket: Ticket) {
        lock(&self.state).due.insert((at, ticket), Due::Nothing);
    }

    /// Arms the deadline of an operation that was handed over, and may be done already.
    pub(crate) fn arm(&self, at: Instant, ticket: Ticket) {
        if let Some(due) = lock(&self.state).due.get_mut(&(at, ticket)) {
            *due = Due::Cancel;
        }
        self.news.notify_one();
    }

    /// Removes the deadline of an operation that is done.
    pub(crate) fn remove(&self, at: Instant, ticket: Ticket) {
        lock(&self.state).due.remove(&(at, ticket));
    }

    /// Adds the deadline of a future that waits for a permit. `waker` is woken at the deadline.
    pub(crate) fn wake_at(self: &Arc<Self>, at: Instant, ticket: Ticket, waker: &Waker) -> Expiry {
        let future = Arc::new(WakerSlot::new(waker));
        let due = Due::Wake(future.clone());
        lock(&self.state).due.insert((at, ticket), due);
        self.news.notify_one();
        Expiry {
            deadlines: self.clone(),
            at,
            ticket,
            future,
            process: Owner::current(),
        }
    }

    /// The time of the next deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        lock(&self.state).next().map(|(at, _)| at)
    }

    /// Removes one deadline that has passed, and returns its ticket.
    pub(crate) fn expired(&self) -> Option<Ticket> {
        let mut state = lock(&self.state);
        let (at, ticket) = state.next()?;
        (at <= Instant::now()).then(|| {
            state.due.remove(&(at, ticket));
            ticket
        })
    }

    /// Has a thread call `expire` for each operation whose deadline has passed. If no thread can be
    /// started, deadlines have no effect and the operations continue.
    pub(crate) fn watch(self: &Arc<Self>, expire: impl Fn(Ticket) + Send + 'static) {
        let mut state = lock(&self.state);
        if !state.watched {
            let deadlines = self.clone();
            let body = move || deadlines.sleep_and_call(&expire);
            state.watched = spawn(c"nowait-timer", body).is_ok();
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        lock(&self.state).closing = true;
        self.news.notify_one();
    }

    fn sleep_and_call(&self, expire: &dyn Fn(Ticket)) {
        let mut state = lock(&self.state);
        while !state.closing {
            let now = Instant::now();
            match state.next() {
                Some((at, ticket)) if at <= now => {
                    let due = state.due.remove(&(at, ticket));
                    drop(state);
                    match due {
                        Some(Due::Wake(future)) => future.wake(),
                        _ => expire(ticket),
                    }
                    state = lock(&self.state);
                }
                Some((at, _)) => {
                    state = wait_timeout(&self.news, &self.state, state, at - now).0;
                }
                None if !state.due.is_empty() => {
                    state = wait(&self.news, state);
                }
                // There is no deadline left: the thread ends, and the next deadline starts another.
                None => break,
            }
        }
        state.watched = false;
    }
}

/// The deadline of a future that waits for a permit. Dropping it removes the deadline.
#[derive(Debug)]
pub(crate) struct Expiry {
    deadlines: Arc<Deadlines>,
    at: Instant,
    ticket: Ticket,
    future: Arc<WakerSlot>,
    process: Owner,
}

impl Expiry {
    /// Returns true if the deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Has this waker woken at the deadline, in place of the one before. The deadline may have
    /// passed meanwhile.
    pub(crate) fn register(&self, waker: &Waker) {
        self.future.register(waker);
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may have held the lock at the fork.
        if self.process.is_here() {
            self.deadlines.remove(self.at, self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_done_is_taken_out() {
        let deadlines = Deadlines::default();
        let past = Instant::now() - Duration::from_secs(1);
        deadlines.add(past, Ticket(1));
        deadlines.add(past, Ticket(2));
        assert_eq!(deadlines.expired(), None, "not handed over yet");
        deadlines.arm(past, Ticket(1));
        deadlines.arm(past, Ticket(2));
        deadlines.remove(past, Ticket(1));
        deadlines.arm(past, Ticket(1));
        assert_eq!(deadlines.expired(), Some(Ticket(2)));
        assert_eq!(deadlines.expired(), None);
        assert_eq!(deadlines.next(), None);
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::time::Duration;

    use super::*;

    const SCHEDULES: usize = 10_000;

    /// Two threads each add a deadline that has passed when it is armed. One of the operations may
    /// be done before. Each deadline fires once or is removed, and the thread ends.
    fn fired(removes: bool) {
        let deadlines = Arc::new(Deadlines::default());
        let past = Instant::now() - Duration::from_secs(1);
        let fired = Arc::new(AtomicU64::new(0));
        let submit = |ticket: u64| {
            let (deadlines, fired) = (deadlines.clone(), fired.clone());
            shuttle::thread::spawn(move || {
                deadlines.add(past, Ticket(ticket));
                deadlines.watch(move |ticket| {
                    fired.fetch_add(ticket.0, SeqCst);
                });
                deadlines.arm(past, Ticket(ticket));
                if removes && ticket == 1 {
                    deadlines.remove(past, Ticket(ticket));
                }
            })
        };
        let threads = [1, 10].map(submit);
        threads.into_iter().for_each(|t| t.join().unwrap());
        while lock(&deadlines.state).watched {
            crate::sys::sync::yield_now();
        }
        let sum = fired.load(SeqCst);
        assert!(sum == 11 || (removes && sum == 10), "{sum}");
        deadlines.close();
    }

    #[test]
    fn each_deadline_fires_once() {
        shuttle::check_random(|| fired(false), SCHEDULES);
        shuttle::check_pct(|| fired(false), SCHEDULES, 3);
    }

    #[test]
    fn what_is_done_before_does_not_keep_the_thread() {
        shuttle::check_random(|| fired(true), SCHEDULES);
    }

    #[test]
    fn a_thread_that_waits_for_a_far_deadline_ends_with_the_engine() {
        let run = || {
            let deadlines = Arc::new(Deadlines::default());
            let far = Instant::now() + Duration::from_secs(10_000);
            deadlines.add(far, Ticket(1));
            deadlines.watch(|_| ());
            deadlines.close();
        };
        shuttle::check_random(run, SCHEDULES);
    }
}
