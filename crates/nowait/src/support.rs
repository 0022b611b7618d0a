//! Support for one call or flag, learnt by trying it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Support for one call or flag: untried, it works, or it is refused.
#[derive(Debug, Default)]
pub(crate) struct Support(AtomicU8);

const UNTRIED: u8 = 0;
const WORKS: u8 = 1;
const REFUSED: u8 = 2;

impl Support {
    /// Nothing yet.
    pub(crate) const fn untried() -> Support {
        Support(AtomicU8::new(UNTRIED))
    }

    /// What to start from where others were refused. That it worked elsewhere proves nothing here.
    pub(crate) fn like(other: &Support) -> Support {
        let start = if other.is_refused() { REFUSED } else { UNTRIED };
        Support(AtomicU8::new(start))
    }

    /// Whether it was refused and never worked.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == REFUSED
    }

    /// Whether it is known to work.
    pub(crate) fn works(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WORKS
    }

    /// It worked. A plain load first: many threads come by here, few have news.
    pub(crate) fn worked(&self) {
        if !self.works() {
            self.0.store(WORKS, Ordering::Relaxed);
        }
    }

    /// It was refused.
    pub(crate) fn refused(&self) {
        self.0.store(REFUSED, Ordering::Relaxed);
    }

    /// It was refused, but what has worked on this filesystem once is not given up for all its
    /// files.
    pub(crate) fn refused_once(&self) {
        let _ = self
            .0
            .compare_exchange(UNTRIED, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// For a report.
    pub(crate) fn answer(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            WORKS => Some(true),
            REFUSED => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_does_not_condemn_what_has_worked() {
        let fs = Support::default();
        fs.refused_once();
        assert!(fs.is_refused());
        fs.worked();
        fs.refused_once();
        assert!(fs.works());
    }
}
