//! How an engine is made.

use std::time::Duration;

use super::backend::Backend;
use super::ring::options::{Polled, RingOptions};
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::history::NowaitPolicy;
use crate::mode::Mode;

/// How an engine is to be made. Every limit is one that the caller sets; nothing grows beyond.
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
            backend: None,
            mode: Mode::Eager,
            nowait: NowaitPolicy::Adaptive,
            copy_limit: 256 << 10,
            ring: RingOptions::default(),
        }
    }
}

impl Options {
    /// The defaults: depth 512, at most 64 workers and 512 blocking workers, the ring where it is
    /// allowed, eager, copies of at most 256 KiB in the caller.
    pub fn new() -> Options {
        Options::default()
    }

    /// How many operations may be in flight at once (1 to 32,768). One more is refused as
    /// [`Submit::Full`](super::Submit::Full); a future waits for its turn.
    ///
    /// A shared engine has so many places for each of three classes of operations, so that those
    /// that wait do not keep out the others: reads and writes of regular files and block devices;
    /// calls by path (opens, statx, [`Call`](crate::op::Call)) and closes; opens of FIFOs, reads and
    /// writes of pipes, sockets, terminals and the like, which may wait without end. A local engine has
    /// so many in all.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Options {
        self.depth = depth;
        self
    }

    /// How many worker threads there may be at once for regular files and block devices (1 to 4,096).
    /// They are started when needed and end after a while without work. One file may hold half of
    /// them, one device three quarters.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Options {
        self.workers = workers;
        self
    }

    /// How many worker threads there may be at once for calls by path, and as many again for
    /// operations that may wait without end (1 to 4,096). They are started when needed and end after a
    /// while without work. One device may hold half of the former, one pipe half of the latter.
    #[must_use]
    pub fn blocking_workers(mut self, workers: usize) -> Options {
        self.blocking_workers = workers;
        self
    }

    /// Insists on a backend. Without this, and without the environment variable `NOWAIT_BACKEND`
    /// (`uring` or `threads`), the ring is used where kernel and sandbox allow one.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Options {
        self.backend = Some(backend);
        self
    }

    /// The mode of files that have none of their own.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Options {
        self.mode = mode;
        self
    }

    /// Who says whether a read tries the page cache in its caller first.
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

    /// The largest read, in bytes, that is copied from the page cache in the caller; a larger one
    /// goes to a worker, so that it does not keep an event loop.
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
            self.ring.check()
        } else {
            Err(Error::new("engine options", ErrorKind::InvalidInput))
        }
    }
}

/// The options of the ring.
impl Options {
    /// Polls the device for completions instead of waiting for its interrupt.
    ///
    /// Such an engine reads and writes files opened with O_DIRECT and nothing else: reads and
    /// writes of others complete with [`NeedsDirect`](ErrorKind::NeedsDirect), and where the device
    /// has no queues to be polled with [`NeedsPollQueues`](ErrorKind::NeedsPollQueues) (an NVMe
    /// drive has them with the kernel's parameter `nvme.poll_queues=N`). Operations that move no
    /// data are done by workers. A local engine looks at the device in
    /// [`reap`](super::LocalEngine::reap); a shared engine's owner spins while anything is in
    /// op_state.
    ///
    /// Follows io_uring_setup(2). Making the engine fails with [`NeedsRing`](ErrorKind::NeedsRing)
    /// where such a ring is not to be had.
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
    /// if let Some(why) = engine.features().why_not(Feature::HybridPolled) {
    ///     println!("busy polling: {why}");
    /// }
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

    /// Has a thread of the kernel's take submissions, so that submitting needs no system call. After
    /// `idle` without work (in whole milliseconds, at least one) it sleeps, and is woken when needed.
    ///
    /// It takes a processor as long as it does not sleep. Nobody can tell any more which completions
    /// were there at once, so no completion of the ring is counted as cached.
    ///
    /// Follows io_uring_setup(2). Making the engine fails with [`NeedsRing`](ErrorKind::NeedsRing)
    /// where such a ring is not to be had (before 5.13 only the superuser has one).
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
    /// assert!(engine.features().has(Feature::Sqpoll));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn sqpoll(mut self, idle: Duration) -> Options {
        self.ring.sqpoll = Some(idle);
        self
    }

    /// Binds that thread to a processor (`IORING_SETUP_SQ_AFF`); only with
    /// [`sqpoll`](Options::sqpoll).
    #[must_use]
    pub fn sqpoll_cpu(mut self, cpu: u32) -> Options {
        self.ring.sqpoll_cpu = Some(cpu);
        self
    }

    /// How many threads of its own the kernel may start for this ring's operations: for those that
    /// end in bounded time (regular files and block devices) and for the others; 0 leaves a limit as
    /// it is. Without this the kernel's limits are those of io_uring_register(2),
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS` (5.15); they are the driving thread's, and hold for all
    /// rings that it makes.
    #[must_use]
    pub fn ring_workers(mut self, bounded: u32, unbounded: u32) -> Options {
        self.ring.workers = Some([bounded, unbounded]);
        self
    }

    /// Registers the memory of this pool with the ring: reads into its buffers and writes from them
    /// spare the kernel looking up their pages each time. Several pools may be given.
    ///
    /// Where the kernel refuses (its pages count against RLIMIT_MEMLOCK) the buffers work as any
    /// others, and [`features`](super::Engine::features) says why. Follows io_uring_register(2),
    /// `IORING_REGISTER_BUFFERS`.
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
