//! Bytes of a file that is read often, borrowed from its mapping.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use nowait::mapping::Budget;
use nowait::{File, Mapping};

/// A file is mapped when this number of its reads were hits. A mapping costs two dozen system calls and a descriptor.
const OFTEN: u32 = 32;

/// The largest window of a budget that is worth the question if it fits.
const WINDOW: u64 = 2 << 20;

/// The mapping of an open file, within the budget of its store.
#[derive(Debug)]
pub(crate) struct Mapped {
    budget: Budget,
    /// The number of hits, up to [`OFTEN`].
    hits: AtomicU32,
    mapping: OnceLock<Option<Arc<Mapping>>>,
}

impl Mapped {
    pub(crate) fn new(budget: Budget) -> Mapped {
        Mapped {
            budget,
            hits: AtomicU32::new(0),
            mapping: OnceLock::new(),
        }
    }

    /// The bytes of a range, if all of them are resident in the mapping.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let mapping = self.mapping.get()?.as_ref()?;
        mapping.get_owned(range.clone()).map(Bytes::from_owner)
    }

    /// Notes that the page cache served the read of a range. The windows of the range become resident in the
    /// background, as long as the budget has room for them: no window is released for another, which would cost more
    /// than the copy of a read.
    pub(crate) fn hit(&self, file: &File, range: &Range<u64>) {
        if self.hits.load(Relaxed) < OFTEN {
            self.hits.fetch_add(1, Relaxed);
            return;
        }
        let map = || {
            let mapping = Mapping::within(file, &self.budget).ok()?;
            mapping.why().is_none().then(|| Arc::new(mapping))
        };
        let Some(mapping) = self.mapping.get_or_init(map) else {
            return;
        };
        let room = self.budget.limit().saturating_sub(self.budget.locked());
        if room >= WINDOW.saturating_add(range.end - range.start) {
            mapping.prefetch(range.clone());
        }
    }
}
