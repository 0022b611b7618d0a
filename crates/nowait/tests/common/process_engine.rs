//! Tests of the engine that a process makes for itself: each runs in a child.

use nowait::engine::{Backend, Engine, Options};

use super::backends::backends;
use super::children::{in_child, role};
use super::limit::Limit;

/// Runs a test with the process's engine on each backend, each in a child.
pub fn each_process(body: impl FnOnce(&Engine)) {
    match role() {
        None => backends()
            .into_iter()
            .for_each(|backend| in_child(backend.name())),
        Some(backend) => {
            let backend = match &*backend {
                "uring" => Backend::Uring,
                _ => Backend::Threads,
            };
            let _limit = Limit::new(format!("process {backend}"));
            let options = Options::new().backend(backend);
            body(&Engine::make_process(&options).unwrap());
        }
    }
}
