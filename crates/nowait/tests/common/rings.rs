//! Tests that only a ring can run.

use nowait::engine::{Backend, Options};

use super::backends::backends;
use super::kinds::{AnyKind, odd_rings, plain};

/// Runs a test on rings of all kinds.
pub fn each_ring(options: Options, test: impl Fn(&mut AnyKind)) {
    if backends()[0] == Backend::Threads {
        return;
    }
    plain(Backend::Uring, &options, &test);
    odd_rings(options, test);
}
