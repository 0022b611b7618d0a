//! Reads to the end of a file, in place of those that tokio makes of any reader.
//!
//! ```text
//!  the size ─► memory for the rest ─► reads ─┬─ as many bytes as the size says ─► still this size? the end
//!                                            └─ others ─► further reads, until one returns no bytes
//! ```
//! tokio's reads begin with 32 bytes, because a reader has no size. The size of a file is a hint: the file may change
//! while it is read, and procfs reports a size of 0.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::mem::{self, MaybeUninit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, ReadBuf};

use super::file::File;
use super::read_buf::poll_into_vec;

/// The least memory for a read.
const LEAST: usize = 32;
/// The memory for the first read of a file whose size tells nothing.
const FIRST: usize = 4096;

impl File {
    /// Reads from the position to the end of the file, and appends the bytes to `bytes`. Returns their number. It does
    /// the same as `read_to_end` of `AsyncReadExt` of tokio, which any reader has, with fewer
    /// reads: the memory for the rest of the file is reserved first. A small cached file is read by one read(2), and the
    /// result is ready at the first poll.
    ///
    /// If the future is dropped, the bytes that were read so far are in `bytes`, and the next read continues after
    /// them.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut file = nowait::tokio::File::open("Cargo.toml").await?;
    /// let mut bytes = b"# ".to_vec();
    /// let n = file.read_to_end(&mut bytes).await?;
    /// assert_eq!(bytes.len(), 2 + n);
    /// assert!(bytes.starts_with(b"# [package]"));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of read(2), and `OutOfMemory`. The bytes that were read before are in `bytes`.
    pub async fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let rest = self.rest().await?;
        let memory = self.memory_for(rest);
        if bytes.capacity() - bytes.len() < memory {
            // The size may be wrong. If there is no such memory, the vector grows as it is filled.
            let _ = bytes.try_reserve_exact(memory);
        }
        let capacity = bytes.capacity();
        let mut read = 0;
        loop {
            let n = match poll_fn(|cx| self.poll_append(cx, bytes, capacity)).await {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                n => n?,
            };
            let is_first = read == 0;
            read += n;
            if n == 0 || (is_first && rest == Some(Rest::Whole(n as u64)) && self.has_size(n)) {
                return Ok(read);
            }
        }
    }

    /// Reads from the position to the end of the file, and appends the text to `string`. Returns the number of bytes. As
    /// [`read_to_end`](File::read_to_end).
    ///
    /// If the future is dropped, `string` is unchanged. The bytes that were read so far are lost.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut file = nowait::tokio::File::open("Cargo.toml").await?;
    /// let mut text = String::new();
    /// file.read_to_string(&mut text).await?;
    /// assert!(text.starts_with("[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`read_to_end`](File::read_to_end), and `InvalidData` if the bytes are not UTF-8. `string` is then
    /// unchanged.
    pub async fn read_to_string(&mut self, string: &mut String) -> io::Result<usize> {
        let mut text = Appended::to(string);
        let read = self.read_to_end(&mut text.bytes).await?;
        text.keep()?;
        Ok(read)
    }

    /// The bytes between the position and the end. `None` if the file has no size, or if a call of a clone moves the
    /// position.
    async fn rest(&mut self) -> io::Result<Option<Rest>> {
        if !self.is_regular() {
            return Ok(None);
        }
        if let Some(size) = self.take_opened_size() {
            return Ok(Some(Rest::Whole(size)));
        }
        if self.is_busy() {
            // A read of no bytes waits for the call in progress: a write may change the size.
            poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut ReadBuf::new(&mut []))).await?;
        }
        let Some(size) = self.size().await else {
            return Ok(None);
        };
        Ok(self.position().map(|position| match position {
            (0, 0) => Rest::Whole(size),
            (position, unread) => Rest::Part(size.saturating_sub(position) + unread as u64),
        }))
    }

    fn memory_for(&self, rest: Option<Rest>) -> usize {
        match rest {
            Some(Rest::Whole(0) | Rest::Part(0)) if !self.is_in_kernel() => LEAST,
            None | Some(Rest::Whole(0) | Rest::Part(0)) => FIRST,
            Some(Rest::Whole(n) | Rest::Part(n)) => usize::try_from(n).unwrap_or(usize::MAX),
        }
    }

    /// One read to the end of a vector. A vector that still has its first `capacity` may have it for all bytes of the
    /// file: it grows only after a read of a few bytes into other memory has not returned the end.
    fn poll_append(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Vec<u8>,
        capacity: usize,
    ) -> Poll<io::Result<usize>> {
        let mut file = Pin::new(self);
        if bytes.capacity() - bytes.len() >= LEAST {
            return poll_into_vec(bytes, |dst| file.as_mut().poll_read(cx, dst));
        }
        if bytes.capacity() == capacity && capacity >= LEAST {
            let mut few = [MaybeUninit::uninit(); LEAST];
            let mut few = ReadBuf::uninit(&mut few);
            ready!(file.poll_read(cx, &mut few))?;
            bytes.extend_from_slice(few.filled());
            return Poll::Ready(Ok(few.filled().len()));
        }
        if bytes.try_reserve(LEAST).is_err() {
            return Poll::Ready(Err(ErrorKind::OutOfMemory.into()));
        }
        poll_into_vec(bytes, |dst| file.as_mut().poll_read(cx, dst))
    }
}

/// The bytes between the position and the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// The kernel's position is 0, and there are no unread bytes. A read of as many bytes has reached the end if the file
    /// has still this size. That is true wherever another holder has moved the position before: a read that returns `n`
    /// bytes leaves it at `n` or beyond.
    Whole(u64),
    Part(u64),
}

/// The bytes of a string, with those that are appended. Dropping it returns the string as it was.
struct Appended<'a> {
    string: Option<&'a mut String>,
    bytes: Vec<u8>,
    /// The length of the string.
    len: usize,
}

impl Appended<'_> {
    fn to(string: &mut String) -> Appended<'_> {
        let bytes = mem::take(string).into_bytes();
        Appended {
            len: bytes.len(),
            string: Some(string),
            bytes,
        }
    }

    /// Returns the string with what was appended, if that is UTF-8.
    fn keep(mut self) -> io::Result<()> {
        match String::from_utf8(mem::take(&mut self.bytes)) {
            Ok(text) => {
                if let Some(string) = self.string.take() {
                    *string = text;
                }
                Ok(())
            }
            Err(error) => {
                let why = error.utf8_error();
                self.bytes = error.into_bytes();
                Err(io::Error::new(ErrorKind::InvalidData, why))
            }
        }
    }
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        if let Some(string) = self.string.take() {
            self.bytes.truncate(self.len);
            *string = String::from_utf8(mem::take(&mut self.bytes)).unwrap_or_default();
        }
    }
}
