//! The costs of a try and of a handoff, and the hit rate from which trying pays.
//!
//! The break-even rate follows the discussion of fincore() and preadv2() on the kernel list (2015),
//! where it was 30 %. Here it is computed from the measured times of the machine's own reads: an
//! engine times one read in 64 ([`crate::policy::stats`]), and starts from typical values.
//!
//! On kernels since about 6.12 a failed try takes long because it starts the read from the device
//! before it returns. The engine would have to start the same read later, so that this time is no
//! cost. Only the look-up counts as the cost of a failed try, and it takes no longer than a hit.
//! With the full time of a failed try, the break-even rate was 30 to 80 %, while reads with and
//! without trying took equally long at 0 to 20 % (`nowait-bench hitrate`). A read that is alone on
//! its engine tries without regard to the costs: see `read/plan.rs`.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The three costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The cost of a try that finds all bytes.
    pub hit: f64,
    /// The cost of a try that finds none. On recent kernels it includes the start of the read from
    /// the device.
    pub miss: f64,
    /// The cost of the same hit served by the engine: queueing, the read, and waking the waiting
    /// task.
    pub handoff: f64,
}

impl Default for Costs {
    /// Typical values, used until the machine has been measured.
    fn default() -> Costs {
        Costs {
            hit: 1_000.0,
            miss: 10_000.0,
            handoff: 30_000.0,
        }
    }
}

impl Costs {
    /// The hit rate `h` at which trying breaks even: `h·(handoff − hit) = (1 − h)·look`. `look` is
    /// the cost of a failed try, but at most that of a hit. A failed try takes longer only because
    /// it starts a read that must be started anyway.
    ///
    /// The rate is between 0 (always try) and 1 (never try).
    ///
    /// ```
    /// use nowait::cost::Costs;
    /// let costs = Costs { hit: 1_000.0, miss: 15_000.0, handoff: 5_000.0 };
    /// assert_eq!(costs.break_even(), 0.2);
    /// ```
    pub fn break_even(self) -> f64 {
        let gain = self.handoff - self.hit;
        let look = self.miss.min(self.hit);
        if gain <= 0.0 {
            1.0
        } else {
            look / (look + gain)
        }
    }
}

/// The maximum length of reads whose times are averaged. In longer reads the copy takes most of the
/// time, and the lengths of hits and handoffs differ too much for a comparison.
const COMPARED: usize = 16 << 10;

/// The three costs as observed by an engine: moving averages in nanoseconds.
#[derive(Debug)]
pub(crate) struct Observed {
    hit: AtomicU32,
    miss: AtomicU32,
    handoff: AtomicU32,
}

impl Default for Observed {
    fn default() -> Observed {
        let start = Costs::default();
        Observed {
            hit: AtomicU32::new(whole(start.hit)),
            miss: AtomicU32::new(whole(start.miss)),
            handoff: AtomicU32::new(whole(start.handoff)),
        }
    }
}

/// Converts nanoseconds to an integer, without the fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from a float this is the nearest number that there is"
)]
fn whole(ns: f64) -> u32 {
    ns as u32
}

impl Observed {
    pub(crate) fn costs(&self) -> Costs {
        Costs {
            hit: f64::from(self.hit.load(Relaxed)),
            miss: f64::from(self.miss.load(Relaxed)),
            handoff: f64::from(self.handoff.load(Relaxed)),
        }
    }

    pub(crate) fn hit(&self, len: usize, ns: u64) {
        if len <= COMPARED {
            average(&self.hit, ns);
        }
    }

    pub(crate) fn miss(&self, ns: u64) {
        average(&self.miss, ns);
    }

    pub(crate) fn handoff(&self, len: usize, ns: u64) {
        if len <= COMPARED {
            average(&self.handoff, ns);
        }
    }
}

/// Moves an average by 1/16 towards a sample. A sample counts for at most four times the average,
/// so that a preemption has little effect.
fn average(cell: &AtomicU32, ns: u64) {
    let old = cell.load(Relaxed);
    let new = u32::try_from(ns)
        .unwrap_or(u32::MAX)
        .min(old.saturating_mul(4))
        .max(1);
    cell.store(old - old / 16 + new / 16, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_table_gives_thirty_percent_and_useless_tries_never_pay() {
        // In the kernel proposal, a miss costs as much as fincore, and a hit saves what fincore
        // adds.
        let seed = Costs {
            hit: 1134.0,
            miss: 1134.0 - 674.0,
            handoff: 1134.0 + (1755.0 - 1134.0),
        };
        assert!((0.3..0.5).contains(&seed.break_even()));
        assert_eq!(
            Costs {
                hit: 5.0,
                miss: 1.0,
                handoff: 4.0
            }
            .break_even(),
            1.0
        );
    }

    #[test]
    fn the_start_of_a_read_is_no_waste() {
        let costs = |miss| Costs {
            hit: 1.0,
            miss,
            handoff: 10.0,
        };
        // The time that the kernel takes to start the read does not matter.
        assert_eq!(costs(15.0).break_even(), costs(1_500.0).break_even());
        assert_eq!(costs(15.0).break_even(), 0.1);
        // A kernel that starts no read returns sooner.
        assert!(costs(0.5).break_even() < 0.1);
    }

    #[test]
    fn averages_follow_and_shrug_off_an_outlier() {
        let o = Observed::default();
        o.hit(4096, u64::MAX);
        assert!(o.costs().hit < 2.0 * Costs::default().hit);
        (0..500).for_each(|_| o.hit(4096, 500));
        assert!((450.0..560.0).contains(&o.costs().hit), "{}", o.costs().hit);
        // Long copies are not averaged.
        (0..500).for_each(|_| o.hit(1 << 20, 50_000));
        assert!(o.costs().hit < 560.0);
    }
}
