//! The common interface of both engines.

use std::os::fd::BorrowedFd;

use super::backend::Backend;
use super::chain::{Chain, RefusedChain};
use super::features::Features;
use super::file_set::FileSet;
use super::local::LocalEngine;
use super::shared::Engine;
use super::submit::Submit;
use super::wait::Wait;
use crate::completion::{Completion, Ticket};
use crate::cost::Costs;
use crate::error::Result;
use crate::op::Op;
use crate::stats::Stats;

/// A submission queue and a completion queue: [`Engine`] or [`LocalEngine`].
///
/// For code that works with both. Each method is the engine's method of the same name.
///
/// ```
/// use nowait::engine::{Engine, LocalEngine, Queue, Wait};
/// use nowait::op::{Nop, Op};
/// fn run(queue: &mut impl Queue) -> nowait::Result<usize> {
///     queue.submit_batch(&mut vec![Op::from(Nop), Op::from(Nop)]);
///     queue.reap(&mut Vec::new(), Wait::For(2))
/// }
/// assert_eq!(run(&mut Engine::new()?)?, 2);
/// assert_eq!(run(&mut LocalEngine::new()?)?, 2);
/// # Ok::<(), nowait::Error>(())
/// ```
#[expect(missing_docs, reason = "the engines have the documentation")]
#[expect(
    clippy::missing_errors_doc,
    reason = "the engines have the documentation"
)]
pub trait Queue {
    fn submit(&mut self, op: Op) -> Submit;
    fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize;
    fn submit_chain(&mut self, chain: Chain) -> Result<Vec<Ticket>, RefusedChain>;
    fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> Result<usize>;
    fn reap_at_most(&mut self, most: usize, out: &mut Vec<Completion>, wait: Wait)
    -> Result<usize>;
    fn cancel(&mut self, ticket: Ticket);
    fn event_fd(&mut self) -> Result<BorrowedFd<'_>>;
    fn file_set(&mut self, capacity: usize) -> Result<FileSet>;
    fn in_flight(&self) -> usize;
    fn depth(&self) -> usize;
    fn backend(&self) -> Backend;
    fn why(&self) -> &str;
    fn features(&self) -> Features;
    fn stats(&self) -> Stats;
    fn costs(&self) -> Costs;
}

macro_rules! queue {
    ($engine:ty) => {
        impl Queue for $engine {
            fn submit(&mut self, op: Op) -> Submit {
                <$engine>::submit(self, op)
            }

            fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
                <$engine>::submit_batch(self, ops)
            }

            fn submit_chain(&mut self, chain: Chain) -> Result<Vec<Ticket>, RefusedChain> {
                <$engine>::submit_chain(self, chain)
            }

            fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> Result<usize> {
                <$engine>::reap(self, out, wait)
            }

            fn reap_at_most(
                &mut self,
                most: usize,
                out: &mut Vec<Completion>,
                wait: Wait,
            ) -> Result<usize> {
                <$engine>::reap_at_most(self, most, out, wait)
            }

            fn cancel(&mut self, ticket: Ticket) {
                <$engine>::cancel(self, ticket);
            }

            fn event_fd(&mut self) -> Result<BorrowedFd<'_>> {
                <$engine>::event_fd(self)
            }

            fn file_set(&mut self, capacity: usize) -> Result<FileSet> {
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

            fn features(&self) -> Features {
                <$engine>::features(self)
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

queue!(Engine);
queue!(LocalEngine);
