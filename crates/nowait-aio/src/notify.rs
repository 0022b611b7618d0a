//! Notifies the program that a request, or all requests of a list, are done.
//!
//! A request is completed by its caller, if it is done within the call, or by the driver. That
//! thread also sends the signal, if there is one. The notifier is a thread that starts the threads
//! for SIGEV_THREAD, and retries signals that could not be queued.
//!
//! ```text
//!   driver, notifier:  block: done; slot: sending ─ request's notification ─ list's, if last ─ slot: finished
//!   caller:            block: done ─ request's notification ─ list's, if last
//! ```
//! A signal handler that runs before the slot says "finished" waits for that in aio_error(3). The
//! driver and the notifier have all signals blocked, so the handler never interrupts the thread
//! that it waits for. A handler may interrupt the caller, so the caller uses no slot.
//!
//! The library does not access a control block after its notification: the program may have freed
//! it.

mod list;
mod notification;
mod notifier;
mod thread;

pub use list::RequestList;
pub use notification::Notification;
pub use notifier::Notifier;
