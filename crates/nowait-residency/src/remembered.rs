//! Answers that are used again: the pages of a file that were resident a short time ago.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::pages::{page_size, pages};
use crate::sys::cast::to_usize;

/// The bytes at the beginning of a file whose answers are remembered. They take 128 KiB of memory.
const MAX_REMEMBERED: u64 = 4 << 30;

/// The pages of one file that were resident when they were last asked about. All are forgotten at
/// the same time.
#[derive(Debug)]
pub(crate) struct Remembered {
    /// The time of the first answer, in nanoseconds of the coarse monotonic clock.
    begun: AtomicU64,
    /// A bit for each page.
    pages: Box<[AtomicU64]>,
}

impl Remembered {
    /// No answers yet, about a file of `size` bytes.
    pub(crate) fn new(size: u64) -> Remembered {
        let words = pages(0, size.min(MAX_REMEMBERED)).div_ceil(u64::from(u64::BITS));
        Remembered {
            begun: AtomicU64::new(now()),
            pages: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns true if all pages of the range were resident within the last `time`.
    pub(crate) fn contains(&self, offset: u64, len: usize, time: Duration) -> bool {
        self.is_current(time)
            && words(offset, len).all(|(word, bits)| {
                let pages = self.pages.get(word);
                pages.is_some_and(|pages| pages.load(Ordering::Relaxed) & bits == bits)
            })
    }

    /// Forgets all pages if the first answer is older than `time`. To be called before answers are
    /// added.
    pub(crate) fn renew(&self, time: Duration) {
        if !self.is_current(time) {
            self.clear();
            self.begun.store(now(), Ordering::Release);
        }
    }

    /// Adds the page at an offset, which is resident now.
    pub(crate) fn add(&self, offset: u64) {
        for (word, bits) in words(offset, 1) {
            if let Some(pages) = self.pages.get(word) {
                pages.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// The numbers of some remembered pages: the first and the last in each of 16 parts of the file.
    pub(crate) fn sample(&self) -> impl Iterator<Item = u64> {
        let len = self.pages.len().div_ceil(16).max(1);
        let of_part = move |(part, words): (usize, &[AtomicU64])| {
            let bits = |pages: &AtomicU64| pages.load(Ordering::Relaxed);
            let first = words.iter().position(|pages| bits(pages) != 0)?;
            let last = words.iter().rposition(|pages| bits(pages) != 0)?;
            let page =
                |word, bit| (part * len + word) as u64 * u64::from(u64::BITS) + u64::from(bit);
            let first_bit = bits(&words[first]).trailing_zeros();
            let last_bit = bits(&words[last]).checked_ilog2()?;
            Some([page(first, first_bit), page(last, last_bit)])
        };
        self.pages
            .chunks(len)
            .enumerate()
            .filter_map(of_part)
            .flatten()
    }

    /// Forgets all pages.
    pub(crate) fn clear(&self) {
        for pages in &self.pages {
            pages.store(0, Ordering::Relaxed);
        }
    }

    fn is_current(&self, time: Duration) -> bool {
        let age = now().saturating_sub(self.begun.load(Ordering::Acquire));
        u128::from(age) < time.as_nanos()
    }
}

/// The words of the pages of a range, with the bits of these pages.
fn words(offset: u64, len: usize) -> impl Iterator<Item = (usize, u64)> {
    let bits = u64::from(u64::BITS);
    let first = offset / page_size();
    let end = first + pages(offset, len as u64);
    (first / bits..end.div_ceil(bits)).map(move |word| {
        let Range { start, end } = first.max(word * bits)..end.min((word + 1) * bits);
        let ones = match end.saturating_sub(start) {
            0 => 0,
            count => u64::MAX >> (bits - count),
        };
        (to_usize(word), ones << (start % bits))
    })
}

/// Takes some nanoseconds. The clock advances with each tick of the kernel.
fn now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn pages_are_remembered_until_they_are_forgotten() {
        let page = page_size();
        let remembered = Remembered::new(1000 * page);
        assert!(!remembered.contains(0, 1, LONG));
        remembered.renew(LONG);
        (60..131).for_each(|number| remembered.add(number * page));
        for (first, count, known) in [
            (60, 71, true),
            (59, 2, false),
            (130, 1, true),
            (130, 2, false),
            (64, 64, true),
            (5000, 1, false),
            (70, 0, true),
        ] {
            let len = to_usize(count * page);
            assert_eq!(
                remembered.contains(first * page, len, LONG),
                known,
                "{first} {count}"
            );
        }
        assert!(remembered.sample().eq([60, 63, 64, 127, 128, 130]));
        assert!(!remembered.contains(64 * page, 1, Duration::ZERO));
        remembered.renew(Duration::ZERO);
        remembered.add(0);
        assert!(
            !remembered.contains(64 * page, 1, LONG),
            "older answers are forgotten"
        );
        assert!(remembered.contains(0, 1, LONG));
        remembered.clear();
        assert!(!remembered.contains(0, 1, LONG));
    }

    #[test]
    fn ranges_beyond_all_files_are_not_remembered() {
        let remembered = Remembered::new(u64::MAX);
        for offset in [MAX_REMEMBERED, i64::MAX as u64 - 4096] {
            remembered.add(offset);
            assert!(!remembered.contains(offset, 4096, LONG));
        }
        assert!(remembered.contains(0, 0, LONG), "no page");
    }
}
