//! The completion queue: completions to be reaped, and the threads that wait for them.

#[cfg(any(fuzzing, nowait_internals))]
pub(super) mod completions;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use once_cell::race::OnceBox;
use rustix::event::EventfdFlags;

use super::class::Class;
use super::completion::Completion;
use super::wait::Waiting;
use crate::error::Error;
use crate::sys::Errno;
use crate::sys::eventfd::{eventfd, notify};
use crate::sys::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_timeout};

/// Completions that are not yet reaped.
///
/// The number of operations that will still complete is under the same lock as the completions. A
/// reaper checks both before it sleeps, so it cannot miss the last completion.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    state: Mutex<State>,
    news: Condvar,
    /// An eventfd that is readable while there is something to reap. It is made when the program
    /// first asks for it.
    event: OnceBox<OwnedFd>,
    /// The eventfd of the ring that the reaping thread sleeps on.
    ring: OnceBox<Arc<OwnedFd>>,
}

#[derive(Debug, Default)]
struct State {
    /// The completions, each with the class of its permit.
    done: VecDeque<(Class, Completion)>,
    /// Operations that were submitted to be reaped and are not yet reaped.
    expected: usize,
    /// True if no thread will reap any more.
    closed: bool,
}

/// The number of completions taken, for each class.
pub(crate) type Taken = [usize; Class::ALL.len()];

impl CompletionQueue {
    /// Adds a completion. Returns it if no thread will reap it.
    #[must_use]
    pub(crate) fn push(&self, class: Class, completion: Completion) -> Option<Completion> {
        let wake_ring = || {
            if let Some(ring) = self.ring.get() {
                notify(ring);
            }
        };
        let event = {
            // The eventfd is looked up and written under the lock, and read under it in
            // `take_from`. It is readable exactly while there are completions.
            let mut state = lock(&self.state);
            let event = self.event.get();
            if state.closed {
                return Some(completion);
            }
            state.done.push_back((class, completion));
            if let Some(event) = event {
                // The write completes the ring's read of its eventfd. The kernel does not signal a
                // deferred completion that the write to an eventfd causes (Linux 6.18: only the
                // first), nor those that come after it. So `event` is written to afterwards: the
                // thread that reads it then has the ring deliver all of them.
                wake_ring();
                notify(event);
            }
            event
        };
        self.news.notify_one();
        if event.is_none() {
            wake_ring();
        }
        None
    }

