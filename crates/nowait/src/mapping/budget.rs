//! The budget of locked memory, and its options.

use std::sync::Arc;

use nowait_residency::cgroup::{Controller, Groups};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::frames::Frames;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::process::{PerProcess, page_size};

/// Memory that resident windows may take. Mappings share it. When it is used up, the least recently
/// used window is released that is not borrowed.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Frames>);

/// The options of a budget.
///
/// ```
/// use nowait::mapping::BudgetOptions;
/// let budget = BudgetOptions::new().limit(4 << 20).window(64 << 10).build()?;
/// assert_eq!((budget.limit(), budget.locked()), (4 << 20, 0));
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BudgetOptions {
    limit: u64,
    window: usize,
}

/// The default size of a window in bytes.
const WINDOW: usize = 2 << 20;
/// The maximum number of windows, which limits the memory of their counters.
const MAX_WINDOWS: u64 = 1 << 16;
/// The minimum number of windows that fit. Files that are smaller than a window take less of the
/// budget.
const MIN_WINDOWS: u64 = 256;

impl Budget {
    /// The budget of this process: `RLIMIT_MEMLOCK` (getrlimit(2)), at most half of the memory that
    /// the machine and the control group have. The limit does not apply to processes with
    /// `CAP_IPC_LOCK`.
    ///
    /// # Errors
    /// As [`BudgetOptions::build`].
    pub fn process() -> Result<Budget> {
        static PROCESS: PerProcess<Budget> = PerProcess::new();
        PROCESS
            .get_or_make(|| BudgetOptions::new().build())
            .cloned()
    }

    /// The maximum number of locked bytes. 0 if the kernel or a sandbox denies a system call that
    /// is needed.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The bytes of all resident windows, and of private copies of windows that are still borrowed
    /// after a lease was broken. 0 in a forked child.
    pub fn locked(&self) -> u64 {
        if self.0.process.is_here() {
            self.0.locked()
        } else {
            0
        }
    }

    pub(super) fn frames(&self) -> &Arc<Frames> {
        &self.0
    }
}

impl Default for BudgetOptions {
    fn default() -> BudgetOptions {
        BudgetOptions::new()
    }
}

impl BudgetOptions {
    /// The options of [`Budget::process`].
    pub fn new() -> BudgetOptions {
        BudgetOptions {
            limit: default_limit(),
            window: WINDOW,
        }
    }

    /// The maximum number of bytes. `RLIMIT_MEMLOCK` limits it further.
    pub fn limit(mut self, bytes: u64) -> BudgetOptions {
        self.limit = bytes;
        self
    }

    /// The size of a window in bytes: a power of two, at least a page.
    pub fn window(mut self, bytes: usize) -> BudgetOptions {
        self.window = bytes;
        self
    }

    /// Makes the budget. No memory is locked before a window is loaded.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the size of a window is smaller than a page or not a power of
    /// two.
    pub fn build(&self) -> Result<Budget> {
        if !self.window.is_power_of_two() || self.window < page_size() {
            return Err(Error::new("budget", ErrorKind::InvalidInput));
        }
        let windows = (self.limit / self.window as u64).clamp(MIN_WINDOWS, MAX_WINDOWS);
        let windows = usize::try_from(windows).unwrap_or(0);
        let frames = Frames::new(self.window, self.limit, windows);
        Ok(Budget(Arc::new(frames)))
    }
}

/// The limit of the process, and at most half of the memory of the machine or of the control group.
/// The kernel does not apply `RLIMIT_MEMLOCK` to processes with `CAP_IPC_LOCK`.
fn default_limit() -> u64 {
    let sets = rustix::thread::capabilities(None);
    let privileged = sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    let own = match getrlimit(Resource::Memlock).current {
        Some(limit) if !privileged => limit,
        _ => u64::MAX,
    };
    let info = rustix::system::sysinfo();
    let memory = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    let of_groups = Groups::of_this_process(Controller::Memory).limit();
    own.min(memory.min(of_groups.unwrap_or(u64::MAX)) / 2)
}
