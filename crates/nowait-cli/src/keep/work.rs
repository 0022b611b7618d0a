//! The files that are to be read or locked, in their order, and the pace of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nowait::residency::page_size;
use nowait_page_cache::Stop;

use super::batch::Batch;
use super::files::Files;
use super::target::Target;

/// The most bytes of a batch: of the first one, and the least and the most of later ones.
const FIRST_BATCH: u64 = 4 << 20;
const MIN_BATCH: u64 = 1 << 20;
const MAX_BATCH: u64 = 64 << 20;

/// A batch that takes longer than this is followed by a smaller one, and one that is shorter than a
/// quarter of it by a larger one.
const BATCH_TIME: Duration = Duration::from_millis(400);

/// The rate in bytes per second at which a sweep reads, unless another one is given.
const SWEEP_RATE: u64 = 100 << 20;

/// The work that is left.
pub struct Work {
    /// Files that have changed, and other files.
    urgent: VecDeque<Target>,
    todo: VecDeque<Target>,
    /// The files of `todo` are read at the rate of a sweep.
    pub by_sweep: bool,
    /// The given rate in bytes per second.
    rate: Option<u64>,
    /// The most bytes of the next batch.
    size: u64,
    /// The time before which nothing is read.
    pub paced: Instant,
    /// The time of the last read.
    pub last_read: Option<Instant>,
}

impl Work {
    /// Nothing to do.
    pub fn new(rate: Option<u64>) -> Work {
        Work {
            urgent: VecDeque::new(),
            todo: VecDeque::new(),
            by_sweep: false,
            rate,
            size: FIRST_BATCH,
            paced: Instant::now(),
            last_read: None,
        }
    }

    /// Returns true if nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.todo.is_empty()
    }

    /// Adds files that have changed. They come first, without a limit of the rate.
    pub fn urgent(&mut self, targets: Vec<Target>) {
        self.urgent.extend(targets);
    }

    /// Replaces the other files.
    pub fn replace(&mut self, targets: Vec<Target>) {
        self.todo = targets.into();
    }

    /// Adds a file that a sweep has found.
    pub fn found(&mut self, target: Target) {
        self.todo.push_back(target);
        self.by_sweep = true;
    }

    /// Forgets all files, because the paths are other ones.
    pub fn clear(&mut self) {
        self.urgent.clear();
        self.todo.clear();
    }

    /// Reads and locks a batch of files. Returns true if the residency of some is unknown.
    pub fn step(&mut self, files: &mut Files, stop: &Stop) -> bool {
        let is_urgent = !self.urgent.is_empty();
        let limited = self.by_sweep && !is_urgent;
        let rate = self.rate.or(limited.then_some(SWEEP_RATE));
        let page = page_size();
        let most = rate.map_or(self.size, |rate| self.size.min(rate / 4 / page * page));
        let queue = match is_urgent {
            true => &mut self.urgent,
            false => &mut self.todo,
        };
        let mut batch = Batch::take(queue, files, most.max(page));
        if batch.is_empty() {
            return false;
        }
        let began = Instant::now();
        let (bytes, has_unknown) = (batch.bytes, batch.has_unknown);
        let read = batch.read(files, stop);
        let rest = match stop.asked() {
            true => batch.interrupted(files),
            false => Vec::from_iter(batch.finish(files)),
        };
        for target in rest.into_iter().rev() {
            queue.push_front(target);
        }
        let took = began.elapsed();
        if took > BATCH_TIME {
            self.size = (self.size / 2).max(MIN_BATCH);
        } else if took < BATCH_TIME / 4 && bytes >= self.size {
            self.size = (self.size * 2).min(MAX_BATCH);
        }
        if read > 0 {
            self.last_read = Some(Instant::now());
        }
        if let Some(rate) = rate {
            let pace = Duration::from_secs_f64(read as f64 / rate as f64);
            self.paced = self.paced.max(began + pace);
        }
        has_unknown
    }
}
