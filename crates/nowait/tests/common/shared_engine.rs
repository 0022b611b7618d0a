//! Tests of the shared engine.

use nowait::engine::{Engine, Options};

use super::backends::backends;
use super::limit::Limit;

/// Runs a test on the shared engine, on both backends.
pub fn each_shared(options: Options, test: impl Fn(&Engine)) {
    for backend in backends() {
        let _limit = Limit::new(format!("shared {backend}"));
        test(&options.clone().backend(backend).build().unwrap());
    }
}
