//! Support for one call or flag, learnt by trying it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Support for one call or flag: untried, it works, or it is refused.
#[derive(Debug, Default)]
pub(crate) struct Support(AtomicU8);

const UNTRIED: u8 = 0;
const WORKS: u8 = 1;
const REFUSED: u8 = 2;

impl Support {
    /// Not tried yet.
    pub(crate) const fn untried() -> Support {
        Support(AtomicU8::new(UNTRIED))
    }

    /// The initial value for a file, from that of its filesystem. Only a refusal is adopted: a
    /// success elsewhere proves nothing here.
    pub(crate) fn like(other: &Support) -> Support {
        let start = if other.is_refused() { REFUSED } else { UNTRIED };
        Support(AtomicU8::new(start))
    }

    /// Returns true if it was refused and has not worked since.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == REFUSED
    }

    /// Returns true if it is known to work.
    pub(crate) fn works(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WORKS
    }

    /// Records a success. It loads first, because many threads call this and few change the value.
    pub(crate) fn worked(&self) {
        if !self.works() {
            self.0.store(WORKS, Ordering::Relaxed);
        }
    }

    /// Records a refusal.
    pub(crate) fn refused(&self) {
        self.0.store(REFUSED, Ordering::Relaxed);
    }

    /// Records a refusal by one file of a filesystem. It has no effect if another file's try has
    /// worked.
    pub(crate) fn refused_once(&self) {
        let _ = self
            .0
            .compare_exchange(UNTRIED, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// True if it works, false if it was refused, `None` if it was not tried.
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
