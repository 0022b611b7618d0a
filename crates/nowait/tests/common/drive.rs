//! The engine that a test drives: shared or local.

use nowait::Completion;
use nowait::engine::{Backend, Engine, LocalEngine, Options, Submit, Wait};
use nowait::op::Op;
use nowait::stats::Stats;

use super::backends::backends;
use super::either::{Either, on_either};
use super::limit::Limit;

/// The methods that both engines have and that every area's tests use. Other modules add more.
pub trait Drive {
    fn engine(&self) -> Either<&Engine, &LocalEngine>;
    fn engine_mut(&mut self) -> Either<&mut Engine, &mut LocalEngine>;

    fn submit(&mut self, op: Op) -> Submit {
        on_either!(self.engine_mut(), submit(op))
    }
    fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
        on_either!(self.engine_mut(), submit_batch(ops))
    }
    fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize> {
        on_either!(self.engine_mut(), reap(out, wait))
    }
    fn stats(&self) -> Stats {
        on_either!(self.engine(), stats())
    }
    fn in_flight(&self) -> usize {
        on_either!(self.engine(), in_flight())
    }
    fn depth(&self) -> usize {
        on_either!(self.engine(), depth())
    }
    fn backend(&self) -> Backend {
        on_either!(self.engine(), backend())
    }
    fn why(&self) -> &str {
        on_either!(self.engine(), why())
    }
    fn is_local(&self) -> bool {
        matches!(self.engine(), Either::Local(_))
    }
}

impl Drive for Engine {
    fn engine(&self) -> Either<&Engine, &LocalEngine> {
        Either::Shared(self)
    }
    fn engine_mut(&mut self) -> Either<&mut Engine, &mut LocalEngine> {
        Either::Shared(self)
    }
}

impl Drive for LocalEngine {
    fn engine(&self) -> Either<&Engine, &LocalEngine> {
        Either::Local(self)
    }
    fn engine_mut(&mut self) -> Either<&mut Engine, &mut LocalEngine> {
        Either::Local(self)
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
