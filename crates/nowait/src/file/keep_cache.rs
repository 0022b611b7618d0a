//! Reads and writes of one file that leave the page cache as it was: the option
//! [`keep_cache`](crate::OpenOptions::keep_cache).

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::engine::Engine;
use crate::handle::Handle;
use crate::op::{Call, Op};
use crate::residency::{Kept, Span};
use crate::sys::stat;

/// An open file whose reads and writes are surveyed. The last clone of the file evicts.
#[derive(Debug)]
pub(super) struct KeepCache {
    handle: Handle,
    engine: Engine,
    kept: Arc<Kept>,
    appends: bool,
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
    span: Span,
    evicts: Evicts,
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
        Some(Arc::new(KeepCache {
            kept: Kept::open(handle).ok()?,
            handle: handle.clone(),
            engine: engine.clone(),
            appends: flags.contains(OFlags::APPEND),
        }))
    }

    /// Begins a read.
    pub(super) fn read(&self, offset: u64, len: usize, evicts: Evicts) -> Option<Access<'_>> {
        self.begin(offset, len, evicts, false)
    }

    /// Begins a write.
    pub(super) fn write(&self, offset: u64, len: usize, evicts: Evicts) -> Option<Access<'_>> {
        let at = match self.appends {
            true => stat::size(self.handle.as_fd()).ok()?,
            false => offset,
        };
        self.begin(at, len, evicts, true)
    }

    fn begin(&self, offset: u64, len: usize, evicts: Evicts, writes: bool) -> Option<Access<'_>> {
        let range = offset..offset.saturating_add(len as u64).min(i64::MAX as u64);
        let span = self.kept.begin(&self.handle.probe(), range, writes)?;
        Some(Access {
            of: self,
            span,
            evicts,
        })
    }

    fn evict(&self, work: impl FnOnce(&Handle) + Send + 'static) {
        let handle = self.handle.clone();
        let call = Call::new(move || {
            work(&handle);
            Ok(0)
        });
        self.engine.advise(Some(Op::from(call.on(&self.handle))));
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        let Some(eviction) = self.of.kept.end(self.span.clone()) else {
            return;
        };
        match self.evicts {
            Evicts::Caller => {
                eviction.run(&self.of.handle.probe());
            }
            Evicts::Worker => self.of.evict(move |handle| {
                eviction.run(&handle.probe());
            }),
        }
    }
}

impl Drop for KeepCache {
    /// Pages that can be evicted at once are evicted here, so that the cache is as it was when the
    /// file is closed. A worker evicts those that the kernel still reads or writes.
    fn drop(&mut self) {
        let Some(eviction) = self.kept.close() else {
            return;
        };
        if !eviction.run(&self.handle.probe()) {
            self.evict(move |handle| eviction.finish(&handle.probe()));
        }
    }
}
