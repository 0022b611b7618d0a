//! The configuration of a walk.

use crate::scan;

/// The configuration of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(super) scan: scan::Options,
    pub(super) one_filesystem: bool,
    pub(super) depth: usize,
    pub(super) descriptors: usize,
}
