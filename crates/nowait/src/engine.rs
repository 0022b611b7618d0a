//! The engine: what accepts operations and delivers completions.
//!
//! ```text
//!                     ┌── Done: the page cache had it ──────────────────────► Completion
//!  submit(op) ── plan ┤
//!                     ├── Queued: parcel ─► inbox ─► owner ─► ring ─┐
//!                     │                └──► pool ─► worker ─────────┴─► reply ─► future | reap
//!                     └── Full: the op comes back
//! ```
//!
//! [`Engine`] is shared (`Send + Sync`): one *owner* thread alone submits to its ring and reaps it,
//! because asynchronous buffered reads finish in the context of the thread that submitted them.
//! [`LocalEngine`] is driven by the thread that made it, without any handoff. Both have one bounded
//! pool of *workers*, for what the ring can't do and for machines where the ring is denied.
#![allow(unsafe_code)]

mod chain;
mod class;
mod completion_queue;
mod features;
mod file_set;
mod in_flight;
mod local;
mod op_state;
mod parcel;
mod pools;
mod registered;
mod ring_options;
mod ring_setup;
mod semaphore;
mod shared;
mod sleep;
mod stop;
mod threads;
mod timer;
mod uring;

use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

pub use chain::{Chain, RefusedChain};
pub use features::{Availability, Feature, Features};
pub use file_set::{DirectSlot, FileSet};
pub use local::LocalEngine;
pub use ring_options::Polled;
pub use shared::Engine;

pub(crate) use file_set::Slot;
pub(crate) use in_flight::InFlight;
#[cfg(feature = "tokio")]
pub(crate) use op_state::Flight;
pub(crate) use parcel::Route;
pub(crate) use semaphore::Turn;
#[cfg(feature = "tokio")]
pub(crate) use semaphore::Watch;
pub(crate) use threads::Task;

use crate::completion::{Completion, Provenance, Ticket};
use crate::cost::{Costs, Observed};
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::op::{Kind, Op};
use crate::read::plan::Mode;
use crate::read::{Rest, Start, Trying, start_op};
use crate::stats::{Count, Counters};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::process::Owner;

use class::Class;
use parcel::{Parcel, Reply};
use ring_options::RingOptions;
use semaphore::Semaphore;
use timer::Deadlines;
use uring::Takes;

/// What became of a submitted operation. Dropping it loses the operation of `Full` and the result
/// of `Done`.
#[derive(Debug)]
#[must_use]
pub enum Submit {
    /// It is done already: the page cache had it, or it failed at once.
    Done(Completion),
    /// It is on its way; its completion will carry this ticket.
    Queued(Ticket),
    /// The engine has as many operations in flight as it may; here it is back. Reap, then try
    /// again.
    Full(Op),
}

/// How long [`reap`](Engine::reap) waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this many completions are there, or everything in flight is done.
    For(usize),
    /// Until one completion is there, or this much time has passed.
    UpTo(Duration),
    /// Until so many completions are there; once `within` has passed, until one is. For throughput:
    /// a thread that is woken for a batch has more to do at once. With nothing in flight it does
    /// not wait at all.
    ///
    /// A ring does it with one system call where the kernel has `IORING_FEAT_MIN_TIMEOUT` (6.12,
    /// io_uring_enter(2)), and in two waits elsewhere.
    ///
    /// ```
    /// use nowait::engine::{LocalEngine, Wait};
    /// use nowait::op::{Nop, Op};
    /// use std::time::Duration;
    /// let mut engine = LocalEngine::new()?;
    /// engine.submit_batch(&mut (0..3).map(|_| Op::from(Nop)).collect());
    /// let mut done = Vec::new();
    /// let within = Duration::from_millis(10);
    /// engine.reap(&mut done, Wait::Batch { count: 3, within })?;
    /// assert_eq!(done.len(), 3);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    Batch {
        /// How many are waited for at first.
        count: usize,
        /// For how long.
        within: Duration,
    },
}

/// A [`Wait`] that has begun.
struct Waiting {
    wait: Wait,
    until: Option<Instant>,
}

impl Waiting {
    fn begin(wait: Wait) -> Waiting {
        let until = match wait {
            // A time beyond the clock is no limit.
            Wait::UpTo(time) | Wait::Batch { within: time, .. } => Instant::now().checked_add(time),
            Wait::No | Wait::For(_) => None,
        };
        Waiting { wait, until }
    }

