//! The work of a pool, and the shares of files and devices.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::stop::Stop;
use crate::engine::completion::Ticket;
use crate::engine::completion_target::DroppedCompletion;
use crate::engine::request::Request;

/// Work that workers take turns at.
pub(crate) trait Task: Send + Sync {
    /// The descriptor that the task works on, and the device of that descriptor. The task counts
    /// against the shares of both.
    fn subject(&self) -> (i32, u64);

    /// Does a bounded part of the task. Returns true if the task needs another turn of this worker.
    fn run_once(&self) -> bool;
}

/// A piece of work for a worker.
pub(super) enum Work {
    Request(Request),
    Task(Arc<dyn Task>),
    /// A completion to be dropped.
    Discard(DroppedCompletion),
}

/// The state of a pool.
#[derive(Default)]
pub(super) struct State {
    pub(super) ready: VecDeque<Work>,
    pub(super) parked: HashMap<LimitKey, VecDeque<Work>>,
    /// The number of operations of each share that are being carried out. There are few shares at a
    /// time.
    pub(super) running: Vec<(LimitKey, usize)>,
    /// Reads that are being carried out and can be stopped.
    pub(super) stoppable: Vec<(Ticket, Arc<Stop>)>,
    pub(super) threads: usize,
    /// The threads that wait for work, or that will look for work when they begin.
    pub(super) idle: usize,
    pub(super) closing: bool,
    pub(super) yielding: bool,
}

impl State {
    pub(super) fn running(&self, key: LimitKey) -> usize {
        self.running
            .iter()
            .find(|(s, _)| *s == key)
            .map_or(0, |(_, n)| *n)
    }

    pub(super) fn begin(&mut self, key: LimitKey) {
        match self.running.iter_mut().find(|(s, _)| *s == key) {
            Some((_, n)) => *n += 1,
            None => self.running.push((key, 1)),
        }
    }

    pub(super) fn end(&mut self, key: LimitKey) {
        if let Some(at) = self.running.iter().position(|(s, _)| *s == key) {
            self.running[at].1 -= 1;
            if self.running[at].1 == 0 {
                self.running.swap_remove(at);
            }
        }
    }

    /// Moves the first work that is parked for a share back to the queue.
    pub(super) fn unpark(&mut self, key: LimitKey) {
        if let Some(queue) = self.parked.get_mut(&key) {
            let next = queue.pop_front();
            if queue.is_empty() {
                self.parked.remove(&key);
            }
            self.ready.extend(next);
        }
    }
}

/// A file or device that may use only a part of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LimitKey {
    /// One open file, by its descriptor. If another file gets the same descriptor while a worker
    /// still finishes work of this one, both use one share for that moment.
    File(i32),
    /// The device of a filesystem.
    Device(u64),
}

/// The shares that a piece of work counts against.
pub(super) type LimitKeys = [Option<LimitKey>; 2];
