//! Bytes of a file that is read often, borrowed from its mapping.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use nowait::mapping::Budget;
use nowait::{File, Mapping};

/// A file is mapped when this number of its reads were hits. A mapping costs two dozen system calls
/// and a descriptor.
const OFTEN: u32 = 32;

/// A part of the file, in bytes: the usual size of a window. Each is asked for once, also if the
/// budget has no room or releases it. Otherwise parts would be loaded again and again.
const PART: u64 = 2 << 20;

/// The mapping of an open file, within the budget of its store.
#[derive(Debug)]
pub(crate) struct Mapped {
    budget: Budget,
    /// The number of hits, up to [`OFTEN`].
    hits: AtomicU32,
    mapping: OnceLock<Option<Arc<Mapping>>>,
    /// The numbers of the parts that were asked for.
    asked: Mutex<HashSet<u64>>,
}

impl Mapped {
    pub(crate) fn new(budget: Budget) -> Mapped {
        Mapped {
            budget,
            hits: AtomicU32::new(0),
            mapping: OnceLock::new(),
            asked: Mutex::default(),
        }
    }

    /// The bytes of a range, if all of them are resident in the mapping.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let mapping = self.mapping.get()?.as_ref()?;
        mapping.get_owned(range.clone()).map(Bytes::from_owner)
    }

    /// Notes that the page cache served the read of a range. Its parts become resident in the
    /// background, if the budget has room for them.
    pub(crate) fn hit(&self, file: &File, range: &Range<u64>) {
        if self.hits.load(Relaxed) < OFTEN {
            // One caller makes the mapping. The others go on without it.
            if self.hits.fetch_add(1, Relaxed) + 1 == OFTEN {
                self.map(file);
            }
            return;
        }
        let Some(Some(mapping)) = self.mapping.get() else {
            return;
        };
        let parts = range.start / PART..range.end.div_ceil(PART);
        if range.is_empty() || !self.ask(parts.clone()) {
            return;
        }
        let whole = parts.start * PART..(parts.end * PART).min(mapping.len());
        if self.has_room(whole.end - whole.start) {
            mapping.prefetch(whole);
        }
    }

    fn map(&self, file: &File) {
        if !self.has_room(PART) {
            // Later hits try again.
            self.hits.store(0, Relaxed);
            return;
        }
        let mapping = Mapping::within(file, &self.budget).ok();
        let mapping = mapping.filter(|mapping| mapping.why().is_none());
        let _ = self.mapping.set(mapping.map(Arc::new));
    }

    /// Returns true if one of the parts was not asked for before. Returns false if another thread
    /// is asking: in a forked child, that thread may not exist.
    fn ask(&self, parts: Range<u64>) -> bool {
        let Ok(mut asked) = self.asked.try_lock() else {
            return false;
        };
        let before = asked.len();
        asked.extend(parts);
        asked.len() > before
    }

    /// Returns true if the budget has room for this number of bytes.
    fn has_room(&self, bytes: u64) -> bool {
        self.budget.limit().saturating_sub(self.budget.locked()) >= bytes
    }
}
