//! The memory that may be filled: the budget, and less while memory is short.

use std::time::Instant;

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
}

impl Memory {
    /// The budget that the user gave. `watched`: the kernel reports memory pressure.
    pub fn new(allowed: Allowed, watched: bool) -> Memory {
        Memory {
            budget: Budget::new(allowed),
            pressure: Pressure::new(),
            watched,
            swapped: None,
        }
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