    /// How many more completions are wanted, and until when: `None` if it is over. `got` are
    /// there, `coming` in flight.
    fn rest(&self, got: usize, coming: usize) -> Option<(usize, Option<Instant>)> {
        let late = || self.until.is_some_and(|until| Instant::now() >= until);
        match self.wait {
            Wait::No => None,
            Wait::For(want) if got >= want || coming == 0 => None,
            Wait::For(want) => Some(((want - got).min(coming), None)),
            Wait::UpTo(_) if got > 0 || late() => None,
            Wait::UpTo(_) => Some((1, self.until)),
            Wait::Batch { count, .. } if got >= count || coming == 0 => None,
            Wait::Batch { .. } if late() => (got == 0).then_some((1, None)),
            Wait::Batch { count, .. } => Some(((count - got).min(coming), self.until)),
        }
    }
}

/// Which mechanism carries an engine's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// An io_uring ring, and workers for what it can't do.
    Uring,
    /// Worker threads alone.
    Threads,
}

impl Backend {
    /// Its name as `NOWAIT_BACKEND` takes it: `uring` or `threads`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Threads => "threads",
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

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
    depth: usize,
    workers: usize,
    blocking_workers: usize,
    backend: Option<Backend>,
    mode: Mode,
    trying: Trying,
    copy_limit: usize,
    ring: RingOptions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            depth: 512,
            workers: 64,
            blocking_workers: 512,
            backend: None,
            mode: Mode::Eager,
            trying: Trying::Adaptive,
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
    /// [`Submit::Full`]; a future waits for its turn.
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
    /// use nowait::read::{Plan, Reason, Trying};
    /// let engine = Options::new().trying(Trying::Never).build()?;
    /// let file = nowait::OpenOptions::new().read(true).engine(&engine).blocking_open("Cargo.toml")?;
    /// assert_eq!(file.plan(4096), Plan::Queue(Reason::Hopeless));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn trying(mut self, trying: Trying) -> Options {
        self.trying = trying;
        self
    }

    /// The largest read, in bytes, that is copied from the page cache in the caller; a larger one
    /// goes to a worker, so that it does not keep an event loop.
    #[must_use]
    pub fn copy_limit(mut self, bytes: usize) -> Options {
        self.copy_limit = bytes;
        self
    }

    /// Makes a shared engine.
    ///
    /// # Errors
    /// `InvalidInput` for a depth or worker count out of range or a `NOWAIT_BACKEND` that is
    /// neither `uring` nor `threads`; the kernel's errno if an insisted-on ring is denied or no
    /// thread can be started; [`NeedsRing`](ErrorKind::NeedsRing) if it is to be polled or to have
    /// SQPOLL, and there is no such ring.
    pub fn build(&self) -> Result<Engine> {
        Engine::with(self)
    }

    /// Makes an engine that the calling thread drives.
    ///
    /// # Errors
    /// As [`build`](Options::build).
    pub fn build_local(&self) -> Result<LocalEngine> {
        LocalEngine::with(self)
    }

    fn check(&self) -> Result<()> {
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

    /// Which backend is insisted on, and by whom.
    fn insisted(&self) -> Result<Option<(Backend, &'static str)>> {
        match std::env::var_os("NOWAIT_BACKEND") {
            Some(name) if name == "uring" => Ok(Some((Backend::Uring, "NOWAIT_BACKEND=uring"))),
            Some(name) if name == "threads" => {
                Ok(Some((Backend::Threads, "NOWAIT_BACKEND=threads")))
            }
            Some(name) if !name.is_empty() => Err(Error::new(
                "NOWAIT_BACKEND (uring or threads)",
                ErrorKind::InvalidInput,
            )),
            _ => Ok(self.backend.map(|b| (b, "asked for by the program"))),
        }
    }
}

/// The backend in use and the reason for it.
#[derive(Debug)]
struct Choice {
    backend: Backend,
    why: String,
}

