//! The destination of a completion.

use std::sync::Arc;

use super::class::Class;
use super::completion::Completion;
use super::completion_queue::CompletionQueue;
use super::core::Core;
use super::in_flight::OpState;
use crate::handle::Handle;
use crate::user_code;

/// The destination of a completion, with the class whose permit it gives back.
#[derive(Debug)]
pub(crate) enum CompletionTarget {
    /// The thread that drives the engine.
    Local,
    /// Nothing receives the completion of a readahead.
    Ahead,
    /// A future.
    Future(Arc<OpState>, Class),
    /// A reaper.
    Queue(Arc<CompletionQueue>, Class),
}

/// A completion that nothing waits for. A drop may close a file, and close(2) may block. A drop
/// also runs destructors of the program. The owner leaves that to a worker.
#[derive(Debug)]
#[must_use]
pub(crate) struct DroppedCompletion {
    completion: Completion,
    /// The class of the permit that is given back when it is dropped.
    permit: Option<Class>,
}

impl DroppedCompletion {
    /// The file that it may close.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.completion.op.body.kind.handle()
    }

    /// The class of its operation.
    pub(crate) fn class(&self) -> Class {
        Class::of(&self.completion.op.body.kind)
    }

    /// Drops the completion, and gives its permit back.
    pub(crate) fn discard(self, core: &Core) {
        user_code::discard(self.completion);
        if let Some(class) = self.permit {
            core.permits(class).release(1);
        }
    }
}

impl CompletionTarget {
    /// Delivers the completion, on the owner or on a worker. Returns it if nothing waits for it.
    pub(crate) fn deliver(self, core: &Core, completion: Completion) -> Option<DroppedCompletion> {
        let dropped = |completion, permit| Some(DroppedCompletion { completion, permit });
        match self {
            CompletionTarget::Local => None,
            CompletionTarget::Ahead => {
                core.aheads.release(1);
                None
            }
            CompletionTarget::Future(op_state, class) => {
                if Arc::strong_count(&op_state) == 1 {
                    return dropped(completion, Some(class));
                }
                core.permits(class).release(1);
                op_state.complete(completion);
                // The future may have been dropped since.
                dropped(Arc::into_inner(op_state)?.take()?, None)
            }
            // The operation is in flight until it is reaped, because unreaped completions use
            // memory too.
            CompletionTarget::Queue(completions, class) => {
                dropped(completions.push(class, completion)?, Some(class))
            }
        }
    }
}
