//! Reads and writes of one file that leave the page cache as it was: the option
//! [`keep_cache`](crate::OpenOptions::keep_cache).

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::OFlags;

use crate::engine::Engine;
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::{Call, Op};
use crate::sys::descriptor_table::hold;
use crate::sys::stat;
use nowait_residency::Reason;
use nowait_residency::windows::{FileWindows, InProgress, Span, Use};

/// An open file whose reads and writes are surveyed. The last clone of the file evicts.
#[derive(Debug)]
pub(super) struct KeepCache {
    handle: Handle,
    engine: Engine,
    /// `None` if a question about the file may wait for a server. Nothing is evicted then.
    windows: Option<Arc<FileWindows>>,
    appends: bool,
    /// The greatest distance in bytes from a read to the end of a readahead.
    readahead: u64,
    /// True if the file was used by futures, whose thread must not wait.
    by_futures: AtomicBool,
}

/// The thread that evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evicts {
    Caller,
    Worker,
}

/// A read or write in progress. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Access<'a> {
    of: &'a KeepCache,
    windows: &'a Arc<FileWindows>,
    span: Span,
    evicts: Evicts,
    /// The operation of the engine that may make pages resident.
    pub(super) operation: Option<InProgress>,
}

impl KeepCache {
    /// `None` if the file has no pages that can be evicted.
    pub(super) fn new(handle: &Handle, engine: &Engine) -> Option<Arc<KeepCache>> {
        let in_cache =
            handle.is_regular() && !handle.is_direct() && !handle.filesystem().is_memory();
        if !in_cache {
            return None;
        }
        let flags = stat::flags(handle.as_fd()).ok()?;
        let windows = match handle.is_served() {
            true => None,
            false => Some(FileWindows::open(handle).ok()?),
        };
        Some(Arc::new(KeepCache {
            windows,
            handle: handle.clone(),
            engine: engine.clone(),
            appends: flags.contains(OFlags::APPEND),
            readahead: handle.filesystem().max_readahead(),
            by_futures: AtomicBool::new(false),
        }))
    }

    /// Returns the reason if nothing is evicted.
    pub(super) fn check(&self) -> Result<(), Reason> {
        match self.windows {
            Some(_) => self.handle.probe().source().map(drop),
            None => Err(Reason::Served),
        }
    }

    /// Begins a read.
    pub(super) fn read(&self, offset: u64, len: usize, evicts: Evicts) -> Option<Access<'_>> {
        let readahead = self.readahead;
        self.begin(offset, len, evicts, Use::Read { readahead })
    }

    /// Begins a write.
    pub(super) fn write(
        &self,
        offset: u64,
        len: usize,
        flags: RwFlags,
        evicts: Evicts,
    ) -> Option<Access<'_>> {
        self.windows.as_ref()?;
        let appends =
            flags.contains(RwFlags::APPEND) || self.appends && !flags.contains(RwFlags::NOAPPEND);
        let at = match appends {
            true => stat::size(self.handle.as_fd()).ok()?,
            false => offset,
        };
        self.begin(at, len, evicts, Use::Write)
    }

    fn begin(&self, offset: u64, len: usize, evicts: Evicts, how: Use) -> Option<Access<'_>> {
        let windows = self.windows.as_ref()?;
        let range = offset..offset.saturating_add(len as u64).min(i64::MAX as u64);
        let span = windows.begin(&self.handle.probe(), range, how)?;
        if evicts == Evicts::Worker {
            self.by_futures.store(true, Relaxed);
        }
        Some(Access {
            of: self,
            windows,
            span,
            evicts,
            operation: None,
        })
    }

    /// Has a worker do this. It is dropped if there is no worker for it. `work` must not hold a
    /// descriptor for writing: the program may execute the file after it has closed it.
    fn on_worker(&self, work: impl FnOnce() + Send + 'static) {
        self.engine.advise(Op::from(Call::new(move || {
            work();
            Ok(0)
        })));
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        let Access { of, windows, .. } = *self;
        let handle = &of.handle;
        if let Some(operation) = self.operation.take() {
            return windows.abandon(&self.span, operation);
        }
        let Some(eviction) = windows.end(&self.span) else {
            return;
        };
        match self.evicts {
            Evicts::Caller => {
                eviction.run(&handle.probe());
            }
            Evicts::Worker => {
                let Ok(held) = hold(handle.as_fd()) else {
                    return;
                };
                let eviction = Arc::new(eviction);
                of.on_worker(move || {
                    eviction.run_elsewhere(&held);
                });
            }
        }
    }
}

impl Drop for KeepCache {
    /// Pages that can be evicted at once are evicted here, so that the cache is as it was when the
    /// file is closed. A worker evicts those that the kernel still reads or writes, and all pages of
    /// a file of futures, if they are many.
    fn drop(&mut self) {
        let Some(eviction) = self.windows.as_ref().and_then(|windows| windows.close()) else {
            return;
        };
        let waits = self.by_futures.load(Relaxed) && !eviction.is_small();
        let retry = match waits {
            true => eviction.defer(&self.handle.probe()),
            false => eviction.run_or_defer(&self.handle.probe()),
        };
        if let Some(retry) = retry {
            self.on_worker(|| retry.run());
        }
    }
}
