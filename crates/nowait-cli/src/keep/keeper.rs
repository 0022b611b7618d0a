//! The keeper: decides when files are looked at, planned, read and given up. It has a thread of its
//! own, because files may be on devices that do not answer.
//!
//! ```text
//!  changed names ─► follow ─┐
//!  every minute ─► sweep ───┼─► plan: files in order, within the limit ─► work: a batch of missing files
//!  pressure ─► memory ──────┘                                                 └─► read, look again, lock
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::events::{EventQueue, Events};
use super::files::Files;
use super::memory::{self, Floor, Memory};
use super::notify;
use super::plan::Plan;
use super::report::Reports;
use super::root::Root;
use super::settings::Settings;
use super::status::{PathStatus, Status};
use super::sweep::SweepPlace;
use super::watch::Watches;
use super::work::Work;
use crate::messages::say;

/// Changes are collected for this time, because they often come together; for longer if it takes long
/// to plan again.
const COLLECT: Duration = Duration::from_millis(100);
const MAX_COLLECT: Duration = Duration::from_millis(500);

/// A step of a sweep that took a second of processor time is followed by a pause of this many seconds
/// at least.
const IDLE_SHARE: u32 = 400;

/// The same for looks at all files after events were lost.
const OVERFLOW_PAUSE: u32 = 20;

/// The interval at which the available memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);

/// The window of the kernel's trigger.
const PRESSURE_WINDOW: Duration = Duration::from_secs(2);

/// The shortest time between two writes of the status. A write that took a second of processor time is
/// followed by a pause of `STATUS_PAUSE` seconds.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
const STATUS_PAUSE: u32 = 1000;

/// The files, and the times at which something is to be done.
pub struct Keeper {
    settings: Settings,
    queue: Arc<EventQueue>,
    files: Files,
    memory: Memory,
    plan: Plan,
    work: Work,
    started: Instant,
    sweep: SweepPlace,
    /// The beginning of the last complete sweep.
    swept: Instant,
    /// The time at which the next sweep begins, or goes on.
    next_sweep: Instant,
    /// Events were lost: all files are looked at, at this time.
    overflowed: Option<Instant>,
    /// The processor time of the last look at all files.
    look_cost: Duration,
    next_memory: Instant,
    /// The time at which a changed status is written.
    status_due: Option<Instant>,
    /// The time before which it is not written again.
    next_status: Instant,
}

impl Keeper {
    /// Reads the list of paths, and looks at all files once. `pressure_watched`: the kernel reports
    /// memory pressure. `floor` is set while files are locked.
    ///
    /// # Errors
    /// A message, if none of the paths can be kept.
    pub fn new(
        settings: Settings,
        watches: Watches,
        queue: Arc<EventQueue>,
        pressure_watched: bool,
        floor: Arc<Floor>,
    ) -> Result<Keeper, String> {
        let now = Instant::now();
        let reports = Reports::default();
        let paths = settings.paths(&reports)?;
        let mut keeper = Keeper {
            files: Files::new(watches, reports, settings.one_file_system),
            memory: Memory::new(settings.budget, pressure_watched, floor),
            plan: Plan::new(settings.lock),
            work: Work::new(settings.rate),
            started: now,
            sweep: SweepPlace::default(),
            swept: now,
            next_sweep: now,
            overflowed: None,
            look_cost: Duration::ZERO,
            next_memory: now,
            status_due: Some(now),
            next_status: now,
            settings,
            queue,
        };
        keeper.set_paths(paths);
        match keeper.look_at_all() {
            0 => Err("none of the paths can be kept".into()),
            _ => {
                keeper.write_status();
                notify::ready();
                say(format_args!("nowait: ready: {}", keeper.status().line()));
                Ok(keeper)
            }
        }
    }

    fn set_paths(&mut self, paths: Vec<PathBuf>) {
        self.work.clear();
        self.files.set_paths(paths);
    }

    /// Keeps the files until a stop is requested.
    pub fn run(mut self) {
        loop {
            let events = self.queue.take(self.wait());
            if events.stop {
                return;
            }
            self.handle(events);
            let now = Instant::now();
            if self.overflowed.is_some_and(|at| now >= at) {
                self.overflowed = None;
                self.look_at_all();
            }
            if now >= self.next_sweep && self.work.is_empty() {
                self.sweep();
            }
            if now >= self.next_memory {
                self.look_at_memory(now);
            }
            if self.files.resized {
                self.make_plan();
            }
            if now >= self.work.paced {
                self.work();
            }
            self.files.close();
            self.write_status();
        }
    }

