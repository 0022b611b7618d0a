//! Deadlines: which operations are to be stopped when.
//!
//! A local engine looks here whenever it reaps. A shared one has a thread that sleeps until the
//! next deadline, started with the first of them. A deadline is taken out when its operation is
//! done, so there are never more of them than operations in flight.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use super::parcel::lock;
use crate::completion::Ticket;
use crate::sys::thread::spawn_without_signals;

/// The deadlines of one engine.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the operation has been handed over: before that there is nothing to stop.
    due: BTreeMap<(Instant, Ticket), bool>,
    watched: bool,
    closing: bool,
}

impl State {
    /// The next that is due, of those that have been handed over.
    fn next(&self) -> Option<(Instant, Ticket)> {
        self.due
            .iter()
            .find(|(_, armed)| **armed)
            .map(|(key, _)| *key)
    }
}

impl Deadlines {
    /// This operation, which is about to be handed over, is to be stopped then.
    pub(crate) fn add(&self, at: Instant, ticket: Ticket) {
        lock(&self.state).due.insert((at, ticket), false);
    }

    /// It has been handed over (and may be done already).
    pub(crate) fn arm(&self, at: Instant, ticket: Ticket) {
        if let Some(armed) = lock(&self.state).due.get_mut(&(at, ticket)) {
            *armed = true;
        }
        self.news.notify_one();
    }

    /// This operation is done.
    pub(crate) fn remove(&self, at: Instant, ticket: Ticket) {
        lock(&self.state).due.remove(&(at, ticket));
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        lock(&self.state).next().map(|(at, _)| at)
    }

    /// Takes out one that is past.
    pub(crate) fn expired(&self) -> Option<Ticket> {
        let mut state = lock(&self.state);
        let (at, ticket) = state.next()?;
        (at <= Instant::now()).then(|| {
            state.due.remove(&(at, ticket));
            ticket
        })
    }

    /// Has a thread call `expire` with each operation whose time has come. Without a thread to be
    /// had deadlines don't fire; the operations themselves go on.
    pub(crate) fn watch(self: &Arc<Self>, expire: impl Fn(Ticket) + Send + 'static) {
        let mut state = lock(&self.state);
        if !state.watched {
            let deadlines = self.clone();
            let body = move || deadlines.sleep_and_call(&expire);
            state.watched = spawn_without_signals(c"nowait-timer", body).is_ok();
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
                    state.due.remove(&(at, ticket));
                    drop(state);
                    expire(ticket);
                    state = lock(&self.state);
                }
                Some((at, _)) => {
                    let wait = self.news.wait_timeout(state, at - now);
                    state = wait.unwrap_or_else(|e| e.into_inner()).0;
                }
                None if !state.due.is_empty() => {
                    state = self.news.wait(state).unwrap_or_else(|e| e.into_inner());
                }
                // Nothing is due: the thread goes, and the next deadline starts another.
                None => break,
            }
        }
        state.watched = false;
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
