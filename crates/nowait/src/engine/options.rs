//! The options of an engine.

use std::time::Duration;

use super::backend::Backend;
use super::ring::options::{Polled, RingOptions};
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::COPY_LIMIT;
use crate::policy::history::NowaitPolicy;
use crate::policy::mode::Mode;

/// The options of an engine. The caller sets all limits. An engine does not exceed them.
///
/// ```
/// use nowait::engine::{Backend, Options};
/// let engine = Options::new().depth(64).backend(Backend::Threads).build()?;
/// assert_eq!(engine.backend(), Backend::Threads);
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) depth: usize,
    pub(super) workers: usize,
    pub(super) blocking_workers: usize,
    pub(super) spare_worker: bool,
    pub(super) backend: Option<Backend>,
    pub(super) mode: Mode,
    pub(super) nowait: NowaitPolicy,
    pub(super) copy_limit: usize,
    pub(super) ring: RingOptions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            depth: 512,
            workers: 64,
            blocking_workers: 512,
            spare_worker: false,
            backend: None,
            mode: Mode::Eager,
            nowait: NowaitPolicy::Adaptive,
            copy_limit: COPY_LIMIT,
            ring: RingOptions::default(),
        }
    }
}

impl Options {
    /// The default options: depth 512, at most 64 workers and 512 blocking workers, io_uring if it
    /// is allowed, eager mode, and copies of at most 256 KiB in the calling thread.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the number of operations that may be in flight (1 to 32,768). An operation beyond that
    /// number is refused as [`Submit::Full`](super::Submit::Full). A future waits for its turn.
    ///
    /// A shared engine has this limit for each of three classes of operations, so that operations
    /// that wait do not keep out others:
    /// - reads and writes of regular files and block devices;
    /// - calls by path (opens, statx, [`Call`](crate::op::Call));
    /// - operations that may wait without end: opens of FIFOs, and reads and writes of pipes,
    ///   sockets, terminals and the like.
    ///
    /// A local engine has this limit for all operations together.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Options {
        self.depth = depth;
        self
    }

    /// Sets the maximum number of worker threads for regular files and block devices (1 to 4,096).
    /// Workers are started when they are needed, and end after some time without work. One file may
    /// use half of them, one device three quarters.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Options {
        self.workers = workers;
        self
    }

    /// Sets the maximum number of worker threads for calls by path, and the maximum for operations
    /// that may wait without end (1 to 4,096 each). Workers are started when they are needed, and
    /// end after some time without work. Calls relative to an open directory may use half of the
    /// former for each device. Other calls by path, and those of
    /// [`spawn_blocking`](crate::Engine::spawn_blocking), may use all of them. One pipe may use half
    /// of the latter.
    #[must_use]
    pub fn blocking_workers(mut self, workers: usize) -> Options {
        self.blocking_workers = workers;
        self
    }

    /// Keeps one idle worker for regular files and block devices, within the limit of
    /// [`workers`](Options::workers). It is started when the engine is made. Before it begins work
    /// it starts the next one, so a thread that submits reads and writes of such files starts no
    /// thread.
    ///
    /// A thread inherits the credentials, the scheduling policy and the CPU affinity of the thread
    /// that starts it. This option is for programs that change these for a moment, such as file
    /// servers that act as one of their users.
    ///
    /// ```
    /// let engine = nowait::engine::Options::new().workers(16).spare_worker(true).build()?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn spare_worker(mut self, spare: bool) -> Options {
        self.spare_worker = spare;
        self
    }

    /// Requires a backend. Without this option io_uring is used if the kernel and the sandbox allow
    /// it, otherwise threads. The environment variable `NOWAIT_BACKEND` (`uring` or `threads`)
    /// takes precedence over this option.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Options {
        self.backend = Some(backend);
        self
    }

    /// Sets the mode of files that have no mode of their own.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Options {
        self.mode = mode;
        self
    }

    /// Sets the policy by which a read tries the page cache in the calling thread first.
    ///
    /// ```
    /// use nowait::engine::Options;
    /// use nowait::read::{Plan, Reason, NowaitPolicy};
    /// let engine = Options::new().nowait_policy(NowaitPolicy::Never).build()?;
    /// let file = nowait::OpenOptions::new().read(true).engine(&engine).blocking_open("Cargo.toml")?;
    /// assert_eq!(file.plan(4096), Plan::Queue(Reason::LowHitRate));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn nowait_policy(mut self, policy: NowaitPolicy) -> Options {
        self.nowait = policy;
        self
    }

    /// Sets the size in bytes of the largest read that is copied from the page cache in the calling
    /// thread (default [`COPY_LIMIT`]). A worker does larger reads, so that they do not hold up an
    /// event loop.
    #[must_use]
    pub fn copy_limit(mut self, bytes: usize) -> Options {
        self.copy_limit = bytes;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let threads = 1..=4_096;
        if (1..=32_768).contains(&self.depth)
            && threads.contains(&self.workers)
            && threads.contains(&self.blocking_workers)
        {
            Ok(())
        } else {
            Err(Error::new("engine options", ErrorKind::InvalidInput))
        }
    }
}

