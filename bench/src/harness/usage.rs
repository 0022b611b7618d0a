//! Processor time and context switches of this process or of its children: getrusage(2), which
//! rustix lacks. Nothing else belongs here.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Sub;

/// The use of the process since its start, or between two moments (a difference).
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Seconds in user space.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Context switches because a thread had to wait.
    pub voluntary: u64,
    /// Context switches because another thread's turn had come.
    pub involuntary: u64,
}

impl Usage {
    /// Of all threads of this process, also of those that have ended.
    pub fn of_self() -> Usage {
        get(libc::RUSAGE_SELF)
    }

    /// Of all children that have ended and were waited for, and of theirs.
    pub fn of_children() -> Usage {
        get(libc::RUSAGE_CHILDREN)
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
        }
    }
}

fn get(whose: libc::c_int) -> Usage {
    let mut raw = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes at most one `rusage` there, and all zeroes is a valid one, should
    // it write nothing. The call fails only for a `whose` that it does not know.
    let raw = unsafe {
        libc::getrusage(whose, raw.as_mut_ptr());
        raw.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Usage {
        user: seconds(raw.ru_utime),
        system: seconds(raw.ru_stime),
        voluntary: raw.ru_nvcsw as u64,
        involuntary: raw.ru_nivcsw as u64,
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
