//! Blocking calls, made by a worker of an engine.

use std::io;

use super::error::as_io;
use crate::engine::Engine;
use crate::handle::Handle;

/// Makes a blocking call in a worker of an engine, on a file if one is given.
pub(super) async fn on_worker<T: Send + 'static>(
    engine: &Engine,
    file: Option<&Handle>,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    engine.check_process("call")?;
    let called = engine.spawn_blocking_on(file, call);
    called.await.map_err(as_io)?
}
