//! The destination of a completion.

use std::sync::Arc;

use super::class::Class;
use super::completion::Completion;
use super::completion_queue::CompletionQueue;
use super::core::Core;
use super::in_flight::OpState;
use crate::handle::Handle;
use crate::user_code;

/// The destination of a completion, and the class whose permit it gives back.
#[derive(Debug)]
pub(crate) struct CompletionTarget {
    to: Destination,
    class: Class,
}

/// The destination of a completion.
#[derive(Debug)]
enum Destination {
    /// The thread that drives the engine.
    Local,
    /// A future.
    Future(Arc<OpState>),
    /// A reaper.
    Queue(Arc<CompletionQueue>),
    /// Nothing receives the completion of a readahead.
    Ahead,
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

    /// Drops the completion, and gives its permit back.
    pub(crate) fn discard(self, core: &Core) {
        user_code::discard(self.completion);
        if let Some(class) = self.permit {
            core.permits(class).release(1);
        }
    }
}

impl CompletionTarget {
    /// The thread that drives the engine.
    pub(crate) const LOCAL: CompletionTarget = CompletionTarget {
        to: Destination::Local,
        class: Class::File,
    };

    /// None: the operation is a readahead.
    pub(crate) const AHEAD: CompletionTarget = CompletionTarget {
        to: Destination::Ahead,
        class: Class::File,
    };

    /// A future.
    pub(crate) fn future(op_state: Arc<OpState>, class: Class) -> CompletionTarget {
        let to = Destination::Future(op_state);
        CompletionTarget { to, class }
    }

    /// A reaper.
    pub(crate) fn queue(completions: Arc<CompletionQueue>, class: Class) -> CompletionTarget {
        let to = Destination::Queue(completions);
        CompletionTarget { to, class }
    }

    /// Returns true if a future waits for the completion.
    pub(crate) fn is_future(&self) -> bool {
        matches!(self.to, Destination::Future(_))
    }

    /// Delivers the completion, on the owner or on a worker. Returns it if nothing waits for it.
    pub(crate) fn deliver(self, core: &Core, completion: Completion) -> Option<DroppedCompletion> {
        let CompletionTarget { to, class } = self;
        match to {
            Destination::Local => None,
            Destination::Ahead => {
                core.aheads.release(1);
                None
            }
            Destination::Future(op_state) => {
                let dropped = |completion, permit| Some(DroppedCompletion { completion, permit });
                if Arc::strong_count(&op_state) == 1 {
                    return dropped(completion, Some(class));
                }
                core.permits(class).release(1);
                op_state.complete(completion);
                // The future may have been dropped since.
                dropped(Arc::into_inner(op_state)?.into_completion()?, None)
            }
            // The operation is in flight until it is reaped, because unreaped completions use
            // memory too.
            Destination::Queue(completions) => {
                let completion = completions.push(class, completion)?;
                Some(DroppedCompletion {
                    completion,
                    permit: Some(class),
                })
            }
        }
    }
}
