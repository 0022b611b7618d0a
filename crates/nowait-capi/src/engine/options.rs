//! The options of an engine.

use std::time::Duration;

use libc::size_t;
use nowait::Mode;
use nowait::engine::{Backend, Options, Polled};
use nowait::read::{COPY_LIMIT, NowaitPolicy};

use crate::guard::{Extensible, Outcome};

/// io_uring if the kernel and the sandbox allow it, otherwise threads.
pub const NW_BACKEND_ANY: u32 = 0;
/// An io_uring ring.
pub const NW_BACKEND_URING: u32 = 1;
/// Worker threads.
pub const NW_BACKEND_THREADS: u32 = 2;

/// The engine belongs to the thread that makes it, and needs no other thread for its ring.
pub const NW_ENGINE_LOCAL: u32 = 1;
/// The calling thread asks for the residency before it reads, and never starts the device.
pub const NW_ENGINE_STRICT: u32 = 2;
/// Each read tries the page cache first, whatever recent tries have found.
pub const NW_ENGINE_TRY_ALWAYS: u32 = 4;
/// No read tries the page cache first.
pub const NW_ENGINE_TRY_NEVER: u32 = 8;
/// The device is polled for completions (IORING_SETUP_IOPOLL). For O_DIRECT files alone.
pub const NW_ENGINE_POLLED: u32 = 16;
/// One worker thread for files has no work. It starts the others: a thread that submits starts none.
pub const NW_ENGINE_SPARE_WORKER: u32 = 32;

/// The options of an engine. `size` is set by the program to sizeof(struct nw_engine_options). A
/// field that is 0 has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nw_engine_options {
    /// sizeof(struct nw_engine_options).
    pub size: size_t,
    /// NW_ENGINE_LOCAL and so on.
    pub flags: u32,
    /// NW_BACKEND_ANY, NW_BACKEND_URING or NW_BACKEND_THREADS.
    pub backend: u32,
    /// The number of operations that may be in flight: 1 to 32,768; default 512.
    pub depth: u32,
    /// Worker threads for files: 1 to 4,096; default 64. They are started when they are needed.
    pub workers: u32,
    /// Worker threads for calls that may block for long: 1 to 4,096; default 512.
    pub blocking_workers: u32,
    /// The milliseconds after which the kernel's submission thread sleeps (IORING_SETUP_SQPOLL). 0:
    /// no such thread.
    pub sqpoll_idle_ms: u32,
    /// The bytes of the largest read that is copied from the page cache in the calling thread;
    /// default 256 KiB.
    pub copy_limit: u64,
}

// SAFETY: integers, and the size comes first.
unsafe impl Extensible for nw_engine_options {}

const FLAGS: u32 = NW_ENGINE_LOCAL
    | NW_ENGINE_STRICT
    | NW_ENGINE_TRY_ALWAYS
    | NW_ENGINE_TRY_NEVER
    | NW_ENGINE_POLLED
    | NW_ENGINE_SPARE_WORKER;

impl nw_engine_options {
    pub(super) fn is_local(&self) -> bool {
        self.has(NW_ENGINE_LOCAL)
    }

    /// The mode of reads in the calling thread.
    pub(super) fn mode(&self) -> Mode {
        match self.has(NW_ENGINE_STRICT) {
            true => Mode::Strict,
            false => Mode::Eager,
        }
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The options of the library. EINVAL for an unknown flag or backend.
    pub(super) fn options(&self) -> Outcome<Options> {
        if self.flags & !FLAGS != 0 {
            return Err(libc::EINVAL);
        }
        let mut options = Options::new();
        options = match self.backend {
            NW_BACKEND_ANY => options,
            NW_BACKEND_URING => options.backend(Backend::Uring),
            NW_BACKEND_THREADS => options.backend(Backend::Threads),
            _ => return Err(libc::EINVAL),
        };
        options = match (
            self.has(NW_ENGINE_TRY_ALWAYS),
            self.has(NW_ENGINE_TRY_NEVER),
        ) {
            (false, false) => options,
            (true, false) => options.nowait_policy(NowaitPolicy::Always),
            (false, true) => options.nowait_policy(NowaitPolicy::Never),
            (true, true) => return Err(libc::EINVAL),
        };
        options = options.mode(self.mode());
        if self.has(NW_ENGINE_POLLED) {
            options = options.polled(Polled::Busy);
        }
        if self.has(NW_ENGINE_SPARE_WORKER) {
            options = options.spare_worker(true);
        }
        if self.depth > 0 {
            options = options.depth(self.depth as usize);
        }
        if self.workers > 0 {
            options = options.workers(self.workers as usize);
        }
        if self.blocking_workers > 0 {
            options = options.blocking_workers(self.blocking_workers as usize);
        }
        if self.sqpoll_idle_ms > 0 {
            options = options.sqpoll(Duration::from_millis(self.sqpoll_idle_ms.into()));
        }
        Ok(options.copy_limit(self.limit()?))
    }

    fn limit(&self) -> Outcome<usize> {
        match self.copy_limit {
            0 => Ok(COPY_LIMIT),
            limit => usize::try_from(limit).map_err(|_| libc::EINVAL),
        }
    }

    /// The most bytes that the calling thread copies from the page cache. `None` if it never tries.
    pub(super) fn copy_limit(&self) -> Outcome<Option<usize>> {
        let tries = !self.has(NW_ENGINE_TRY_NEVER) && !self.has(NW_ENGINE_POLLED);
        Ok(tries.then_some(self.limit()?))
    }
}
