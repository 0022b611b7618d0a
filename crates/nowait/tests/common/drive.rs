//! The engine that a test drives: shared or local.

use std::os::fd::BorrowedFd;

use nowait::cost::Costs;
use nowait::engine::{Backend, Engine, Feature, FileSet, LocalEngine, Options, Submit, Wait};
use nowait::op::Op;
use nowait::stats::Stats;
use nowait::support::Support;
use nowait::{Completion, Ticket};

use super::backends::backends;
use super::limit::Limit;

/// The methods that both engines have.
#[allow(dead_code, reason = "each program of tests uses some of them")]
pub trait Drive {
    fn is_local(&self) -> bool;
    fn submit(&mut self, op: Op) -> Submit;
    fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize;
    fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize>;
    fn reap_at_most(
        &mut self,
        most: usize,
        out: &mut Vec<Completion>,
        wait: Wait,
    ) -> nowait::Result<usize>;
    fn cancel(&mut self, ticket: Ticket);
    fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>>;
    fn file_set(&mut self, capacity: usize) -> nowait::Result<FileSet>;
    fn in_flight(&self) -> usize;
    fn depth(&self) -> usize;
    fn backend(&self) -> Backend;
    fn why(&self) -> &str;
    fn support(&self, feature: Feature) -> Support;
    fn stats(&self) -> Stats;
    fn costs(&self) -> Costs;
}

macro_rules! drive {
    ($engine:ty, $is_local:literal) => {
        impl Drive for $engine {
            fn is_local(&self) -> bool {
                $is_local
            }

            fn submit(&mut self, op: Op) -> Submit {
                <$engine>::submit(self, op)
            }

            fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
                <$engine>::submit_batch(self, ops)
            }

            fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> nowait::Result<usize> {
                <$engine>::reap(self, out, wait)
            }

            fn reap_at_most(
                &mut self,
                most: usize,
                out: &mut Vec<Completion>,
                wait: Wait,
            ) -> nowait::Result<usize> {
                <$engine>::reap_at_most(self, most, out, wait)
            }

            fn cancel(&mut self, ticket: Ticket) {
                <$engine>::cancel(self, ticket);
            }

            fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>> {
                <$engine>::event_fd(self)
            }

            fn file_set(&mut self, capacity: usize) -> nowait::Result<FileSet> {
                <$engine>::file_set(self, capacity)
            }

            fn in_flight(&self) -> usize {
                <$engine>::in_flight(self)
            }

            fn depth(&self) -> usize {
                <$engine>::depth(self)
            }

            fn backend(&self) -> Backend {
                <$engine>::backend(self)
            }

            fn why(&self) -> &str {
                <$engine>::why(self)
            }

            fn support(&self, feature: Feature) -> Support {
                <$engine>::support(self, feature)
            }

            fn stats(&self) -> Stats {
                <$engine>::stats(self)
            }

            fn costs(&self) -> Costs {
                <$engine>::costs(self)
            }
        }
    };
}

drive!(Engine, false);
drive!(LocalEngine, true);

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
