//! Sequential readahead for strict files: the engine starts it instead of the kernel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of bytes of one readahead.
pub(crate) const WINDOW: u64 = 2 << 20;

/// The position of a file's sequential reads, and of its readahead.
#[derive(Debug, Default)]
pub(crate) struct Readahead {
    /// The end of the last read. A read that starts there is sequential.
    end: AtomicU64,
    /// The end of the readahead that was started last; 0 if none was.
    ahead: AtomicU64,
}

impl Readahead {
    /// Records a read of a strict file. Returns the offset from which [`WINDOW`] bytes are to be
    /// read ahead now, or `None`.
    ///
    /// Readahead begins when a read continues where the last one ended and was not cached. It
    /// continues while reads are sequential. The next window is requested when half of the last one
    /// is unread, so that it arrives in time. The first read of a file is not sequential. A file
    /// that is cached is never read ahead.
    pub(crate) fn next(&self, offset: u64, len: u64, missed: bool) -> Option<u64> {
        let end = offset.saturating_add(len);
        let follows = self.end.swap(end, Relaxed) == offset && offset > 0;
        if !follows {
            return None;
        }
        let upto = self.ahead.load(Relaxed);
        let within = (end..=end.saturating_add(2 * WINDOW)).contains(&upto);
        let from = match (within, missed) {
            (true, _) if upto - end >= WINDOW / 2 => return None,
            (true, _) => upto,
            (false, true) => end,
            (false, false) => return None,
        };
        // If several threads read, only one of them starts the readahead.
        self.ahead
            .compare_exchange(upto, from.saturating_add(WINDOW), Relaxed, Relaxed)
            .is_ok()
            .then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_sequence_are_read_ahead_before_they_wait() {
        let h = Readahead::default();
        const LEN: u64 = 16 << 10;
        assert_eq!(h.next(0, LEN, true), None, "the first read follows nothing");
        assert_eq!(h.next(LEN, LEN, false), None, "it is cached");
        assert_eq!(h.next(2 * LEN, LEN, true), Some(3 * LEN));
        let mut upto = 3 * LEN + WINDOW;
        for offset in (3 * LEN..10 * WINDOW).step_by(LEN as usize) {
            // Pages that are in flight count as missed, but are requested only once.
            if let Some(from) = h.next(offset, LEN, offset % (4 * LEN) == 0) {
                assert_eq!(from, upto, "windows follow each other");
                upto += WINDOW;
            }
            assert!(upto >= offset + LEN + WINDOW / 2, "{offset}: too late");
            assert!(upto <= offset + LEN + 2 * WINDOW, "{offset}: too far");
        }
        assert_eq!(h.next(LEN, LEN, true), None, "elsewhere");
        assert_eq!(h.next(2 * LEN, LEN, true), Some(3 * LEN), "anew");
    }

    #[test]
    fn reads_longer_than_a_window_are_read_ahead_too() {
        let h = Readahead::default();
        let len = 2 * WINDOW;
        h.next(0, len, true);
        assert_eq!(h.next(len, len, true), Some(2 * len));
        assert_eq!(h.next(2 * len, len, true), Some(3 * len));
        assert_eq!(h.next(u64::MAX, len, true), None, "no overflow");
        assert_eq!(h.next(u64::MAX, len, true), Some(u64::MAX));
    }
}
