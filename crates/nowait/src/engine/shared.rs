//! The shared engine. Many threads submit, one owner drives the ring, futures and reapers wait.

mod owner;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::task::Waker;
use std::time::Instant;

use super::backend::{Backend, Choice, choose};
use super::class::Class;
use super::completion::{Completion, Ticket};
use super::completion_queue::{CompletionQueue, Taken};
use super::completion_target::CompletionTarget;
use super::core::Core;
use super::deadlines::Expiry;
use super::features::Feature;
use super::file_set::FileSet;
#[cfg(feature = "tokio")]
use super::in_flight::OpState;
use super::in_flight::{Cancel, InFlight, Reserved};
use super::options::Options;
use super::pools::Pools;
use super::request::Request;
use super::semaphore::Waiter;
#[cfg(feature = "tokio")]
use super::semaphore::Watch;
use super::submit::{Submit, begin};
use super::wait::{Wait, Waiting};
use super::workers::Task;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "tokio")]
use crate::handle::Handle;
use crate::handle::registered::Notified;
use crate::kernel::support::Support;
use crate::op::{Op, Route};
use crate::policy::Policy;
use crate::policy::cost::Costs;
use crate::policy::stats::{Count, Stats};
use crate::read::path::ReadPath;
use crate::read::start::CallerResult;
use crate::sys::process::PerProcess;
use owner::{Inbox, Message, start_owner};

/// An engine that any thread may submit to. Clones refer to the same engine.
///
/// After the last clone and the last [`File`](crate::File) on it are dropped, operations in flight
/// run to their end with all they own. The engine's threads end then.
///
/// In a forked child the engine refuses to work ([`ErrorKind::Forked`]). Make a new engine there.
///
/// ```
/// use nowait::engine::{Engine, Submit, Wait};
/// use nowait::op::{Nop, Op};
/// let engine = Engine::new()?;
/// let Submit::Queued(ticket) = engine.submit(Op::from(Nop).user_data(7)) else { panic!() };
/// let mut done = Vec::new();
/// engine.reap(&mut done, Wait::For(1))?;
/// assert_eq!((done[0].ticket, done[0].op.get_user_data()), (Some(ticket), 7));
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine(Arc<CloseOnDrop>);

/// The share of all handles in an engine. Dropping it closes the engine.
#[derive(Debug)]
struct CloseOnDrop(Arc<Shared>);

struct Shared {
    core: Arc<Core>,
    choice: Choice,
    /// The queue to the owner of the ring, if the engine has one.
    inbox: Option<Arc<Inbox>>,
    pools: Arc<Pools>,
    completions: Arc<CompletionQueue>,
    tickets: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.choice.backend)
            .field("in_flight", &self.core.in_flight())
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Makes a shared engine.
    ///
    /// # Errors
    /// - `InvalidInput` if the depth or a number of workers is out of range, or `NOWAIT_BACKEND` is
    ///   neither `uring` nor `threads`.
    /// - [`NeedsRing`](ErrorKind::NeedsRing) if the ring is to be polled or to have SQPOLL, and no
    ///   such ring can be made.
    /// - The kernel's errno if the backend was chosen and its ring is denied, or if no thread can
    ///   be started.
    pub fn build(&self) -> Result<Engine> {
        Engine::with(self)
    }
}

impl Engine {
    /// Makes an engine with the default [`Options`].
    ///
    /// # Errors
    /// The same errors as [`Options::build`].
    pub fn new() -> Result<Engine> {
        Options::new().build()
    }

    /// Returns the default options, to be changed before the engine is made.
    pub fn options() -> Options {
        Options::new()
    }

    /// The engine that the files of this process use if none is named. It is made on first use, and
    /// again in a forked child.
    ///
    /// # Errors
    /// The same errors as [`new`](Engine::new).
    pub fn process() -> Result<Engine> {
        Engine::process_or(Engine::new).map(|(engine, _)| engine)
    }

