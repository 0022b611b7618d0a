//! tokio's `ReadBuf`: the part of a read into it that runs in the calling thread, and one in the free memory of a
//! vector.
#![allow(unsafe_code)]

use std::io;
use std::task::{Poll, ready};

use crate::read::start::Start;
use crate::sys::uninit_slice::UninitSlice;

/// Starts a read into the free part of a `ReadBuf`, at most `most` bytes of it, and marks the bytes
/// it filled. That includes the first part of a read that the engine completes.
pub(crate) fn start_into_read_buf(
    dst: &mut ::tokio::io::ReadBuf<'_>,
    most: usize,
    start: impl FnOnce(&mut UninitSlice<'_>) -> Start,
) -> Start {
    // SAFETY: neither this function nor a read makes initialised bytes uninitialised.
    let free = unsafe { dst.unfilled_mut() };
    let started = start(&mut UninitSlice::Uninit(free).first(most));
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

/// Polls a read into the free memory of a vector, and appends the bytes. Returns their number.
pub(crate) fn poll_into_vec(
    bytes: &mut Vec<u8>,
    poll: impl FnOnce(&mut ::tokio::io::ReadBuf<'_>) -> Poll<io::Result<()>>,
) -> Poll<io::Result<usize>> {
    let len = bytes.len();
    let mut dst = ::tokio::io::ReadBuf::uninit(bytes.spare_capacity_mut());
    let read = poll(&mut dst);
    let n = dst.filled().len();
    // SAFETY: a `ReadBuf` of this memory has so many filled bytes. No caller puts another one in its place.
    unsafe { bytes.set_len(len + n) };
    ready!(read)?;
    Poll::Ready(Ok(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Handle;
    use crate::op::Route;
    use crate::policy::provenance::Provenance;
    use crate::read::blocking::fill_space;
    use crate::read::start::Rest;
    use crate::sys::Errno;
    use crate::test_file::TestFile;

    #[test]
    fn a_read_buf_is_told_of_what_was_read_before_the_rest() {
        let test = TestFile::new();
        let handle = Handle::new(std::fs::File::open(&test.path).unwrap()).unwrap();
        let bytes = &test.bytes;
        let mut room = [std::mem::MaybeUninit::uninit(); 40];
        let mut dst = ::tokio::io::ReadBuf::uninit(&mut room);
        dst.put_slice(b"before");
        let mut read = |most, part: usize, rest: bool| {
            start_into_read_buf(&mut dst, most, |space| {
                let mut space = space.skip(0).first(part);
                let n = fill_space(&handle, &mut space, 0).unwrap();
                if rest {
                    Start::Rest(Rest::of(n, true, Route::Ring))
                } else {
                    Start::Done(n, Provenance::default())
                }
            })
        };
        assert!(matches!(read(30, 10, true), Start::Rest(_)));
        assert!(matches!(read(5, 10, false), Start::Done(5, _)));
        let failed = start_into_read_buf(&mut dst, 1, |_| Start::Failed(Errno::IO));
        assert!(matches!(failed, Start::Failed(_)));
        let expected = [b"before", &bytes[..10], &bytes[..5]].concat();
        assert_eq!((dst.filled(), dst.initialized().len()), (&expected[..], 21));
    }
}
