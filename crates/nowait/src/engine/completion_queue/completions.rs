//! A completion queue of nops, without an engine.

use super::{Class, CompletionQueue, Waiting};
use crate::engine::Wait;
use crate::engine::completion::Completion;
use crate::op::{Nop, Op};
use crate::policy::provenance::Provenance;

/// A completion queue. See `engine::completion_queue`.
#[derive(Debug, Default)]
pub struct Completions(CompletionQueue);

impl Completions {
    /// Registers `n` more operations to be reaped.
    pub fn expect(&self, n: usize) {
        self.0.expect(n);
    }

    /// Adds the completion of a nop. Returns false if the queue refuses it.
    pub fn push(&self) -> bool {
        let completion = Completion::immediate(Op::from(Nop), Ok(0), Provenance::default());
        self.0.push(Class::File, completion).is_none()
    }

    /// Moves completions to `out`, for as long as `wait` requires, and returns how many.
    pub fn reap(&self, out: &mut Vec<Completion>, wait: Wait) -> usize {
        self.0.reap(out, usize::MAX, &Waiting::begin(wait), |_| ())
    }
}
