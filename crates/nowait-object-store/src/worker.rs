//! Blocking calls, made by a worker of an engine.

use std::sync::{Arc, Mutex, PoisonError};

use nowait::Engine;
use nowait::op::Call;

use crate::error::Error;

/// Makes a blocking call in a worker. If the future is dropped after its first poll, the call is still made.
pub(crate) async fn on_worker<T: Send + 'static>(
    engine: &Engine,
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let answer = Arc::new(Mutex::new(None));
    let tell = answer.clone();
    let call = Call::new(move || {
        let result = call();
        *tell.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    engine.run(call).await.result?;
    let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
    answer.take().unwrap_or(Err(Error::Aborted))
}