    /// Closes the queue. `push` returns completions from now on, so that the memory of each
    /// operation is freed when it completes.
    pub(crate) fn close(&self) {
        let unreaped = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.done)
        };
        drop(unreaped);
    }

    /// Moves all completions to `out`, and returns how many.
    pub(crate) fn take(&self, out: &mut Vec<Completion>) -> usize {
        let mut state = lock(&self.state);
        self.take_from(&mut state, out, usize::MAX).iter().sum()
    }

    /// Moves at most `most` completions to `out`, the oldest first.
    fn take_from(&self, state: &mut State, out: &mut Vec<Completion>, most: usize) -> Taken {
        let n = most.min(state.done.len());
        if let (true, Some(event)) = (n == state.done.len(), self.event.get()) {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        let mut taken = Taken::default();
        out.extend(state.done.drain(..n).map(|(class, completion)| {
            taken[class as usize] += 1;
            completion
        }));
        taken
    }

    /// Returns true if there is a completion.
    pub(crate) fn has_news(&self) -> bool {
        !lock(&self.state).done.is_empty()
    }

    /// Waits until there is a completion, or until `until`. May return early.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let state = lock(&self.state);
        if state.done.is_empty() {
            drop(self.sleep(state, until));
        }
    }

    fn sleep<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        match until {
            None => wait(&self.news, state),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                wait_timeout(&self.news, &self.state, state, left).0
            }
        }
    }

    /// Registers `n` more operations to be reaped.
    pub(crate) fn expect(&self, n: usize) {
        lock(&self.state).expected += n;
    }

    /// Moves at most `most` completions to `out`, for as long as `waiting` requires, and returns
    /// how many in all. `taken` is called with the number after each step, before this function
    /// waits for more.
    ///
    /// The other completions stay in the queue, where another reaper finds them. No reaper sleeps
    /// while there are completions, except one that a push has just woken.
    pub(crate) fn reap(
        &self,
        out: &mut Vec<Completion>,
        most: usize,
        waiting: &Waiting,
        taken: impl Fn(Taken),
    ) -> usize {
        let mut got = 0;
        let mut state = lock(&self.state);
        loop {
            let classes = self.take_from(&mut state, out, most - got);
            let n: usize = classes.iter().sum();
            got += n;
            state.expected -= n;
            if n > 0 && state.expected == 0 {
                // Other threads may wait for completions that will not come.
                self.news.notify_all();
            }
            let rest = |coming| {
                let rest = waiting.rest(got, coming);
                rest.filter(|_| got < most)
            };
            let is_over = rest(state.expected).is_none();
            if n > 0 {
                drop(state);
                taken(classes);
                if is_over {
                    return got;
                }
                // More completions may have come meanwhile.
                state = lock(&self.state);
                if !state.done.is_empty() {
                    continue;
                }
            }
            // Nothing was taken since this count was read under the lock.
            match rest(state.expected) {
                Some((_, until)) => state = self.sleep(state, until),
                None => return got,
            }
        }
    }

    /// The eventfd that is readable while there is something to reap.
    pub(crate) fn event(&self) -> crate::Result<&OwnedFd> {
        if self.event.get().is_none() {
            let fd = eventfd(EventfdFlags::NONBLOCK).map_err(|e| Error::os("eventfd", e))?;
            let _ = self.event.set(Box::new(fd));
        }
        let event = self.event.get().ok_or(Error::os("eventfd", Errno::IO))?;
        if !lock(&self.state).done.is_empty() {
            notify(event);
        }
        Ok(event)
    }

    /// Makes each push also wake this ring, from now on.
    pub(crate) fn wake_ring(&self, ring: &Arc<OwnedFd>) {
        let _ = self.ring.set(Box::new(ring.clone()));
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use super::*;
    use crate::engine::Wait;
    use crate::error::ErrorKind;
    use crate::op::{Nop, Op};

    const SCHEDULES: usize = 20_000;

    fn completion() -> Completion {
        Completion::failed(Error::new("nop", ErrorKind::Cancelled), Op::from(Nop))
    }

    /// Reaps at most `most` completions.
    fn reap(queue: &CompletionQueue, most: usize, wait: Wait) -> usize {
        let mut out = Vec::new();
        let n = queue.reap(&mut out, most, &Waiting::begin(wait), |_| ());
        assert!(n == out.len() && n <= most);
        n
    }

    /// Runs `reapers`, each with its own wait, while one thread pushes completions.
    fn reaped(pushed: usize, reapers: &[Wait]) {
        reaped_at_most(usize::MAX, pushed, reapers);
    }

    fn reaped_at_most(most: usize, pushed: usize, reapers: &[Wait]) {
        let queue = Arc::new(CompletionQueue::default());
        queue.expect(pushed);
        let threads: Vec<_> = reapers
            .iter()
            .map(|wait| {
                let (queue, wait) = (queue.clone(), *wait);
                shuttle::thread::spawn(move || reap(&queue, most, wait))
            })
            .collect();
        for _ in 0..pushed {
            assert!(queue.push(Class::File, completion()).is_none());
        }
        let mut got: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        got += reap(&queue, usize::MAX, Wait::No);
        assert_eq!(got, pushed);
    }

    #[test]
    fn reapers_that_wait_for_one_all_come_back() {
        let both = [Wait::For(1), Wait::For(1), Wait::No];
        shuttle::check_random(move || reaped(1, &both), SCHEDULES);
        shuttle::check_pct(move || reaped(2, &both), SCHEDULES, 3);
    }

    #[test]
    fn a_reaper_that_takes_one_leaves_the_others_to_those_that_wait() {
        // The pipe of a program that reads nothing: one more operation is in flight than completes.
        let one = |reapers: &[Wait]| {
            let queue = Arc::new(CompletionQueue::default());
            queue.expect(reapers.len() + 1);
            let threads: Vec<_> = reapers
                .iter()
                .map(|wait| {
                    let (queue, wait) = (queue.clone(), *wait);
                    shuttle::thread::spawn(move || reap(&queue, 1, wait))
                })
                .collect();
            for _ in 0..reapers.len() {
                assert!(queue.push(Class::File, completion()).is_none());
            }
            let got: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
            assert_eq!(got + reap(&queue, usize::MAX, Wait::No), reapers.len());
        };
        let polls = [Wait::For(1), Wait::No];
        let waits = [Wait::For(1), Wait::For(1), Wait::For(1)];
        shuttle::check_random(move || one(&polls), SCHEDULES);
        shuttle::check_pct(move || one(&waits), SCHEDULES, 3);
        shuttle::check_random(move || reaped_at_most(2, 4, &waits), SCHEDULES);
    }

    #[test]
    fn reapers_that_wait_for_many_come_back_once_nothing_more_can_come() {
        let many = [Wait::For(3), Wait::For(2), Wait::For(1)];
        shuttle::check_random(move || reaped(4, &many), SCHEDULES);
        shuttle::check_pct(move || reaped(4, &many), SCHEDULES, 3);
    }

    #[test]
    fn reapers_with_a_time_limit_come_back() {
        let within = std::time::Duration::from_secs(1000);
        let batch = |count| Wait::Batch { count, within };
        let timed = [batch(1), batch(2), Wait::For(1)];
        shuttle::check_random(move || reaped(3, &timed), SCHEDULES);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::op::{Nop, Op};

    const PUSHERS: usize = 4;
    /// The rounds of the test, and the time for them: under emulation a round takes milliseconds.
    const ROUNDS: usize = 20_000;
    const TIME: Duration = Duration::from_secs(10);

    #[test]
    #[cfg_attr(miri, ignore = "eventfd")]
    fn a_completion_that_comes_while_the_eventfd_is_made_makes_it_readable() {
        let began = Instant::now();
        for _ in (0..ROUNDS).take_while(|_| began.elapsed() < TIME) {
            let queue = CompletionQueue::default();
            let here = AtomicUsize::new(0);
            let taken = std::thread::scope(|s| {
                for _ in 0..PUSHERS {
                    s.spawn(|| {
                        here.fetch_add(1, Ordering::Relaxed);
                        while here.load(Ordering::Relaxed) < PUSHERS {
                            std::thread::yield_now();
                        }
                        let error = Error::os("nop", Errno::IO);
                        let completion = Completion::failed(error, Op::from(Nop));
                        assert!(queue.push(Class::File, completion).is_none());
                    });
                }
                while here.load(Ordering::Relaxed) < PUSHERS {
                    std::thread::yield_now();
                }
                queue.event().unwrap();
                queue.take(&mut Vec::new())
            });
            let event = queue.event.get().unwrap();
            let readable = rustix::io::read(event, &mut [0u8; 8]).is_ok();
            assert_eq!(readable, taken < PUSHERS, "{taken} were taken");
        }
    }
}
