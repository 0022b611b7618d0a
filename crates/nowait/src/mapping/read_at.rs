//! The future of a read of a mapped file.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::mapped::Mapped;
use crate::buffer::IoBufMut;
use crate::engine::completion::BufResult;
use crate::file::{self, File};
use crate::policy::provenance::{Origin, Provenance};
use crate::read::start::fill;

/// The future of [`Mapping::read_at`](crate::Mapping::read_at).
///
/// If it is polled after completion, it stays pending.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct ReadAt<'a, B> {
    file: &'a File,
    mapped: Option<&'a Mapped>,
    state: State<'a, B>,
    offset: u64,
}

#[derive(Debug)]
enum State<'a, B> {
    New(B),
    Reading(file::ReadAt<'a, B>),
    Done,
}

impl<B> Unpin for ReadAt<'_, B> {}

impl<'a, B: IoBufMut> ReadAt<'a, B> {
    pub(super) fn new(
        file: &'a File,
        mapped: Option<&'a Mapped>,
        buffer: B,
        offset: u64,
    ) -> ReadAt<'a, B> {
        ReadAt {
            file,
            mapped,
            state: State::New(buffer),
            offset,
        }
    }
}

impl<B: IoBufMut> Future for ReadAt<'_, B> {
    type Output = BufResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufResult<B>> {
        let this = self.get_mut();
        this.state = match std::mem::replace(&mut this.state, State::Done) {
            State::New(mut buffer) => {
                let copied = this
                    .mapped
                    .and_then(|mapped| fill(&mut buffer, |space| mapped.copy(space, this.offset)));
                if let Some(n) = copied {
                    let provenance = Provenance::of(n, Origin::Cache);
                    return Poll::Ready(BufResult::new(Ok(n), buffer, provenance));
                }
                State::Reading(this.file.read_at(buffer, this.offset))
            }
            reading => reading,
        };
        let State::Reading(reading) = &mut this.state else {
            return Poll::Pending;
        };
        Pin::new(reading).poll(cx)
    }
}