/// Chooses a backend: tries to make what only a ring needs (`try_ring`) unless threads are
/// insisted on, and falls back unless the ring is.
fn choose<R>(
    options: &Options,
    try_ring: impl FnOnce() -> std::io::Result<R>,
) -> Result<(Option<R>, Choice)> {
    let insisted = options.insisted()?;
    let kind_of_ring = options.ring.insisted();
    if let Some((Backend::Threads, by)) = insisted {
        if let Some(what) = kind_of_ring {
            return Err(Error::new(what, ErrorKind::NeedsRing));
        }
        return Ok((
            None,
            Choice {
                backend: Backend::Threads,
                why: by.into(),
            },
        ));
    }
    let ring = try_ring();
    if let (Err(e), Some(what)) = (&ring, kind_of_ring) {
        return Err(Error::io(what, e).because(ErrorKind::NeedsRing));
    }
    match (ring, insisted) {
        (Ok(ring), by) => {
            let why = by
                .map_or("this kernel and sandbox allow io_uring", |(_, by)| by)
                .into();
            Ok((
                Some(ring),
                Choice {
                    backend: Backend::Uring,
                    why,
                },
            ))
        }
        (Err(e), Some(_)) => Err(Error::io("io_uring_setup", &e)),
        (Err(e), None) => {
            let why = format!("io_uring is not to be had here: {e}");
            Ok((
                None,
                Choice {
                    backend: Backend::Threads,
                    why,
                },
            ))
        }
    }
}

/// What all parts of one engine share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) counters: Counters,
    pub(crate) observed: Observed,
    pub(crate) mode: Mode,
    pub(crate) trying: Trying,
    pub(crate) copy_limit: usize,
    /// It reads and writes files opened with O_DIRECT alone.
    pub(crate) polled: bool,
    features: OnceBox<Features>,
    /// Whether it has registered files, which is known later than the rest.
    registered_files: OnceBox<Availability>,
    /// It has its one set of files.
    has_files: AtomicBool,
    /// The places of each class.
    places: [Semaphore; Class::ALL.len()],
    /// Bounds the readaheads on their way, which nothing waits for; as many as operations.
    aheads: Semaphore,
    deadlines: Arc<Deadlines>,
    process: Owner,
}

impl Core {
    fn new(options: &Options) -> Core {
        Core {
            counters: Counters::default(),
            observed: Observed::default(),
            mode: options.mode,
            trying: options.trying,
            copy_limit: options.copy_limit,
            polled: options.ring.polled.is_some(),
            features: OnceBox::new(),
            registered_files: OnceBox::new(),
            has_files: AtomicBool::new(false),
            places: Class::ALL.map(|_| Semaphore::new(options.depth)),
            aheads: Semaphore::new(options.depth),
            deadlines: Arc::default(),
            process: Owner::current(),
        }
    }

    pub(crate) fn costs(&self) -> Costs {
        self.observed.costs()
    }

    fn features(&self) -> Features {
        let mut features = self
            .features
            .get()
            .map_or_else(Features::none, Clone::clone);
        if let Some(files) = self.registered_files.get() {
            features.set(Feature::RegisteredFiles, files.clone());
        }
        features
    }

    /// Notes what the ring has; without one, that there is none.
    fn note_features(&self, ring: Option<Features>, choice: &Choice) {
        let features =
            ring.unwrap_or_else(|| Features::without_a_ring(&format!("no ring: {}", choice.why)));
        let _ = self.features.set(Box::new(features));
    }

    /// Makes the engine's set of files, which `register` tells the ring of.
    fn file_set(
        &self,
        set: Result<FileSet>,
        register: impl FnOnce(&FileSet) -> std::io::Result<()>,
    ) -> Result<FileSet> {
        self.check_process("file_set")?;
        let set = set?;
        if self.has_files.swap(true, Ordering::Relaxed) {
            let what = "file_set (an engine has one)";
            return Err(Error::new(what, ErrorKind::InvalidInput));
        }
        let registered = register(&set);
        if registered.is_err() {
            set.table().close();
        }
        let files = Availability::of(&registered);
        let _ = self.registered_files.set(Box::new(files));
        Ok(set)
    }

