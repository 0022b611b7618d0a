//! The future of fsync(2) and fdatasync(2).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::File;
use super::trip::Trip;
use crate::error::Result;
use crate::handle::Handle;
use crate::op::{Fsync, Op};

/// The future of [`File::sync_all`] and [`File::sync_data`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Sync<'a> {
    file: &'a File,
    data_only: bool,
    trip: Option<Trip>,
}

impl<'a> Sync<'a> {
    pub(super) fn new(file: &'a File, data_only: bool) -> Sync<'a> {
        Sync {
            file,
            data_only,
            trip: None,
        }
    }
}

impl Future for Sync<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let File { handle, engine } = this.file;
        let (name, op) = if this.data_only {
            ("sync_data", Fsync::data as fn(&Handle) -> Fsync)
        } else {
            ("sync_all", Fsync::new as fn(&Handle) -> Fsync)
        };
        if this.trip.is_none() {
            engine.check_process(name)?;
        }
        let trip = this
            .trip
            .get_or_insert_with(|| Trip::new(Op::from(op(handle)), None));
        trip.poll(engine, cx).map(|completion| {
            completion
                .result
                .map(|_| ())
                .map_err(|error| error.named(name).on(handle.shared_path()))
        })
    }
}
