//! The part of a read into tokio's `ReadBuf` that runs in the calling thread.
#![allow(unsafe_code)]

use crate::read::Start;
use crate::space::Space;

/// Starts a read into the free part of a `ReadBuf`, at most `most` bytes of it, and marks the bytes it
/// filled. That includes the first part of a read that the engine completes.
pub(crate) fn start_into_read_buf(
    dst: &mut ::tokio::io::ReadBuf<'_>,
    most: usize,
    start: impl FnOnce(&mut Space<'_>) -> Start,
) -> Start {
    // SAFETY: neither this function nor a read makes initialised bytes uninitialised.
    let free = unsafe { dst.unfilled_mut() };
    let started = start(&mut Space::Uninit(free).first(most));
    let filled = match &started {
        Start::Done(n, _) => *n,
        Start::Rest(rest) => rest.done,
        Start::Failed(_) => 0,
    };
    // SAFETY: the kernel wrote this number of bytes through that space.
    unsafe { dst.assume_init(filled) };
    dst.advance(filled);
    started
}
