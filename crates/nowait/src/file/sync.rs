//! The future of fsync(2), fdatasync(2) and sync_file_range(2).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::File;
use super::trip::Trip;
use crate::error::Result;
use crate::op::Op;

/// The future of [`File::sync_all`], [`File::sync_data`] and [`File::sync_range`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Sync<'a> {
    file: &'a File,
    name: &'static str,
    trip: Trip,
}

impl<'a> Sync<'a> {
    pub(super) fn new(file: &'a File, name: &'static str, op: impl Into<Op>) -> Sync<'a> {
        Sync {
            file,
            name,
            trip: Trip::new(op.into(), None),
        }
    }
}

impl Future for Sync<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let File { handle, engine } = this.file;
        // In a forked child it would never be told.
        engine.check_process(this.name)?;
        this.trip.poll(engine, cx).map(|completion| {
            completion
                .result
                .map(|_| ())
                .map_err(|error| error.named(this.name).on(handle.shared_path()))
        })
    }
}
