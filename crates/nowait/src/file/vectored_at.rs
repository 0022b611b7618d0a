//! Positional reads and writes of several buffers, in one call.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use super::keep_cache::Evicts;
use super::{File, ReadAt};
use crate::buffer::{IoBuf, IoBufMut, Source, downcast_source};
use crate::engine::OpFuture;
use crate::engine::completion::BufResult;
use crate::error::{Error, ErrorKind};
use crate::kernel::flags::RwFlags;
use crate::op::{Kind, Op, Writev};
use crate::policy::provenance::Provenance;

impl File {
    /// Fills the buffers in order, from `offset` on. The count is less than their total capacity
    /// only at the end of the file.
    ///
    /// Each buffer is a separate read, and all reads start at the first poll, which completes those
    /// that are cached. preadv(2) makes one call for all buffers; here the file may change between
    /// the reads.
    ///
    /// ```
    /// let file = nowait::File::blocking_open("Cargo.toml")?;
    /// let buffers = vec![vec![0; 1], vec![0; 1]];
    /// let read = pollster::block_on(file.read_vectored_at(buffers, 0));
    /// assert_eq!(read.into_result()?, (2, vec![b"[".to_vec(), b"p".to_vec()]));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub async fn read_vectored_at<B: IoBufMut>(
        &self,
        mut buffers: Vec<B>,
        offset: u64,
    ) -> BufResult<Vec<B>> {
        let mut at = Some(offset);
        let rooms: Vec<(u64, usize)> = buffers
            .iter_mut()
            .map_while(|buffer| {
                let (from, room) = (at?, buffer.as_uninit().len());
                at = from.checked_add(room as u64);
                Some((from, room))
            })
            .collect();
        if rooms.len() < buffers.len() {
            let error = Error::new("read_vectored_at", ErrorKind::InvalidInput);
            return BufResult::failed(error.on(self.handle.shared_path()), buffers);
        }
        let mut reads: Vec<(ReadAt<'_, B>, Option<BufResult<B>>)> = buffers
            .into_iter()
            .zip(&rooms)
            .map(|(buffer, (from, _))| (self.read_at(buffer, *from), None))
            .collect();
        std::future::poll_fn(|cx| {
            let mut all = true;
            for (read, done) in reads.iter_mut().filter(|(_, done)| done.is_none()) {
                match Pin::new(read).poll(cx) {
                    Poll::Ready(completion) => *done = Some(completion),
                    Poll::Pending => all = false,
                }
            }
            if all { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let bufs = Vec::with_capacity(reads.len());
        let mut whole = BufResult::new(Ok(0), bufs, Provenance::default());
        let mut ended = false;
        for (done, (_, room)) in reads.into_iter().filter_map(|(_, done)| done).zip(rooms) {
            whole.buf.push(done.buf);
            whole.result = match (whole.result, done.result) {
                (Ok(sum), _) if ended => Ok(sum),
                (Ok(sum), Ok(n)) => {
                    ended = n < room;
                    whole.provenance.cached += done.provenance.cached;
                    whole.provenance.device += done.provenance.device;
                    whole.provenance.unknown += done.provenance.unknown;
                    whole.provenance.served_by = done.provenance.served_by;
                    Ok(sum + n)
                }
                (Ok(_), Err(error)) => Err(error.named("read_vectored_at")),
                (error, _) => error,
            };
        }
        whole
    }

    /// Writes the buffers in order, at `offset`: pwritev(2). The count may be less than their total
    /// length.
    ///
    /// One call of the kernel takes at most 1024 buffers (`IOV_MAX`). More are written by several
    /// calls, and a reader or another writer may come between them. After a call that fails the
    /// count is that of the calls before it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("file");
    /// let file = nowait::OpenOptions::new().write(true).create(true).blocking_open(&path)?;
    /// let written = pollster::block_on(file.write_vectored_at(vec!["hel", "lo"], 0));
    /// assert_eq!(written.result?, 5);
    /// assert_eq!(std::fs::read(&path)?, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn write_vectored_at<B: IoBuf>(
        &self,
        buffers: Vec<B>,
        offset: u64,
    ) -> BufResult<Vec<B>> {
        let failed = |error: Error| {
            error
                .named("write_vectored_at")
                .on(self.handle.shared_path())
        };
        if let Err(error) = self.engine.check_process("write_vectored_at") {
            return BufResult::failed(failed(error), buffers);
        }
        let len = buffers.iter().map(|buffer| buffer.bytes().len()).sum();
        let keep = self.keep_cache.as_ref();
        let flags = RwFlags::empty();
        let mut access = keep.and_then(|it| it.write(offset, len, flags, Evicts::Worker));
        let sources = buffers.into_iter().map(|b| Box::new(b) as Source).collect();
        let op = Writev::new(&self.handle, sources, offset);
        let mut operation = OpFuture::new(Op::from(op));
        let done = std::future::poll_fn(|cx| {
            let polled = operation.poll(&self.engine, cx);
            if let Some(access) = &mut access {
                access.operation = operation.in_progress();
            }
            polled
        });
        let done = done.await;
        let sources = match done.op.into_kind() {
            Kind::Writev(op) => op.into_sources(),
            _ => Vec::new(),
        };
        let own = sources.into_iter().filter_map(|s| downcast_source(s).ok());
        BufResult::new(done.result.map_err(failed), own.collect(), done.provenance)
    }
}
