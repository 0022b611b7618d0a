//! Requests that the engine does as a whole: writes, syncs, and calls that take a path.

use std::future::Future;
use std::marker::PhantomData;

use nowait::Engine;
use pyo3::prelude::*;

use super::operation::{Arguments, Begun, Finish, References, Request};
use crate::error::call_error;

/// A request for the engine. `call` makes its future, and `finish` converts the future's result in
/// the loop's thread.
pub struct EngineRequest<C, F, T> {
    kept: Arguments,
    call: C,
    finish: F,
    result: PhantomData<fn() -> T>,
}

impl<C, F, T> EngineRequest<C, F, T> {
    pub fn new<Fut>(kept: Arguments, call: C, finish: F) -> Self
    where
        C: FnOnce(Engine) -> Fut,
        Fut: Future<Output = T>,
        F: FnOnce(Python<'_>, Arguments, T) -> PyResult<Py<PyAny>>,
    {
        EngineRequest {
            kept,
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
    F: FnOnce(Python<'_>, Arguments, T) -> PyResult<Py<PyAny>> + Send + 'static,
    T: Send + 'static,
{
    fn references<'py>(&self, py: Python<'py>) -> References<'_, 'py> {
        self.kept.references(py)
    }

    fn begin(self: Box<Self>, py: Python<'_>) -> PyResult<Begun> {
        let EngineRequest {
            kept, call, finish, ..
        } = *self;
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        let future = call(engine);
        let future = Box::pin(async move {
            let result = future.await;
            let finish: Finish = Box::new(move |py, kept| finish(py, kept, result));
            finish
        });
        Ok(Begun::InEngine(future, kept))
    }
}
