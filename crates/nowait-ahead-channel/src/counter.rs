//! A counter of the processor that a program reads without a system call: the time-stamp counter of
//! x86-64, and the virtual counter of AArch64. clock_gettime(2) is a system call where the kernel's
//! clock is another one.

use std::time::Instant;

/// The counter at a time that another clock has told.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    time: Instant,
    ticks: u64,
}

const TRIES: usize = 4;
/// The number of bits after the point of [`Moment::scale`].
const BITS: u32 = 32;

impl Moment {
    /// This moment. The thread may lose the processor between the two clocks: the closest of some
    /// tries counts.
    pub fn now() -> Moment {
        let once = || {
            let (ticks, time) = (ticks(), Instant::now());
            (self::ticks().saturating_sub(ticks), Moment { time, ticks })
        };
        let closest = (1..TRIES).fold(once(), |best, _| {
            let other = once();
            if other.0 < best.0 { other } else { best }
        });
        closest.1
    }

    /// The nanoseconds of a tick, by the time since this moment. At least one billionth.
    pub(crate) fn scale(&self) -> u64 {
        let now = Moment::now();
        let nanoseconds = now.time.saturating_duration_since(self.time).as_nanos();
        let ticks = u128::from(now.ticks.saturating_sub(self.ticks)).max(1);
        u64::try_from((nanoseconds << BITS) / ticks).map_or(0, |scale| scale.max(1))
    }
}

/// The counter in nanoseconds.
pub(crate) fn nanoseconds(scale: u64) -> u64 {
    ((u128::from(ticks()) * u128::from(scale)) >> BITS) as u64
}

fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: each x86-64 processor has this counter.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    let ticks = {
        let ticks: u64;
        // SAFETY: the kernel allows programs to read this counter. Nothing else is changed.
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
        }
        ticks
    };
    // A program on another processor is not timed.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let ticks = 0;
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_counter_goes_as_fast_as_the_clock() {
        let begun = Moment::now();
        std::thread::sleep(Duration::from_millis(20));
        let scale = begun.scale();
        let (long, before, short) = (Instant::now(), nanoseconds(scale), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (short, after, long) = (short.elapsed(), nanoseconds(scale), long.elapsed());
        let counted = Duration::from_nanos(after - before);
        // The thread may have lost the processor meanwhile.
        assert!(
            (short * 9 / 10..=long * 11 / 10).contains(&counted),
            "{short:?}, {counted:?}, {long:?}"
        );
    }
}