/// Options of the ring.
impl Options {
    /// Polls the device for completions instead of waiting for its interrupts.
    ///
    /// Such an engine reads and writes only files opened with O_DIRECT. Reads and writes of other
    /// files complete with [`NeedsDirect`](ErrorKind::NeedsDirect). Reads and writes of a device
    /// without poll queues complete with [`NeedsPollQueues`](ErrorKind::NeedsPollQueues). An NVMe
    /// drive has poll queues with the kernel parameter `nvme.poll_queues=N`. Workers do operations
    /// that transfer no data. A local engine polls the device in
    /// [`reap`](super::LocalEngine::reap). The owner of a shared engine polls without sleeping
    /// while anything is in flight.
    ///
    /// Follows io_uring_setup(2). Making the engine fails with [`NeedsRing`](ErrorKind::NeedsRing)
    /// if such a ring is not available.
    ///
    /// ```
    /// use nowait::ErrorKind;
    /// use nowait::engine::{Feature, Options, Polled, Submit, Wait};
    /// use nowait::op::Read;
    /// let mut engine = match Options::new().polled(Polled::Hybrid).build_local() {
    ///     Ok(engine) => engine,
    ///     Err(e) if e.kind() == ErrorKind::NeedsRing => return Ok(()),
    ///     Err(e) => return Err(e.into()),
    /// };
    /// println!("hybrid polling: {}", engine.support(Feature::HybridPolled));
    /// let buffered = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
    /// let Submit::Queued(_) = engine.submit(Read::new(&buffered, Box::new(vec![0; 4096]), 0).into())
    /// else { panic!() };
    /// let mut done = Vec::new();
    /// engine.reap(&mut done, Wait::For(1))?;
    /// assert_eq!(done[0].result.as_ref().unwrap_err().kind(), ErrorKind::NeedsDirect);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn polled(mut self, how: Polled) -> Options {
        self.ring.polled = Some(how);
        self
    }

    /// Has a kernel thread take submissions, so that submitting needs no system call. The thread
    /// sleeps after `idle` without work (in whole milliseconds, at least one), and is woken when it
    /// is needed.
    ///
    /// The kernel thread occupies a processor while it does not sleep. It is then unknown which
    /// operations completed immediately, so no completion of the ring counts as cached.
    ///
    /// Follows io_uring_setup(2). Making the engine fails with [`NeedsRing`](ErrorKind::NeedsRing)
    /// if such a ring is not available (before Linux 5.13 it needs root).
    ///
    /// ```
    /// use nowait::engine::{Feature, Options};
    /// # use nowait::ErrorKind;
    /// use std::time::Duration;
    /// let engine = match Options::new().sqpoll(Duration::from_millis(20)).build_local() {
    ///     Ok(engine) => engine,
    ///     # Err(e) if e.kind() == ErrorKind::NeedsRing => return Ok(()),
    ///     Err(e) => return Err(e),
    /// };
    /// assert!(engine.support(Feature::Sqpoll).is_yes());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn sqpoll(mut self, idle: Duration) -> Options {
        self.ring.sqpoll = Some(idle);
        self
    }

    /// Limits the kernel's own worker threads for the ring. `bounded` is for operations that end in
    /// bounded time (regular files and block devices), `unbounded` for all others. 0 leaves a limit
    /// unchanged.
    ///
    /// The default limits are described in io_uring_register(2), `IORING_REGISTER_IOWQ_MAX_WORKERS`
    /// (Linux 5.15). The limits belong to the driving thread, and apply to all rings that it makes.
    #[must_use]
    pub fn ring_workers(mut self, bounded: u32, unbounded: u32) -> Options {
        self.ring.workers = Some([bounded, unbounded]);
        self
    }

    /// Registers the memory of this pool with the ring. The kernel then need not look up the pages
    /// of its buffers at each read or write. Several pools may be given.
    /// [`FileSet`](super::FileSet) has a measurement.
    ///
    /// If the kernel refuses (the pages count against RLIMIT_MEMLOCK), the buffers work as ordinary
    /// memory, and [`support`](super::Engine::support) gives the reason. Follows
    /// io_uring_register(2), `IORING_REGISTER_BUFFERS`.
    ///
    /// ```
    /// use nowait::buffer::BufferPool;
    /// use nowait::engine::{Options, Wait};
    /// use nowait::op::{Op, Read};
    /// let pool = BufferPool::new(8, 4096)?;
    /// let mut engine = Options::new().buffers(&pool).build_local()?;
    /// let file = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
    /// let Some(buffer) = pool.take() else { panic!("8 are free") };
    /// let mut ops = vec![Op::from(Read::new(&file, Box::new(buffer), 0))];
    /// engine.submit_batch(&mut ops);
    /// let mut done = Vec::new();
    /// engine.reap(&mut done, Wait::For(1))?;
    /// assert_eq!(pool.free(), 7);
    /// drop(done);
    /// assert_eq!(pool.free(), 8, "the buffer came back with its completion");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn buffers(mut self, pool: &BufferPool) -> Options {
        self.ring.pools.push(pool.clone());
        self
    }
}
