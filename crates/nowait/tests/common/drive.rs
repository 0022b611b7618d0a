//! The engine that a test drives: shared or local.

use nowait::engine::{Engine, LocalEngine, Options, Queue};

use super::backends::backends;
use super::limit::Limit;

/// Both engines.
pub trait Drive: Queue {
    fn is_local(&self) -> bool;
}

impl Drive for Engine {
    fn is_local(&self) -> bool {
        false
    }
}

impl Drive for LocalEngine {
    fn is_local(&self) -> bool {
        true
    }
}

/// Runs a test on the shared and the local engine, each on both backends.
pub fn each(options: Options, test: impl Fn(&mut dyn Drive)) {
    for backend in backends() {
        let options = options.clone().backend(backend);
        {
            let _limit = Limit::new(format!("shared {backend}"));
            test(&mut options.build().unwrap());
        }
        let _limit = Limit::new(format!("local {backend}"));
        test(&mut options.build_local().unwrap());
    }
}

/// The engine under test, for messages.
pub fn name(engine: &dyn Drive) -> String {
    let kind = if engine.is_local() { "local" } else { "shared" };
    let (backend, why, depth) = (engine.backend(), engine.why(), engine.depth());
    format!("{kind} {backend} of depth {depth} ({why})")
}
