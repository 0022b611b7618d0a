//! The result of a call made by a worker, passed to the future that waits for it.

use std::io;
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// The receiver of a call's result.
#[derive(Debug)]
pub(super) struct Answer<T>(Arc<Mutex<Option<T>>>);

/// The sender of a call's result.
#[derive(Debug)]
pub(super) struct Tell<T>(Arc<Mutex<Option<T>>>);

impl<T> Answer<T> {
    pub(super) fn new() -> (Tell<T>, Answer<T>) {
        let answer = Arc::new(Mutex::new(None));
        (Tell(answer.clone()), Answer(answer))
    }

    /// The result of a call that has ended.
    pub(super) fn take(&self) -> io::Result<T> {
        lock(&self.0)
            .take()
            .ok_or_else(|| io::Error::other("the call ended without a result"))
    }
}

impl<T> Tell<T> {
    pub(super) fn tell(self, result: T) {
        *lock(&self.0) = Some(result);
    }
}