    /// Why an operation can't be done at all, or not by this engine. What may be cached of a file that
    /// a polled engine can't read is no reason to serve some reads and not the others.
    fn refuses(
        &self,
        kind: &mut Kind,
        ring_takes: impl FnOnce(&Kind) -> bool,
    ) -> Option<ErrorKind> {
        let direct = kind.handle().is_some_and(Handle::is_direct);
        if self.polled && kind.is_transfer() && !direct {
            Some(ErrorKind::NeedsDirect)
        } else if kind.is_ring_only() && !ring_takes(kind) {
            Some(ErrorKind::NeedsRing)
        } else {
            kind.misaligned()
        }
    }

    /// Why a chain can't be submitted to a ring (`None`: there is no ring) that has a place for each
    /// of its operations.
    fn refuses_chain(&self, chain: &mut Chain, ring: Option<&Takes>) -> Option<Error> {
        if let Err(error) = self.check_process("submit_chain") {
            return Some(error);
        }
        if !(1..=self.depth().min(LONGEST_CHAIN)).contains(&chain.len()) {
            return Some(Error::new("submit_chain", ErrorKind::InvalidInput));
        }
        let Some(ring) = ring else {
            return Some(Error::new("submit_chain", ErrorKind::NeedsRing));
        };
        chain.0.iter_mut().find_map(|op| {
            let why = self.refuses(&mut op.kind, |_| true);
            let why = why.or((!ring.takes(&op.kind)).then_some(ErrorKind::NeedsRing));
            let path = op.kind.handle().and_then(|h| h.shared_path());
            Some(Error::new(op.name(), why?).on(path))
        })
    }

    fn places(&self, class: Class) -> &Semaphore {
        &self.places[class as usize]
    }

    /// How many operations of a class may be in flight.
    fn depth(&self) -> usize {
        self.places(Class::File).depth()
    }

    /// How many operations are in flight on a shared engine.
    fn in_flight(&self) -> usize {
        self.places.iter().map(Semaphore::taken).sum()
    }

    /// Whether nothing that needs a device is in flight on a shared engine.
    pub(crate) fn is_idle(&self) -> bool {
        self.places(Class::File).taken() == 0
    }

    /// A readahead as a parcel for a worker, which ends with nobody knowing; `None` if as many are
    /// on their way as may be, or in a forked child.
    fn ahead(&self, op: Op, ticket: Ticket) -> Option<Parcel> {
        if !self.process.is_here() || !self.aheads.try_take(1) {
            return None;
        }
        self.counters.count(Count::Aheads);
        Some(Parcel::new(op, None, ticket, Reply::Ahead).0)
    }

    /// Notes how long an operation took from submission until the program had it back. A handoff's
    /// cost is that of a hit: the device's time is not its fault.
    pub(crate) fn handed_off(&self, provenance: Provenance, ns: u64) {
        let Provenance {
            cached,
            device,
            unknown,
            ..
        } = provenance;
        if cached > 0 && device + unknown == 0 {
            self.observed.handoff(cached, ns);
        }
    }

    /// Refuses to work in a forked child: its threads and its ring stayed in the parent.
    fn check_process(&self, operation: &'static str) -> Result<()> {
        if self.process.is_here() {
            Ok(())
        } else {
            Err(Error::new(operation, ErrorKind::Forked))
        }
    }
}

/// As many as the submission queue of a deep engine has entries.
const LONGEST_CHAIN: usize = uring::ENTRIES;

/// Why an engine without a ring has no registered files.
fn no_ring() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, "the engine has no ring")
}

/// What the caller's part of an operation came to.
enum Begun {
    /// It is done, or failed at once.
    Done(Result<usize>, Provenance),
    /// It is the engine's, or what is left of it is.
    Rest(Option<Rest>),
}

/// The caller's part of an operation: a read may be served from the page cache. With it comes what
/// is to be read ahead besides.
fn begin(
    core: &Core,
    op: &mut Op,
    batch: bool,
    alone: impl FnOnce() -> bool,
) -> (Begun, Option<Op>) {
    let Some((started, ahead)) = start_op(core, op, batch, alone) else {
        return (Begun::Rest(None), None);
    };
    let begun = match started {
        Start::Done(n, provenance) => Begun::Done(Ok(n), provenance),
        Start::Failed(errno) => {
            let path = op.kind.handle().and_then(|h| h.shared_path());
            Begun::Done(
                Err(Error::os(op.name(), errno).on(path)),
                Provenance::default(),
            )
        }
        Start::Rest(rest) => Begun::Rest(Some(rest)),
    };
    (begun, ahead)
}
