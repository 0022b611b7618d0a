//! The budget: the number of bytes that may be read into the page cache. It is a share of the
//! memory that is available to this process, so that new data does not evict data that was read
//! before. The budget is computed again during the work.
//!
//! Available memory includes clean cached pages, so it includes the bytes that were read before.
//! The rule is *bytes read ≤ share × available*, at every check. In a cgroup, what is available
//! is the smallest difference, over the group and its parents, of the limit and the used memory that the kernel cannot drop.

use std::fmt;
use std::str::FromStr;

use nowait_residency::cgroup::{Controller, Groups};

use crate::proc;
use crate::size::Size;

/// The budget that the user gave: bytes, or a share of the available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A number of bytes, but not more than are available.
    Bytes(u64),
    /// A percentage of the available memory.
    Percent(u8),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Allowed::Percent(percent)),
                _ => Err(format!("`{text}` is not a percentage: write 0% to 100%")),
            };
        }
        if text == "0" {
            return Ok(Allowed::Bytes(0));
        }
        text.parse().map(|Size(bytes)| Allowed::Bytes(bytes))
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Bytes(bytes) => write!(f, "{}", Size(*bytes)),
            Allowed::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The budget as computed at the last check.
#[derive(Debug)]
pub struct Budget {
    allowed: Allowed,
    /// The cgroups of this process when the budget was made.
    groups: Groups,
    /// The available memory at the last check, in bytes.
    available: u64,
}

/// The share of the available memory, in eighths, that [`Budget::lasting`] allows at most.
const LASTING_EIGHTHS: u64 = 7;

impl Budget {
    /// Computes the budget for the first time.
    pub fn new(allowed: Allowed) -> Budget {
        let groups = Groups::of_this_process(Controller::Memory);
        Budget {
            allowed,
            available: available(&groups),
            groups,
        }
    }

    /// Computes the budget again, because other programs may have used memory meanwhile.
    pub fn update(&mut self) {
        self.available = available(&self.groups);
    }

    /// The memory in bytes that is available at this moment.
    pub fn unused(&self) -> u64 {
        available(&self.groups)
    }

    /// The total number of bytes that may be read.
    pub fn max(&self) -> u64 {
        match self.allowed {
            Allowed::Bytes(bytes) => bytes.min(self.available),
            Allowed::Percent(percent) => {
                (u128::from(self.available) * u128::from(percent) / 100) as u64
            }
        }
    }

    /// Computes the budget again for memory that is filled for long. Locked memory is not available,
    /// so the caller's own locked bytes are added. An eighth of the memory is left to others.
    pub fn lasting(&mut self, locked: u64) -> u64 {
        let all = available(&self.groups).saturating_add(locked);
        self.available = all / 8 * LASTING_EIGHTHS;
        match self.allowed {
            Allowed::Bytes(bytes) => bytes.min(self.available),
            Allowed::Percent(percent) => self
                .available
                .min((u128::from(all) * u128::from(percent) / 100) as u64),
        }
    }

    /// Returns true if the user's number of bytes exceeds the available memory.
    pub fn is_cut(&self) -> bool {
        matches!(self.allowed, Allowed::Bytes(bytes) if bytes > self.available)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, available) = (Size(self.max()), Size(self.available));
        match self.allowed {
            Allowed::Bytes(_) if self.is_cut() => {
                write!(f, "the available memory of {limit}")
            }
            Allowed::Bytes(_) => write!(f, "the budget of {limit}"),
            Allowed::Percent(percent) => write!(
                f,
                "the budget of {limit} ({percent}% of {available} available memory)"
            ),
        }
    }
}

/// The number of bytes that this process can use without swapping and without reaching a limit; 0 if
/// it is unknown.
fn available(groups: &Groups) -> u64 {
    let machine = proc::available_memory().unwrap_or(0);
    groups.available().unwrap_or(u64::MAX).min(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_parsed() {
        for (text, allowed) in [
            ("0", Allowed::Bytes(0)),
            ("4G", Allowed::Bytes(4 << 30)),
            ("0%", Allowed::Percent(0)),
            ("75%", Allowed::Percent(75)),
            ("100%", Allowed::Percent(100)),
        ] {
            assert_eq!(text.parse(), Ok(allowed), "{text}");
        }
        for text in ["", "%", "101%", "-1%", "1.5%", "x"] {
            assert!(text.parse::<Allowed>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_lasting_budget_leaves_memory_to_others_and_counts_locked_memory() {
        let budget = |allowed| Budget::new(allowed).lasting(1 << 50);
        let all = budget(Allowed::Bytes(u64::MAX));
        assert!(all >= (1 << 50) / 8 * 7, "{all}");
        assert_eq!(budget(Allowed::Bytes(1 << 30)), 1 << 30);
        // The available memory changes between two calls.
        assert!(budget(Allowed::Percent(100)) >= (1 << 50) / 8 * 7);
        let half = budget(Allowed::Percent(50));
        assert!(((1 << 50) / 2..(1 << 50) / 8 * 5).contains(&half), "{half}");
    }

    #[test]
    fn a_machine_has_memory() {
        assert!(available(&Groups::of_this_process(Controller::Memory)) > 0);
    }
}
