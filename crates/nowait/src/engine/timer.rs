//! Deadlines of a shared engine: one thread, started with the first of them, that sleeps until the
//! next is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use super::parcel::lock;
use crate::completion::Ticket;
use crate::sys::process::spawn_without_signals;

/// What is due when.
pub(crate) type Due = BinaryHeap<Reverse<(Instant, Ticket)>>;

#[derive(Debug, Default)]
pub(crate) struct Timer(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: Due,
    running: bool,
    closing: bool,
}

impl Timer {
    /// Has `expire` called with this ticket at `deadline`. Without a thread to be had the deadline
    /// does not fire; the operation itself goes on.
    pub(crate) fn set(
        &self,
        deadline: Instant,
        ticket: Ticket,
        expire: impl Fn(Ticket) + Send + 'static,
    ) {
        let mut state = lock(&self.0.state);
        state.due.push(Reverse((deadline, ticket)));
        if state.running {
            self.0.news.notify_one();
        } else {
            let inner = self.0.clone();
            state.running =
                spawn_without_signals("nowait-timer", move || inner.run(&expire)).is_ok();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        lock(&self.0.state).closing = true;
        self.0.news.notify_one();
    }
}

impl Inner {
    fn run(&self, expire: &dyn Fn(Ticket)) {
        let mut state = lock(&self.state);
        while !state.closing {
            let now = Instant::now();
            match state.due.peek() {
                Some(&Reverse((at, ticket))) if at <= now => {
                    state.due.pop();
                    drop(state);
                    expire(ticket);
                    state = lock(&self.state);
                }
                Some(&Reverse((at, _))) => {
                    let wait = self.news.wait_timeout(state, at - now);
                    state = wait.unwrap_or_else(|e| e.into_inner()).0;
                }
                // Nothing is due: the thread goes, and the next deadline starts another.
                None => break,
            }
        }
        state.running = false;
    }
}
