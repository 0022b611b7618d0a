//! The destination of a completion.

use std::sync::Arc;

use super::class::Class;
use super::completion_queue::CompletionQueue;
use super::core::Core;
use super::op_state::OpState;
use crate::completion::Completion;
use crate::foreign;
use crate::handle::Handle;

/// Where a completion goes, and the class whose place it gives back.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To the thread that drives the engine itself.
    Local,
    /// To a future.
    OpState(Arc<OpState>, Class),
    /// To a reaper.
    Queue(Arc<CompletionQueue>, Class),
    /// Nowhere: a readahead.
    Ahead,
}

/// A completion that nothing waits for any more. To drop it may close a file, which can wait, and
/// runs destructors of the program: the owner leaves that to a worker.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unwanted {
    completion: Completion,
    /// The place that it takes until it is dropped.
    place: Option<Class>,
}

impl Unwanted {
    /// The file it may close.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.completion.op.kind.handle()
    }

    /// Drops it.
    pub(crate) fn discard(self, core: &Core) {
        foreign::discard(self.completion);
        if let Some(class) = self.place {
            core.places(class).give_back(1);
        }
    }
}

impl Reply {
    /// Hands the completion over. Runs on the owner or on a worker. Gives it back if nothing waits
    /// for it.
    pub(crate) fn deliver(self, core: &Core, completion: Completion) -> Option<Unwanted> {
        match self {
            Reply::Local => None,
            Reply::Ahead => {
                core.aheads.give_back(1);
                None
            }
            Reply::OpState(op_state, class) => {
                let unwanted = |completion, place| Some(Unwanted { completion, place });
                if Arc::strong_count(&op_state) == 1 {
                    return unwanted(completion, Some(class));
                }
                core.places(class).give_back(1);
                op_state.complete(completion);
                // Its future may have been dropped since.
                unwanted(Arc::into_inner(op_state)?.into_completion()?, None)
            }
            // It counts as in flight until it is reaped: unreaped completions are memory too.
            Reply::Queue(completions, class) => {
                let completion = completions.push(class, completion)?;
                Some(Unwanted {
                    completion,
                    place: Some(class),
                })
            }
        }
    }
}
