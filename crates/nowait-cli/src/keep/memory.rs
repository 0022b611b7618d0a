//! The memory that may be filled: the budget, and less while memory is short.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nowait_page_cache::{Allowed, Budget, proc};

use super::pressure::Pressure;

/// The sources of the limit.
pub struct Memory {
    budget: Budget,
    pressure: Pressure,
    /// The kernel reports memory pressure.
    watched: bool,
    /// The number of pages that were swapped out since the start of the system.
    swapped: Option<u64>,
    floor: Arc<Floor>,
}

/// The available bytes below which memory is to be looked at while files are locked; 0 while none is.
#[derive(Debug, Default)]
pub struct Floor(AtomicU64);

/// The share of the memory that may be locked, in eighths: of what is available and what is locked. The
/// kernel cannot evict locked pages, and without other pages to evict it kills a process.
const LOCKABLE_EIGHTHS: u64 = 6;

/// The shortest time between two looks of a [`Lookout`]. A look that took a second of time is followed by a
/// pause of `LOOKOUT_PAUSE` seconds.
const LOOKOUT_INTERVAL: Duration = Duration::from_millis(100);
const LOOKOUT_PAUSE: u32 = 400;

/// Looks at the available memory while files are locked, in a thread that waits for no device.
pub struct Lookout {
    budget: Budget,
    floor: Arc<Floor>,
    pub next: Instant,
}

impl Lookout {
    /// Looks for the keeper that has this floor.
    pub fn new(floor: Arc<Floor>) -> Lookout {
        Lookout {
            budget: Budget::new(Allowed::Percent(100)),
            floor,
            next: Instant::now(),
        }
    }

    /// Looks at the memory if it is time. Returns true if less is available than the floor.
    pub fn is_short(&mut self) -> bool {
        let began = Instant::now();
        if began < self.next {
            return false;
        }
        let floor = self.floor.0.load(Ordering::Relaxed);
        let is_short = floor > 0 && self.budget.unused() < floor;
        self.next = began + LOOKOUT_INTERVAL.max(began.elapsed() * LOOKOUT_PAUSE);
        is_short
    }
}

impl Memory {
    /// The budget that the user gave. `watched`: the kernel reports memory pressure.
    pub fn new(allowed: Allowed, watched: bool, floor: Arc<Floor>) -> Memory {
        Memory {
            budget: Budget::new(allowed),
            pressure: Pressure::new(),
            watched,
            swapped: None,
            floor,
        }
    }

    /// The bytes that may be locked now, of which `locked` are.
    pub fn lockable(&self, locked: u64) -> u64 {
        self.budget.unused().saturating_add(locked) / 8 * LOCKABLE_EIGHTHS
    }

    /// Sets the floor: half of what is left to other programs. `locks`: something is locked.
    pub fn set_floor(&self, lockable: u64, locks: bool) {
        let left = lockable / LOCKABLE_EIGHTHS * (8 - LOCKABLE_EIGHTHS);
        let floor = if locks { left / 2 } else { 0 };
        self.floor.0.store(floor, Ordering::Relaxed);
    }

    /// The budget in bytes, as the available memory allows now.
    pub fn budget(&mut self, locked: u64) -> u64 {
        self.budget.lasting(locked)
    }

    /// The bytes that may be kept now.
    pub fn limit(&mut self, locked: u64) -> u64 {
        let budget = self.budget(locked);
        self.pressure.limit().unwrap_or(u64::MAX).min(budget)
    }

    /// Memory is short while this number of bytes is kept: lowers the limit.
    pub fn give_way(&mut self, kept: u64) {
        self.pressure.report(kept, Instant::now());
    }

    /// Raises the limit by a step if memory was not short for long enough. Returns true if it did.
    pub fn recover(&mut self, locked: u64) -> bool {
        let budget = self.budget(locked);
        self.pressure.recover(budget, Instant::now())
    }

    /// Returns true if pages were swapped out since the last call.
    pub fn is_swapping(&mut self) -> bool {
        let swapped = proc::number_of(&proc::read("/proc/vmstat"), "pswpout");
        let before = std::mem::replace(&mut self.swapped, swapped);
        matches!((before, swapped), (Some(before), Some(now)) if now > before)
    }

    /// The number of reports of short memory; `None` if the kernel reports none.
    pub fn reports(&self) -> Option<u64> {
        let reports = self.pressure.reports;
        (self.watched || reports > 0).then_some(reports)
    }
}

/// Returns true if at least an eighth of the memory is available.
pub fn is_available() -> bool {
    let all = proc::number_of(&proc::read("/proc/meminfo"), "MemTotal:");
    let available = proc::available_memory();
    matches!((available, all), (Some(available), Some(kib)) if available >> 10 >= kib / 8)
}
