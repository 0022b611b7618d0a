//! A blocking call on a worker, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::run::OpFuture;
use super::shared::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::op::{Call, Op};
use crate::sys::sync::{Mutex, lock};

impl Engine {
    /// Makes a blocking call on a worker, and returns a future of its result.
    ///
    /// The call is submitted immediately. If the engine is full, the future submits it as soon as
    /// there is room. If the future is dropped, a call that was submitted is still made.
    ///
    /// # Errors
    /// The future returns [`Forked`](ErrorKind::Forked) in a forked child of the engine's process,
    /// and EIO if the call panicked.
    ///
    /// ```
    /// let engine = nowait::Engine::new()?;
    /// let len = engine.spawn_blocking(|| std::fs::metadata("Cargo.toml").map(|m| m.len()));
    /// assert!(pollster::block_on(len)?? > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> SpawnBlocking<T> {
        self.spawn_blocking_on(None, call)
    }

    /// As [`spawn_blocking`](Engine::spawn_blocking), with a call that counts against the share of
    /// the workers that the file may use.
    pub(crate) fn spawn_blocking_on<T: Send + 'static>(
        &self,
        file: Option<&Handle>,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> SpawnBlocking<T> {
        let result = Arc::new(Mutex::new(None));
        let to = result.clone();
        let mut op = Call::new(move || {
            let made = call();
            *lock(&to) = Some(made);
            Ok(0)
        });
        if let Some(file) = file {
            op = op.on(file);
        }
        let mut operation = OpFuture::new(Op::from(op));
        operation.submit_if_room(self);
        SpawnBlocking {
            engine: self.clone(),
            operation,
            result,
        }
    }
}

/// The future of [`Engine::spawn_blocking`].
///
/// If it is polled after completion, it stays pending.
#[must_use = "without a poll, a call that found the engine full is not made"]
pub struct SpawnBlocking<T> {
    engine: Engine,
    operation: OpFuture,
    result: Arc<Mutex<Option<T>>>,
}

impl<T> Future for SpawnBlocking<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        let Poll::Ready(done) = this.operation.poll(&this.engine, cx) else {
            // In a forked child the future would never be woken.
            let is_here = this.engine.check_process("call");
            return is_here.map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending);
        };
        let result = lock(&this.result).take();
        Poll::Ready(done.result.and_then(|_| {
            // A call that has succeeded has a result.
            result.ok_or(Error::new("call", ErrorKind::Cancelled))
        }))
    }
}

impl<T> fmt::Debug for SpawnBlocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnBlocking").finish_non_exhaustive()
    }
}