    /// The time until something is to be done.
    fn wait(&self) -> Duration {
        if self.files.resized {
            return Duration::ZERO;
        }
        let times = [
            match self.work.is_empty() {
                true => Some(self.next_sweep),
                false => Some(self.work.paced),
            },
            Some(self.next_memory),
            self.overflowed,
            self.status_due,
        ];
        let next = times.into_iter().flatten().min();
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    fn handle(&mut self, mut events: Events) {
        if !events.changed.is_empty() || events.overflowed {
            // The rest of the changes comes soon.
            std::thread::sleep(COLLECT.max(self.plan.took * 10).min(MAX_COLLECT));
            events.add(self.queue.take(Duration::ZERO));
        }
        if events.stop {
            self.queue.post(|events| events.stop = true);
            return;
        }
        if events.pressure {
            self.handle_pressure();
        }
        if events.memory {
            self.next_memory = Instant::now();
        }
        for watch in events.ended {
            self.files.watches.forget(watch);
        }
        if events.reload {
            self.reload();
        } else if events.overflowed {
            let at = self.swept + self.look_cost * OVERFLOW_PAUSE;
            self.overflowed.get_or_insert(at);
        }
        if !events.changed.is_empty() {
            let found = self.files.follow(events.changed);
            self.work.urgent(found);
            self.changed_status();
        }
    }

    /// SIGHUP: reads the list of paths again, and looks at all files.
    fn reload(&mut self) {
        self.files.reports.forget();
        match self.settings.paths(&self.files.reports) {
            Ok(paths) => self.set_paths(paths),
            Err(why) => {
                let reports = &self.files.reports;
                reports.say(format_args!("{why}; the paths stay as they were"));
            }
        }
        self.look_at_all();
        self.work.by_sweep = false;
        notify::ready();
    }

    /// Looks at all paths and files at once. Returns the number of paths that can be kept.
    fn look_at_all(&mut self) -> usize {
        let began = Instant::now();
        let cost = process_time();
        let good = self.files.look_at_all();
        self.files.report_unwatched();
        self.files.report_unknown();
        self.make_plan();
        self.files.close();
        self.sweep = SweepPlace::default();
        self.swept = began;
        self.look_cost = process_time().saturating_sub(cost);
        self.next_sweep = began + self.settings.interval;
        good
    }

    /// A step of a sweep. The next step is so much later that sweeps take a small share of a processor.
    fn sweep(&mut self) {
        let began = Instant::now();
        let cost = process_time();
        let found = self.sweep.step(&mut self.files);
        self.files.examine(&found);
        if self.files.resized {
            self.make_plan();
        }
        for target in found {
            if let Some(entry) = self.files.entry(&target) {
                entry.tried = false;
                if entry.needs_work() {
                    self.work.found(target);
                }
            }
        }
        let mut next = began;
        if self.sweep.is_done(&self.files) {
            self.files.report_unwatched();
            self.files.report_unknown();
            self.make_plan();
            self.swept = self.sweep.began.unwrap_or(began);
            self.sweep = SweepPlace::default();
            next = self.swept + self.settings.interval;
        }
        let cost = process_time().saturating_sub(cost);
        self.next_sweep = next.max(Instant::now() + cost * IDLE_SHARE);
        self.changed_status();
    }

    /// Divides the memory among the files again.
    fn make_plan(&mut self) {
        let locked = self.plan.locked(&self.files);
        let limit = self.memory.limit(locked);
        let lockable = self.memory.lockable(locked);
        let targets = self.plan.make(&mut self.files, limit, lockable);
        self.memory.set_floor(lockable, self.plan.locks() > 0);
        self.work.replace(targets);
        self.changed_status();
    }

    /// The kernel reports memory pressure. Waiting for pages that were evicted counts as pressure, so
    /// reading causes some. If enough memory is available, the keeper first stops reading, and gives way
    /// if the pressure is reported again.
    fn handle_pressure(&mut self) {
        let now = Instant::now();
        let last_read = self.work.last_read;
        let may_be_own = last_read.is_some_and(|last| now < last + PRESSURE_WINDOW);
        if may_be_own && self.plan.locked(&self.files) == 0 && memory::is_available() {
            self.work.paced = now + 2 * PRESSURE_WINDOW;
        } else {
            self.give_way();
        }
    }

    /// Gives up the least important files.
    fn give_way(&mut self) {
        let kept = self.files.entries();
        let kept = kept.map(|entry| entry.resident.min(entry.planned)).sum();
        self.memory.give_way(kept);
        self.make_plan();
    }

    /// Looks at the available memory: the limit may have to be lower, or may be higher again.
    fn look_at_memory(&mut self, now: Instant) {
        self.next_memory = now + MEMORY_INTERVAL;
        if self.memory.is_swapping() {
            return self.give_way();
        }
        let locked = self.plan.locked(&self.files);
        let eased = self.memory.recover(locked);
        let limit = self.memory.limit(locked);
        let lockable = self.memory.lockable(locked);
        self.memory.set_floor(lockable, self.plan.locks() > 0);
        if eased || self.plan.is_outdated(limit, lockable) {
            self.make_plan();
            self.work.by_sweep = true;
        }
    }

    /// Reads, looks at and locks some files.
    fn work(&mut self) {
        if self.work.is_empty() {
            return;
        }
        let cost = process_time();
        let stop = self.queue.new_work();
        if self.work.step(&mut self.files, &stop) {
            // Files of unknown residency are read in each sweep.
            let cost = process_time().saturating_sub(cost);
            self.next_sweep = self.next_sweep.max(Instant::now()) + cost * IDLE_SHARE;
        }
        self.changed_status();
    }

    fn changed_status(&mut self) {
        self.status_due.get_or_insert(self.next_status);
    }

    /// Writes the status if it has changed and the last time is long enough ago.
    fn write_status(&mut self) {
        let now = Instant::now();
        if self.status_due.is_none_or(|due| now < due) {
            return;
        }
        self.status_due = None;
        let cost = process_time();
        let status = self.status();
        notify::status(&status);
        self.settings.write(&status, &self.files.reports);
        let cost = process_time().saturating_sub(cost);
        self.next_status = now + STATUS_INTERVAL.max(cost * STATUS_PAUSE);
    }

    fn status(&mut self) -> Status {
        let locked = self.plan.locked(&self.files);
        let (budget, limit) = (self.memory.budget(locked), self.memory.limit(locked));
        let paths = self.files.roots.iter().map(PathStatus::of).collect();
        let mut status = Status::new(self.settings.lock, self.settings.budget.to_string(), paths)
            .times(self.started, self.swept, self.next_sweep)
            .limits(budget, limit.min(budget), self.memory.reports());
        status.unwatched_directories = self.files.roots.iter().map(Root::unwatched).sum();
        status
    }
}

/// The processor time of this process.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