    /// Makes the engine that the files of this process use if none is named, with the given
    /// options. It must be called before that engine is first used.
    ///
    /// # Errors
    /// `InvalidInput` if the engine exists already; otherwise as [`Options::build`].
    ///
    /// ```
    /// use nowait::engine::{Engine, Options};
    /// let engine = Engine::make_process(&Options::new().depth(64))?;
    /// assert_eq!(Engine::process()?.depth(), 64);
    /// assert!(Engine::make_process(&Options::new()).is_err());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn make_process(options: &Options) -> Result<Engine> {
        match Engine::process_or(|| options.build())? {
            (engine, true) => Ok(engine),
            (_, false) => {
                let what = "make_process (the process has an engine already)";
                Err(Error::new(what, ErrorKind::InvalidInput))
            }
        }
    }

    /// Returns the process's engine, and true if `make` made it in this call.
    fn process_or(make: impl FnOnce() -> Result<Engine>) -> Result<(Engine, bool)> {
        static PROCESS: PerProcess<Engine> = PerProcess::new();
        let mut made = None;
        let engine =
            PROCESS.get_or_make(|| make().inspect(|engine| made = Some(engine.clone())))?;
        let is_new = made.is_some_and(|made| Arc::ptr_eq(&made.0, &engine.0));
        Ok((engine.clone(), is_new))
    }

    pub(super) fn with(options: &Options) -> Result<Engine> {
        options.check()?;
        let core = Arc::new(Core::new(options));
        let pools = Arc::new(Pools::new(&core, options));
        let (made, choice) = choose(options.backend, options.ring.required(), || {
            start_owner(&core, options, &pools)
        })?;
        let (inbox, features) = made.unzip();
        core.set_features(features);
        pools.start(options, choice.backend)?;
        Ok(Engine(Arc::new(CloseOnDrop(Arc::new(Shared {
            core,
            choice,
            inbox,
            pools,
            completions: Arc::default(),
            tickets: AtomicU64::new(1),
        })))))
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    fn core(&self) -> &Core {
        &self.shared().core
    }

    /// The number of operations in flight that need a device.
    pub(crate) fn files_in_flight(&self) -> usize {
        self.core().permits(Class::File).in_use()
    }

    /// The read path of the calling thread, for a read that is not part of a batch.
    pub(crate) fn read_path(&self) -> ReadPath<'_, impl Fn() -> usize, impl Fn(Op)> {
        ReadPath {
            policy: self.policy(),
            in_flight: || self.files_in_flight(),
            read_ahead: |op| {
                self.advise(op);
            },
            batch: false,
        }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.core().policy
    }

    /// The backend of this engine.
    pub fn backend(&self) -> Backend {
        self.shared().choice.backend
    }

    /// The reason for the choice of the backend.
    pub fn why(&self) -> &str {
        &self.shared().choice.why
    }

    /// The support for a feature of the ring. On an engine without a ring, each is refused with
    /// ENXIO, and [`why`](Self::why) has the reason.
    ///
    /// A feature that is refused is not used: the engine works without it.
    pub fn support(&self, feature: Feature) -> Support {
        self.core().support(feature)
    }

    /// Makes the engine's set of registered files, with room for `capacity` files (at most
    /// 1,048,576). Waits until the owner has registered the table.
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is zero or too large, or the engine has a set already;
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn file_set(&self, capacity: usize) -> Result<FileSet> {
        let inbox = self.shared().inbox.as_ref();
        let owner = inbox.map(|inbox| Arc::downgrade(inbox) as Weak<dyn Notified>);
        self.core().file_set(FileSet::new(capacity, owner), |set| {
            let (tx, rx) = mpsc::channel();
            inbox?.send(Message::Register(set.table().clone(), tx));
            rx.recv().ok()
        })
    }

    /// The number of operations of each class that may be in flight (see [`Options::depth`]).
    pub fn depth(&self) -> usize {
        self.core().depth()
    }

    /// The number of operations that are in flight, or done and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.core().in_flight()
    }

    /// The counters of this engine and its files.
    pub fn stats(&self) -> Stats {
        self.policy().counters.snapshot()
    }

    /// The costs of a hit, a miss and a handoff, as observed by this engine.
    pub fn costs(&self) -> Costs {
        self.policy().costs()
    }

    /// Submits one operation. A read may be done immediately if its plan is to try the page cache
    /// first. All other operations are queued, and [`reap`](Engine::reap) returns their
    /// completions.
    pub fn submit(&self, op: Op) -> Submit {
        if let Err(error) = self.check_process(op.name()) {
            return Submit::Done(Completion::failed(error, op));
        }
        match self.begin(op) {
            CallerResult::Done(done) => Submit::Done(done),
            CallerResult::Rest(mut op) => {
                let class = Class::of(&op.body.kind);
                if !self.core().permits(class).try_acquire(1) {
                    self.policy().counters.count(Count::Full);
                    op.restart();
                    return Submit::Full(op);
                }
                self.shared().completions.expect(1);
                let target = CompletionTarget::Queue(self.shared().completions.clone(), class);
                Submit::Queued(self.queue(op, class, target))
            }
        }
    }

    /// Runs the part of an operation that belongs to the calling thread.
    pub(super) fn begin(&self, op: Op) -> CallerResult<Completion> {
        begin(&self.read_path(), op)
    }

    /// Submits operations until the engine is full, and returns how many it took. Operations that
    /// were not taken stay in `ops`. Each operation that was taken is returned by
    /// [`reap`](Engine::reap), including those done immediately. The ring of an eager engine gets
    /// reads without a try in the calling thread: the kernel tries the page cache itself, with one
    /// system call for all. In a forked child the engine takes none.
    pub fn submit_batch(&self, ops: &mut Vec<Op>) -> usize {
        if self.check_process("submit").is_err() {
            return 0;
        }
        let batch = self.backend() == Backend::Uring;
        let mut taken = 0;
        let mut rest = std::mem::take(ops).into_iter();
        for op in rest.by_ref() {
            let class = Class::of(&op.body.kind);
            if !self.core().permits(class).try_acquire(1) {
                self.policy().counters.count(Count::Full);
                ops.push(op);
                break;
            }
            taken += 1;
            self.shared().completions.expect(1);
            let completions = &self.shared().completions;
            // The operation has its own permit already.
            let path = ReadPath {
                policy: self.policy(),
                in_flight: || self.files_in_flight().saturating_sub(1),
                read_ahead: |op| {
                    self.advise(op);
                },
                batch,
            };
            match begin(&path, op) {
                CallerResult::Done(done) => drop(completions.push(class, done)),
                CallerResult::Rest(op) => {
                    let target = CompletionTarget::Queue(completions.clone(), class);
                    self.queue(op, class, target);
                }
            }
        }
        ops.extend(rest);
        taken
    }

    fn next_ticket(&self) -> Ticket {
        Ticket(self.shared().tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Starts the thread that watches the deadlines, if there is none.
    fn watch_deadlines(&self) {
        let engine = Arc::downgrade(&self.0);
        self.core().deadlines.watch(move |ticket| {
            if let Some(engine) = engine.upgrade() {
                engine.0.cancel(ticket, ErrorKind::DeadlinePassed);
            }
        });
    }

    /// Hands an operation that has its permit to the ring's owner or to a pool.
    fn queue(&self, op: Op, class: Class, target: CompletionTarget) -> Ticket {
        let shared = self.shared();
        let deadline = op.get_deadline();
        let ticket = self.next_ticket();
        if let Some(deadline) = deadline {
            shared.core.deadlines.add(deadline, ticket);
            self.watch_deadlines();
        }
        let route = op.body.progress.route;
        let request = Request::new(op, ticket, target);
        if let Some(why) = shared.core.refuses(&request.op.body.kind) {
            let (request, outcome) = request.stop(why);
            if let Some(dropped) = request.deliver(&shared.core, outcome) {
                dropped.discard(&shared.core);
            }
            return ticket;
        }
        // The operation has its own permit already. If many such writes are in flight, the ring
        // does them: one kernel worker does all writes of a file, while several workers of the pool
        // would wait for each other.
        let alone = || shared.core.permits(class).in_use() == 1;
        let by_worker = request.op.body.kind.needs_kernel_worker() && alone();
        shared.core.policy.counters.count(Count::Handoffs);
        match (&shared.inbox, route) {
            // An operation that the ring does not support goes to a worker directly, which saves
            // waking the owner.
            (Some(inbox), Route::Ring)
                if inbox.operations.contains(&request.op.body.kind) && !by_worker =>
            {
                inbox.send(Message::Submit(request));
            }
            _ => shared.pools.push(request),
        }
        if let Some(deadline) = deadline {
            shared.core.deadlines.arm(deadline, ticket);
        }
        ticket
    }

    /// Queues a readahead or an eviction for a worker. Drops it and returns false if too many are
    /// queued.
    pub(crate) fn advise(&self, op: Op) -> bool {
        let shared = self.shared();
        let request = Request::ahead(&shared.core, op);
        request.map(|request| shared.pools.push(request)).is_some()
    }

    /// For a future: queues an operation. If there is no permit, the operation is returned and
    /// `waker` is woken when there is one.
    pub(crate) fn launch(
        &self,
        op: Op,
        waker: &Waker,
        waiter: &mut Option<Waiter>,
    ) -> std::result::Result<InFlight, Op> {
        let class = Class::of(&op.body.kind);
        if !self.core().permits(class).poll_acquire(waker, waiter) {
            self.policy().counters.count(Count::Full);
            return Err(op);
        }
        Ok(self.launch_in(class, op, waker))
    }

    /// For a future that waits for a permit: has `waker` woken at the deadline.
    pub(super) fn wake_at(&self, deadline: Instant, waker: &Waker) -> Expiry {
        let deadlines = &self.core().deadlines;
        let expiry = deadlines.wake_at(deadline, self.next_ticket(), waker);
        self.watch_deadlines();
        expiry
    }

    /// For a future: stops an operation that has no permit. Data that the calling thread has
    /// transferred counts.
    pub(super) fn stop(&self, op: Op, why: ErrorKind) -> Completion {
        let request = Request::new(op, self.next_ticket(), CompletionTarget::Local);
        let (request, outcome) = request.stop(why);
        request.complete(self.core(), outcome, true)
    }

    /// As `launch`, but an operation that finds the engine full does not wait for a permit.
    pub(super) fn launch_if_room(&self, op: Op) -> std::result::Result<InFlight, Op> {
        let class = Class::of(&op.body.kind);
        if !self.core().permits(class).try_acquire(1) {
            return Err(op);
        }
        Ok(self.launch_in(class, op, Waker::noop()))
    }

    /// For a future: takes a permit for a read or write of this file. If there is no permit, `waker`
    /// is woken when there is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn reserve(
        &self,
        file: &Handle,
        waker: &Waker,
        watch: &mut Option<Watch>,
    ) -> Option<Reserved<'_>> {
        let permits = self.core().permits(Class::of_handle(file));
        if !permits.poll_acquire_or_watch(waker, watch) {
            self.policy().counters.count(Count::Full);
            return None;
        }
        Some(Reserved::new(permits.guard(), waker))
    }

    /// Queues an operation that has its permit.
    fn launch_in(&self, class: Class, op: Op, waker: &Waker) -> InFlight {
        let permit = self.core().permits(class).guard();
        self.launch_reserved(op, Reserved::new(permit, waker))
    }

    /// Queues an operation that uses a reserved permit of its class.
    pub(super) fn launch_reserved(&self, op: Op, reserved: Reserved<'_>) -> InFlight {
        let class = Class::of(&op.body.kind);
        let op_state = reserved.used();
        let stoppable = class == Class::Unbounded && op.body.kind.can_be_stopped();
        let target = CompletionTarget::Future(op_state.clone(), class);
        let ticket = self.queue(op, class, target);
        let stop = stoppable.then(|| (Arc::downgrade(&self.0) as Weak<dyn Cancel>, ticket));
        InFlight { op_state, stop }
    }

    /// Queues a call that has its permit, and whose future waits for `op_state` already.
    #[cfg(feature = "tokio")]
    pub(crate) fn launch_with_state(&self, op: Op, op_state: Arc<OpState>) {
        let class = Class::of(&op.body.kind);
        self.queue(op, class, CompletionTarget::Future(op_state, class));
    }

    /// Has one more worker take turns at a task. Returns false if there is no worker for it.
    pub(crate) fn add_worker(&self, task: Arc<dyn Task>) -> bool {
        self.shared().pools.of(Class::File).add_worker(task)
    }

    /// The number of workers that may take turns at one task.
    pub(crate) fn max_task_workers(&self) -> usize {
        self.shared().pools.of(Class::File).share_of_a_file()
    }

    /// Returns an error in a forked child.
    pub(crate) fn check_process(&self, operation: &'static str) -> Result<()> {
        self.core().check_process(operation)
    }

    /// Moves completions of submitted operations into `out`, and returns how many. Completions of
    /// futures are not among them. Any thread may reap; each completion goes to one thread.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn reap(&self, out: &mut Vec<Completion>, wait: Wait) -> Result<usize> {
        self.reap_at_most(usize::MAX, out, wait)
    }

    /// Like [`reap`](Engine::reap), for at most `most` completions. The others stay where they are:
    /// each keeps its permit, and another thread can reap it. The wait is over once there are
    /// `most`.
    ///
    /// # Errors
    /// The same errors as [`reap`](Engine::reap).
    ///
    /// ```
    /// use nowait::engine::{Engine, Wait};
    /// use nowait::op::{Nop, Op};
    /// let engine = Engine::new()?;
    /// engine.submit_batch(&mut (0..3).map(|_| Op::from(Nop)).collect());
    /// let mut done = Vec::new();
    /// assert_eq!(engine.reap_at_most(2, &mut done, Wait::For(2))?, 2);
    /// assert_eq!(engine.in_flight(), 1);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn reap_at_most(
        &self,
        most: usize,
        out: &mut Vec<Completion>,
        wait: Wait,
    ) -> Result<usize> {
        self.check_process("reap")?;
        let waiting = Waiting::begin(wait);
        let taken = |taken: Taken| {
            for (class, count) in Class::ALL.into_iter().zip(taken) {
                if count > 0 {
                    self.core().permits(class).release(count);
                }
            }
        };
        Ok(self.shared().completions.reap(out, most, &waiting, taken))
    }

    /// Asks the engine to stop an operation. An operation that is stopped in time completes with
    /// [`ErrorKind::Cancelled`]. An operation that the device already works on completes as it
    /// would have without this call. There is exactly one completion in both cases. The ticket of a
    /// completed operation is ignored.
    pub fn cancel(&self, ticket: Ticket) {
        self.shared().cancel(ticket, ErrorKind::Cancelled);
    }

    /// An eventfd that is readable while there is something to reap, for poll, epoll and event
    /// loops. The program leaves reading it to `reap`.
    ///
    /// # Errors
    /// The errno of eventfd(2), such as EMFILE, at the first call; [`ErrorKind::Forked`] in a
    /// forked child.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        self.check_process("event_fd")?;
        Ok(self.shared().completions.event()?.as_fd())
    }
}

impl Cancel for CloseOnDrop {
    fn cancel(&self, ticket: Ticket, why: ErrorKind) {
        self.0.cancel(ticket, why);
    }
}

impl Shared {
    fn cancel(&self, ticket: Ticket, why: ErrorKind) {
        if !self.core.process.is_here() || self.pools.cancel(ticket, why) {
            return;
        }
        if let Some(inbox) = &self.inbox {
            inbox.send(Message::Cancel(ticket, why));
        }
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if !self.0.core.process.is_here() {
            // In a forked child there is no thread to be notified, and nothing can be freed: a
            // thread of the parent may have held a lock at the fork.
            return std::mem::forget(self.0.clone());
        }
        self.0.core.deadlines.close();
        self.0.completions.close();
        if let Some(inbox) = &self.0.inbox {
            inbox.close();
        }
    }
}
