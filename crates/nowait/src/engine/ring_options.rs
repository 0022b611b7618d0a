//! How an engine's ring is to be made: io_uring_setup(2), io_uring_register(2).

use std::time::Duration;

use super::Options;
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};

/// How a polled engine waits for its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polled {
    /// It asks the device again and again: `IORING_SETUP_IOPOLL`. The lowest latency, and a whole
    /// processor while anything is in flight.
    Busy,
    /// It sleeps for half of the time that such operations took so far, then asks again and again:
    /// `IORING_SETUP_HYBRID_IOPOLL` (6.13). Elsewhere it is `Busy`, and
    /// [`features`](super::Engine::features) says why.
    Hybrid,
}

/// What of the options concerns the ring alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingOptions {
    pub(super) polled: Option<Polled>,
    pub(super) sqpoll: Option<Duration>,
    pub(super) sqpoll_cpu: Option<u32>,
    pub(super) workers: Option<[u32; 2]>,
    pub(super) pools: Vec<BufferPool>,
}

impl RingOptions {
    pub(super) fn check(&self) -> Result<()> {
        if self.sqpoll_cpu.is_some() && self.sqpoll.is_none() {
            let what = "sqpoll_cpu (without sqpoll there is no thread to be bound)";
            return Err(Error::new(what, ErrorKind::InvalidInput));
        }
        Ok(())
    }

    /// What of it an engine can't do without, by name: these are refused where they can't be had,
    /// since a program that asks for them would be built differently without.
    pub(super) fn insisted(&self) -> Option<&'static str> {
        match (self.polled, self.sqpoll) {
            (Some(_), _) => Some("polled"),
            (None, Some(_)) => Some("sqpoll"),
            (None, None) => None,
        }
    }
}

impl Options {
    /// Polls the device for completions instead of waiting for its interrupt.
    ///
    /// Such an engine reads and writes files opened with O_DIRECT and nothing else: reads and
    /// writes of others complete with [`NeedsDirect`](ErrorKind::NeedsDirect), and where the device
    /// has no queues to be polled with [`NeedsPollQueues`](ErrorKind::NeedsPollQueues) (an NVMe
    /// drive has them with the kernel's parameter `nvme.poll_queues=N`). Operations that move no
    /// data are done by workers. A local engine looks at the device in
    /// [`reap`](super::LocalEngine::reap); a shared engine's owner spins while anything is in
    /// flight.
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
