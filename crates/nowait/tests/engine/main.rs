//! The engines and their operations: the contract with the caller, cancelling, limits, hostile callers.

#[path = "../common"]
mod common {
    pub mod accounting;
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod completions;
    pub mod drive;
    pub mod errnos;
    pub mod files;
    pub mod handles;
    pub mod hooked;
    pub mod kinds;
    pub mod limit;
    #[cfg(feature = "tokio")]
    pub mod process_engine;
    pub mod results;
    pub mod rig;
    pub mod sandbox;
    pub mod shared_engine;
    pub mod terminal;
    pub mod truncation;
    pub mod wait;
}

mod bad_input;
mod cancel;
#[cfg(feature = "tokio")]
mod close;
mod close_errors;
mod contract;
mod deadline;
mod dropped_future;
mod durable;
mod event_fd;
mod fast_next_to_slow;
mod hostile;
mod many_threads;
mod open_fifo;
mod open_options;
mod queue_full;
mod reused_device;
mod run;
mod served;
mod server;
#[cfg(feature = "tokio")]
mod unbounded;
