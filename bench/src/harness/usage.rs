//! Processor time and context switches of this process or of its children: getrusage(2), and the
//! bytes that this process had read from devices: /proc/self/io.

use std::ops::Sub;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// The use of the processor since the start of the process, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Seconds in user space.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Context switches because a thread waited.
    pub voluntary: u64,
    /// Context switches because the scheduler ran another thread.
    pub involuntary: u64,
    /// Bytes read from devices, readahead included; `None` on a kernel that does not count them.
    pub device_bytes: Option<u64>,
}

impl Usage {
    /// The use of all threads of this process, also of those that have ended.
    pub fn of_self() -> Usage {
        let io = std::fs::read("/proc/self/io").unwrap_or_default();
        Usage {
            device_bytes: nowait_cli::proc::number_of(&io, "read_bytes:"),
            ..get(UsageWho::RUSAGE_SELF)
        }
    }

    /// The use of all children that were waited for, and of their children.
    pub fn of_children() -> Usage {
        get(UsageWho::RUSAGE_CHILDREN)
    }

    /// Seconds of processor time.
    pub fn cpu(&self) -> f64 {
        self.user + self.system
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            user: (self.user - before.user).max(0.0),
            system: (self.system - before.system).max(0.0),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            device_bytes: self
                .device_bytes
                .zip(before.device_bytes)
                .map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

fn get(whose: UsageWho) -> Usage {
    // The call fails only for an unknown `whose`.
    let Ok(used) = getrusage(whose) else {
        return Usage::default();
    };
    let seconds = |t: TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Usage {
        user: seconds(used.user_time()),
        system: seconds(used.system_time()),
        voluntary: used.voluntary_context_switches() as u64,
        involuntary: used.involuntary_context_switches() as u64,
        device_bytes: u64::try_from(used.block_reads())
            .ok()
            .map(|blocks| blocks * 512),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let before = Usage::of_self();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 30 {}
        let used = Usage::of_self() - before;
        assert!(used.cpu() > 0.0);
    }
}
