//! Submitting operations and reaping their completions.

use std::time::{Duration, Instant};

use nowait::engine::{Submit, Wait};
use nowait::op::Op;
use nowait::{Completion, Ticket};

use super::drive::{Drive, name};
use super::wait::LONG;

/// Submits one operation and waits for its completion.
pub fn one(engine: &mut dyn Drive, op: impl Into<Op>) -> Completion {
    match engine.submit(op.into()) {
        Submit::Done(completion) => completion,
        Submit::Queued(ticket) => {
            let done = finish(engine, 1).remove(0);
            assert_eq!(done.ticket, Some(ticket), "{}", name(engine));
            done
        }
        Submit::Full(op) => panic!("{}: full at once: {op:?}", name(engine)),
    }
}

/// Submits an operation that must wait.
pub fn queued(engine: &mut dyn Drive, op: impl Into<Op>) -> Ticket {
    match engine.submit(op.into()) {
        Submit::Queued(ticket) => ticket,
        other => panic!("{}: not queued: {other:?}", name(engine)),
    }
}

/// Reaps exactly `n` completions.
pub fn finish(engine: &mut dyn Drive, n: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    let end = Instant::now() + LONG;
    while out.len() < n {
        engine
            .reap(&mut out, Wait::UpTo(Duration::from_secs(1)))
            .unwrap();
        assert!(
            Instant::now() < end,
            "{}: {} of {n} completions",
            name(engine),
            out.len()
        );
    }
    assert_eq!(out.len(), n, "{}", name(engine));
    out
}

/// The result in the form of a system call: a count, or an errno.
pub fn said(completion: &Completion) -> Result<usize, i32> {
    match &completion.result {
        Ok(n) => Ok(*n),
        Err(e) => Err(e.errno().unwrap_or_else(|| panic!("not the kernel's: {e}"))),
    }
}
