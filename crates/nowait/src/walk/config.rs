//! The configuration of a walk.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::scan;
use crate::user_code;

/// The configuration of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(super) scan: scan::Options,
    pub(super) one_filesystem: bool,
    /// The greatest depth of a directory that is entered. The root has depth 0.
    pub(super) depth: usize,
    pub(super) descriptors: usize,
    pub(super) filter: Option<Filter>,
}

/// The program's choice of the directories that are entered.
#[derive(Clone)]
pub(crate) struct Filter(Arc<Predicate>);

type Predicate = dyn Fn(&Path, usize) -> bool + Send + Sync;

impl Filter {
    pub(super) fn new(filter: impl Fn(&Path, usize) -> bool + Send + Sync + 'static) -> Filter {
        Filter(Arc::new(filter))
    }

    /// Returns true if a directory is entered. `None` if the filter panicked.
    pub(super) fn enters(&self, path: &Path, depth: usize) -> Option<bool> {
        user_code::call(|| (self.0)(path, depth))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}
