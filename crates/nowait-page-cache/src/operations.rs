//! Operations of one engine, each with its purpose, and calls that workers make.
//!
//! ```text
//!  push(op, purpose) ─► submit ─► reap ─► (purpose, completion)
//! ```

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use nowait::Completion;
use nowait::engine::{LocalEngine, Wait};
use nowait::op::{Call, Op};
use rustix::process::{Resource, getrlimit};

/// Operations of an engine. At most as many are in flight as the engine is deep.
pub struct Operations<T> {
    engine: LocalEngine,
    /// The purpose of each operation in flight, by its user data.
    purposes: Vec<Option<T>>,
    free: Vec<usize>,
    /// Operations that are not yet submitted.
    ops: Vec<Op>,
}

impl<T> Operations<T> {
    /// None in flight.
    pub fn new(engine: LocalEngine) -> Operations<T> {
        let depth = engine.depth();
        Operations {
            engine,
            purposes: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ops: Vec::with_capacity(depth),
        }
    }

    /// Returns true if another one may be pushed.
    pub fn have_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The number of submitted operations that are not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    /// Adds an operation to the next submission. There must be room.
    pub fn push(&mut self, op: Op, purpose: T) {
        if let Some(slot) = self.free.pop() {
            self.purposes[slot] = Some(purpose);
            self.ops.push(op.user_data(slot as u64));
        }
    }

    /// Submits all that were pushed.
    pub fn submit(&mut self) {
        self.engine.submit_batch(&mut self.ops);
    }

    /// Waits at most this long for a completion. Sleeps if no operation is in flight. Returns the
    /// completions that there are.
    pub fn reap(&mut self, wait: Duration) -> Vec<(T, Completion)> {
        if self.in_flight() == 0 {
            std::thread::sleep(wait);
            return Vec::new();
        }
        self.reap_by(match wait.is_zero() {
            true => Wait::No,
            false => Wait::UpTo(wait),
        })
    }

    /// Waits for at least one completion. At least one operation must be in flight.
    pub fn reap_one(&mut self) -> Vec<(T, Completion)> {
        self.reap_by(Wait::For(1))
    }

    fn reap_by(&mut self, wait: Wait) -> Vec<(T, Completion)> {
        let mut done = Vec::new();
        // Fails only in a forked child, which has no operations in flight.
        let _ = self.engine.reap(&mut done, wait);
        let done = done.into_iter().filter_map(|completion| {
            let slot = completion.op.get_user_data() as usize;
            let purpose = self.purposes.get_mut(slot)?.take()?;
            self.free.push(slot);
            Some((purpose, completion))
        });
        done.collect()
    }
}

/// The result of a call that a worker makes.
pub struct Answer<R>(Receiver<R>);

/// The operation that makes a call in a worker, and the place of its result.
pub fn call<R: Send + 'static>(make: impl FnOnce() -> R + Send + 'static) -> (Op, Answer<R>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let call = Call::new(move || {
        drop(sender.send(make()));
        Ok(0)
    });
    (call.into(), Answer(receiver))
}

impl<R> Answer<R> {
    /// The result of a completed call. If no worker could be started, no call was made, and this thread
    /// makes it `here`.
    pub fn take(self, here: impl FnOnce() -> R) -> R {
        self.0.try_recv().unwrap_or_else(|_| here())
    }
}

/// The number of files that may be open.
#[derive(Debug)]
pub struct OpenLimit {
    now: usize,
    most: usize,
}

impl OpenLimit {
    /// At most `most` files, and a quarter of the descriptors that the process may have: a file takes two
    /// descriptors while it is opened, and the walk takes some, too.
    pub fn new(most: usize) -> OpenLimit {
        let most = (descriptors() / 4).clamp(1, most as u64) as usize;
        OpenLimit { now: most, most }
    }

    /// The number of files that may be open.
    pub fn get(&self) -> usize {
        self.now
    }

    /// The process or the system has no descriptors for more than these files.
    pub fn shortage(&mut self, open: usize) {
        self.now = self.now.min(open).max(1);
    }

    /// A file was closed.
    pub fn closed(&mut self) {
        self.now = (self.now + 1).min(self.most);
    }
}

/// The number of descriptors that the process may have.
pub fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait::engine::Options;

    #[test]
    fn each_completion_comes_with_its_purpose() {
        let engine = Options::new().depth(4).workers(2).build_local().unwrap();
        let mut operations = Operations::new(engine);
        let mut found = Vec::new();
        for round in 0..3u64 {
            let mut number = round * 4;
            while operations.have_room() {
                let (op, answer) = call(move || number * 10);
                operations.push(op, (number, answer));
                number += 1;
            }
            operations.submit();
            while operations.in_flight() > 0 {
                for ((number, answer), _) in operations.reap_one() {
                    assert_eq!(answer.take(|| panic!("a worker has made it")), number * 10);
                    found.push(number);
                }
            }
        }
        found.sort_unstable();
        assert!(found.into_iter().eq(0..12));
    }

    #[test]
    fn the_number_of_open_files_is_lowered_and_raised() {
        let mut limit = OpenLimit::new(4);
        assert_eq!(limit.get(), 4);
        limit.shortage(2);
        limit.shortage(3);
        assert_eq!(limit.get(), 2);
        limit.shortage(0);
        assert_eq!(limit.get(), 1);
        (0..9).for_each(|_| limit.closed());
        assert_eq!(limit.get(), 4);
    }
}
