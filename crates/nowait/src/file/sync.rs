//! The future of fsync(2) and fdatasync(2).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::engine::{Engine, OpFuture};
use crate::error::Result;
use crate::handle::Handle;
use crate::op::Op;

/// The future of [`File::sync_all`](crate::File::sync_all) and
/// [`File::sync_data`](crate::File::sync_data).
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct SyncFile<'a> {
    handle: &'a Handle,
    engine: &'a Engine,
    name: &'static str,
    operation: OpFuture,
}

impl<'a> SyncFile<'a> {
    pub(super) fn new(
        handle: &'a Handle,
        engine: &'a Engine,
        name: &'static str,
        op: impl Into<Op>,
    ) -> SyncFile<'a> {
        SyncFile {
            handle,
            engine,
            name,
            operation: OpFuture::new(op.into()),
        }
    }
}

impl Future for SyncFile<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let (handle, engine) = (this.handle, this.engine);
        // In a forked child the future would never be woken.
        engine.check_process(this.name)?;
        this.operation.poll(engine, cx).map(|completion| {
            completion
                .result
                .map(|_| ())
                .map_err(|error| error.named(this.name).on(handle.shared_path()))
        })
    }
}
