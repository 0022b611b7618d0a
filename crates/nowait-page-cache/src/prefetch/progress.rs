//! The state of a run, as the caller sees it during the run.

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The number of processed files.
    pub files: u64,
    /// The number of bytes that were read.
    pub read_bytes: u64,
    /// The bytes that were read per second of the run.
    pub bytes_per_s: u64,
    /// The requested bytes that are done: cached before, read, in holes, or given up because of the
    /// budget or an error. All requested bytes of a file that has ended are done.
    pub done_bytes: u64,
    /// The number of requested bytes; `None` if it is not known or not yet. It is at least
    /// [`done_bytes`](Progress::done_bytes).
    pub total_bytes: Option<u64>,
    /// The number of bytes that the budget still allows to be read.
    pub room_bytes: u64,
}

impl Progress {
    /// The share of the requested bytes that is done, from 0 to 100; `None` if the total is not
    /// known.
    pub fn percent(&self) -> Option<f64> {
        self.total_bytes.map(|total| match total {
            0 => 100.0,
            total => self.done_bytes as f64 / total as f64 * 100.0,
        })
    }

    /// The maximum number of bytes that are still to be read. `None` if the total is not known, and if the budget is
    /// used up: the other files are still opened and counted then, which takes an unknown time.
    pub fn left_bytes(&self) -> Option<u64> {
        let left = self.total_bytes?.saturating_sub(self.done_bytes);
        (left == 0 || self.room_bytes > 0).then(|| left.min(self.room_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_needs_a_total_and_the_budget_limits_the_rest() {
        let progress = |done_bytes, total_bytes| Progress {
            files: 1,
            read_bytes: 2,
            bytes_per_s: 3,
            done_bytes,
            total_bytes,
            room_bytes: 100,
        };
        let unknown = progress(50, None);
        assert_eq!((unknown.percent(), unknown.left_bytes()), (None, None));
        let half = progress(50, Some(100));
        assert_eq!((half.percent(), half.left_bytes()), (Some(50.0), Some(50)));
        assert_eq!(progress(0, Some(0)).percent(), Some(100.0));
        assert_eq!(progress(50, Some(1000)).left_bytes(), Some(100));
        let full = |done_bytes| Progress {
            room_bytes: 0,
            ..progress(done_bytes, Some(1000))
        };
        assert_eq!(full(50).left_bytes(), None);
        assert_eq!(full(1000).left_bytes(), Some(0));
    }
}
