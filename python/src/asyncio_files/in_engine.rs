//! Requests that the engine does as a whole: writes, syncs, and calls that take a path.

use std::future::Future;
use std::marker::PhantomData;

use nowait::Engine;
use pyo3::prelude::*;

use super::operation::{Finish, InEngine, Request};
use crate::error::call_error;

/// A request for the engine. `call` makes its future, and `finish` converts the future's result in
/// the loop's thread.
pub struct EngineRequest<C, F, T> {
    call: C,
    finish: F,
    result: PhantomData<fn() -> T>,
}

impl<C, F, T> EngineRequest<C, F, T> {
    pub fn new<Fut>(call: C, finish: F) -> Self
    where
        C: FnOnce(Engine) -> Fut,
        Fut: Future<Output = T>,
        F: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>>,
    {
        EngineRequest {
            call,
            finish,
            result: PhantomData,
        }
    }
}

impl<C, Fut, F, T> Request for EngineRequest<C, F, T>
where
    C: FnOnce(Engine) -> Fut + Send,
    Fut: Future<Output = T> + Send + 'static,
    F: FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    T: Send + 'static,
{
    fn start(self: Box<Self>, py: Python<'_>) -> PyResult<InEngine> {
        let EngineRequest { call, finish, .. } = *self;
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        let future = call(engine);
        Ok(Box::pin(async move {
            let result = future.await;
            let finish: Finish = Box::new(move |py| finish(py, result));
            finish
        }))
    }
}
