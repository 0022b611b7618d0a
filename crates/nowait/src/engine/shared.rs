//! The shared engine: many threads submit, one owner drives the ring, futures and reapers wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::task::Waker;

use super::backend::{Backend, Choice, choose, no_ring};
use super::chain::{Chain, RefusedChain};
use super::class::Class;
use super::completion_queue::{CompletionQueue, Taken};
use super::core::Core;
use super::features::Features;
use super::file_set::FileSet;
use super::in_flight::{Cancel, InFlight};
use super::op_state::OpState;
use super::options::Options;
use super::owner::{Inbox, Message, start_owner};
use super::pools::Pools;
use super::reply::Reply;
use super::request::Request;
use super::semaphore::Waiter;
#[cfg(feature = "tokio")]
use super::semaphore::Watch;
use super::submit::{Begun, Submit, begin};
use super::wait::{Wait, Waiting};
use super::workers::Task;
use crate::completion::{Completion, Ticket};
use crate::cost::Costs;
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "tokio")]
use crate::handle::Handle;
use crate::op::{Kind, Op};
use crate::policy::Policy;
use crate::read::{Rest, Route};
use crate::registered::Notified;
use crate::stats::{Count, Stats};
use crate::sys::process::PerProcess;

/// An engine that any thread may submit to. Clones are the same engine.
///
/// When the last clone (and the last [`File`](crate::File) on it) is dropped, operations in flight
/// go on to their end, with all they own; then its threads end.
///
/// In a forked child it refuses to work ([`ErrorKind::Forked`]): make a new one there.
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
pub struct Engine(Arc<Closer>);

/// The handles' share of an engine: its end is the engine's.
#[derive(Debug)]
struct Closer(Arc<Shared>);

struct Shared {
    core: Arc<Core>,
    choice: Choice,
    /// The way to the owner of the ring, where there is one.
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
    /// `InvalidInput` for a depth or worker count out of range or a `NOWAIT_BACKEND` that is
    /// neither `uring` nor `threads`; the kernel's errno if an insisted-on ring is denied or no
    /// thread can be started; [`NeedsRing`](ErrorKind::NeedsRing) if it is to be polled or to have
    /// SQPOLL, and there is no such ring.
    pub fn build(&self) -> Result<Engine> {
        Engine::with(self)
    }
}

impl Engine {
    /// An engine with the default [`Options`].
    ///
    /// # Errors
    /// If not even one thread can be started.
    pub fn new() -> Result<Engine> {
        Options::new().build()
    }

    /// Options to set before making one.
    pub fn options() -> Options {
        Options::new()
    }

    /// The engine that this process's files use when none is named: made on first use, and anew
    /// in a forked child.
    ///
    /// # Errors
    /// As [`new`](Engine::new).
    pub fn process() -> Result<Engine> {
        Engine::process_or(Engine::new).map(|(engine, _)| engine)
    }

    /// Makes the engine that this process's files use when none is named, with limits of the
    /// program's own. To be called before its first use.
    ///
    /// # Errors
    /// `InvalidInput` if it was made already; else as [`Options::build`].
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
                let what = "make_process (the process's engine was made before)";
                Err(Error::new(what, ErrorKind::InvalidInput))
            }
        }
    }

    /// The process's engine, and true if `make` made it now.
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
        let (made, choice) = choose(options.backend, options.ring.insisted(), || {
            start_owner(&core, options, &pools)
        })?;
        let (inbox, features) = made.unzip();
        core.note_features(features, &choice);
        if choice.backend == Backend::Threads {
            pools.start()?;
        }
        Ok(Engine(Arc::new(Closer(Arc::new(Shared {
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

    /// Whether nothing that needs a device is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.core().is_idle()
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.core().policy
    }

    /// Which backend carries operations.
    pub fn backend(&self) -> Backend {
        self.shared().choice.backend
    }

    /// Why it is that one.
    pub fn why(&self) -> &str {
        &self.shared().choice.why
    }

    /// What of a ring's features it has, and why not the rest.
    pub fn features(&self) -> Features {
        self.core().features()
    }

    /// Makes the engine's set of registered files, with room for so many (at most 1,048,576).
    /// Waits for the ring's owner to do so.
    ///
    /// # Errors
    /// `InvalidInput` for no room, too much of it, or a second set; [`ErrorKind::Forked`] in a
    /// forked child.
    pub fn file_set(&self, capacity: usize) -> Result<FileSet> {
        let inbox = &self.shared().inbox;
        let set = FileSet::new(
            capacity,
            inbox.as_ref().map(|inbox| {
                let owner: Weak<dyn Notified> = Arc::downgrade(inbox) as _;
                owner
            }),
        );
        self.core().file_set(set, |set| {
            let inbox = inbox.as_ref().ok_or_else(no_ring)?;
            let (told, answer) = mpsc::channel();
            inbox.send(Message::Register(set.table().clone(), told));
            answer.recv().unwrap_or_else(|_| Err(no_ring()))
        })
    }

    /// How many operations may be in flight at once, of each class (see [`Options::depth`]).
    pub fn depth(&self) -> usize {
        self.core().depth()
    }

    /// How many operations are in flight, or done and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.core().in_flight()
    }

    /// What this engine and its files have done so far.
    pub fn stats(&self) -> Stats {
        self.policy().counters.snapshot()
    }

    /// What a hit, a miss and a handoff cost, as this engine has observed them.
    pub fn costs(&self) -> Costs {
        self.policy().costs()
    }

    /// Submits one operation. A read whose plan is to try the page cache first may be done at
    /// once; everything else is queued, and comes out of [`reap`](Engine::reap).
    pub fn submit(&self, mut op: Op) -> Submit {
        if let Err(error) = self.check_process(op.name()) {
            return Submit::Done(Completion::failed(error, op));
        }
        match self.begin(&mut op) {
            Begun::Done(result, provenance) => Submit::Done(Completion {
                result,
                op,
                provenance,
                ticket: None,
            }),
            Begun::Rest(rest) => {
                let class = Class::of(&op.kind);
                if !self.core().places(class).try_take(1) {
                    self.policy().counters.count(Count::Full);
                    return Submit::Full(op);
                }
                self.shared().completions.expect(1);
                let reply = Reply::Queue(self.shared().completions.clone(), class);
                Submit::Queued(self.queue(op, class, rest, reply))
            }
        }
    }

    /// The caller's part of one operation.
    pub(super) fn begin(&self, op: &mut Op) -> Begun {
        let (begun, ahead) = begin(self.policy(), op, false, || self.is_idle());
        ahead.into_iter().for_each(|ahead| self.read_ahead(ahead));
        begun
    }

    /// Submits operations until the engine is full; what it did not take stays in `ops`. Reads of
    /// an eager engine go to the ring as they are: the kernel tries the page cache itself, with
    /// one system call for all. Returns how many were taken; each comes out of
    /// [`reap`](Engine::reap), also one that was done at once. In a forked child it takes none.
    pub fn submit_batch(&self, ops: &mut Vec<Op>) -> usize {
        if self.check_process("submit").is_err() {
            return 0;
        }
        let batch = self.backend() == Backend::Uring;
        let mut taken = 0;
        let mut rest = std::mem::take(ops).into_iter();
        for mut op in rest.by_ref() {
            let class = Class::of(&op.kind);
            if !self.core().places(class).try_take(1) {
                self.policy().counters.count(Count::Full);
                ops.push(op);
                break;
            }
            taken += 1;
            self.shared().completions.expect(1);
            let completions = &self.shared().completions;
            // It has its own place already.
            let alone = || self.core().places(Class::File).taken() <= 1;
            let (begun, ahead) = begin(self.policy(), &mut op, batch, alone);
            ahead.into_iter().for_each(|ahead| self.read_ahead(ahead));
            match begun {
                Begun::Done(result, provenance) => {
                    let completion = Completion {
                        result,
                        op,
                        provenance,
                        ticket: None,
                    };
                    drop(completions.push(class, completion));
                }
                Begun::Rest(rest) => {
                    let reply = Reply::Queue(completions.clone(), class);
                    self.queue(op, class, rest, reply);
                }
            }
        }
        ops.extend(rest);
        taken
    }

    /// Submits a chain, whole or not at all; each of its operations comes out of
    /// [`reap`](Engine::reap). Returns their tickets, in order.
    ///
    /// # Errors
    /// The chain, with the reason: see [`RefusedChain`].
    pub fn submit_chain(&self, mut chain: Chain) -> Result<Vec<Ticket>, RefusedChain> {
        let shared = self.shared();
        let inbox = shared.inbox.as_ref();
        let refused = self
            .core()
            .refuses_chain(&mut chain, inbox.map(|inbox| &inbox.supported));
        let inbox = match (refused, inbox) {
            (None, Some(inbox)) => inbox,
            (error, _) => {
                let error = error.unwrap_or(Error::new("submit_chain", ErrorKind::NeedsRing));
                return Err(RefusedChain { error, chain });
            }
        };
        // All of them in the places of the class that may wait longest.
        let classes = chain.0.iter().map(|op| Class::of(&op.kind));
        let class = classes.max().unwrap_or_default();
        if !self.core().places(class).try_take(chain.len()) {
            self.policy().counters.count(Count::Full);
            let error = Error::new("submit_chain", ErrorKind::Full);
            return Err(RefusedChain { error, chain });
        }
        shared.completions.expect(chain.len());
        self.policy()
            .counters
            .add(Count::Handoffs, chain.len() as u64);
        let request = |op: Op| {
            let ticket = self.next_ticket(&op);
            let reply = Reply::Queue(shared.completions.clone(), class);
            Request::new(op, None, ticket, reply).0
        };
        let requests: Vec<Request> = chain.0.into_iter().map(request).collect();
        let tickets = requests.iter().map(|request| request.ticket).collect();
        let due: Vec<_> = requests.iter().filter_map(Request::due).collect();
        inbox.send(Message::Chain(requests));
        due.into_iter()
            .for_each(|(at, ticket)| shared.core.deadlines.arm(at, ticket));
        Ok(tickets)
    }

    /// A ticket for an operation, whose deadline is noted.
    fn next_ticket(&self, op: &Op) -> Ticket {
        let shared = self.shared();
        let ticket = Ticket(shared.tickets.fetch_add(1, Ordering::Relaxed));
        if let Some(deadline) = op.get_deadline() {
            shared.core.deadlines.add(deadline, ticket);
            let engine = Arc::downgrade(&self.0);
            shared.core.deadlines.watch(move |ticket| {
                if let Some(engine) = engine.upgrade() {
                    engine.0.cancel(ticket, ErrorKind::DeadlinePassed);
                }
            });
        }
        ticket
    }

    /// Hands an operation, which has its place, to the ring's owner or to the pool.
    fn queue(&self, op: Op, class: Class, rest: Option<Rest>, reply: Reply) -> Ticket {
        let shared = self.shared();
        let deadline = op.get_deadline();
        let ticket = self.next_ticket(&op);
        let (mut request, route) = Request::new(op, rest, ticket, reply);
        let inbox = shared.inbox.as_ref();
        let ring_takes = |kind: &Kind| inbox.is_some_and(|inbox| inbox.supported.contains(kind));
        if let Some(why) = shared.core.refuses(&mut request.op.kind, ring_takes) {
            let (reply, completion) = request.stop(&shared.core, why);
            if let Some(unwanted) = reply.deliver(&shared.core, completion) {
                unwanted.discard(&shared.core);
            }
            return ticket;
        }
        // It has its own place already. Many such writes at once are the ring's: it has one kernel
        // worker do all of a file's, where ours would wait for each other.
        let alone = || shared.core.places(class).taken() == 1;
        let sooner_here = request.op.kind.is_put_off_by_ring() && alone();
        shared.core.policy.counters.count(Count::Handoffs);
        match (&shared.inbox, route) {
            // What no ring takes need not go through the owner: one wake-up less.
            (Some(inbox), Route::Ring)
                if inbox.supported.contains(&request.op.kind) && !sooner_here =>
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

    /// Has a worker read ahead.
    pub(crate) fn read_ahead(&self, op: Op) {
        let shared = self.shared();
        let ticket = Ticket(shared.tickets.fetch_add(1, Ordering::Relaxed));
        if let Some(request) = Request::ahead(&shared.core, op, ticket) {
            shared.pools.push(request);
        }
    }

    /// For a future: queues an operation, or says that there is no place and that `waker` will be
    /// woken when there is one.
    pub(crate) fn launch(
        &self,
        op: Box<Op>,
        rest: Option<Rest>,
        waker: &Waker,
        waiter: &mut Option<Waiter>,
    ) -> std::result::Result<InFlight, (Box<Op>, Option<Rest>)> {
        let class = Class::of(&op.kind);
        if !self.take_place(class, waker, waiter) {
            return Err((op, rest));
        }
        Ok(self.launch_in(class, *op, rest, waker))
    }

    /// For a future: takes a place for a read or write of this file, which
    /// [`launch_reserved`](Engine::launch_reserved) must then use, or says that there is none and that
    /// `waker` will be woken when there is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn reserve(&self, file: &Handle, waker: &Waker, watch: &mut Option<Watch>) -> bool {
        let places = self.core().places(Class::of_handle(file));
        let taken = places.poll_take_or_watch(waker, watch);
        if !taken {
            self.policy().counters.count(Count::Full);
        }
        taken
    }

    fn take_place(&self, class: Class, waker: &Waker, waiter: &mut Option<Waiter>) -> bool {
        let taken = self.core().places(class).poll_take(waker, waiter);
        if !taken {
            self.policy().counters.count(Count::Full);
        }
        taken
    }

    /// Queues a read or write for which there is a place.
    #[cfg(feature = "tokio")]
    pub(crate) fn launch_reserved(&self, op: Op, waker: &Waker) -> InFlight {
        self.launch_in(Class::of(&op.kind), op, None, waker)
    }

    fn launch_in(&self, class: Class, op: Op, rest: Option<Rest>, waker: &Waker) -> InFlight {
        // To clone a waker is to call the program: if that panics, the place is given back.
        let op_state = catch_unwind(AssertUnwindSafe(|| Arc::new(OpState::new(waker))));
        let op_state = op_state.unwrap_or_else(|panic| {
            self.core().places(class).give_back(1);
            resume_unwind(panic)
        });
        let stoppable = class == Class::Unbounded && op.kind.can_be_stopped();
        let reply = Reply::OpState(op_state.clone(), class);
        let ticket = self.queue(op, class, rest, reply);
        let stop = stoppable.then(|| (Arc::downgrade(&self.0) as Weak<dyn Cancel>, ticket));
        InFlight::new(op_state, stop)
    }

    /// Queues a call for which there is a place, and whose future waits for this op_state already.
    #[cfg(feature = "tokio")]
    pub(crate) fn launch_for(&self, op: Op, op_state: Arc<OpState>) {
        let class = Class::of(&op.kind);
        self.queue(op, class, None, Reply::OpState(op_state, class));
    }

    /// Has one more worker take turns at a task. Says whether there is one to do so.
    pub(crate) fn help(&self, task: Arc<dyn Task>) -> bool {
        self.shared().pools.help(task)
    }

    /// How many workers may take turns at one task.
    pub(crate) fn helpers(&self) -> usize {
        self.shared().pools.helpers()
    }

    /// Refuses to work in a forked child.
    pub(crate) fn check_process(&self, operation: &'static str) -> Result<()> {
        self.core().check_process(operation)
    }

    /// Collects completions of submitted operations (not those of futures) into `out`; returns
    /// how many. Any thread may reap; each completion goes to one of them.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn reap(&self, out: &mut Vec<Completion>, wait: Wait) -> Result<usize> {
        self.check_process("reap")?;
        let waiting = Waiting::begin(wait);
        let taken = |taken: Taken| {
            for (class, count) in Class::ALL.into_iter().zip(taken) {
                if count > 0 {
                    self.core().places(class).give_back(count);
                }
            }
        };
        Ok(self.shared().completions.reap(out, &waiting, taken))
    }

    /// Asks that an operation be stopped. If that comes in time it completes with
    /// [`ErrorKind::Cancelled`]; what the device already works on completes as it would have.
    /// Either way there is exactly one completion. A ticket of the past is ignored.
    pub fn cancel(&self, ticket: Ticket) {
        self.shared().cancel(ticket, ErrorKind::Cancelled);
    }

    /// A descriptor (an eventfd) that is readable while there is something to reap: for poll,
    /// epoll and event loops. Reading it is `reap`'s business.
    ///
    /// # Errors
    /// EMFILE and the like, at the first call; [`ErrorKind::Forked`] in a forked child.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>> {
        self.check_process("event_fd")?;
        Ok(self.shared().completions.event()?.as_fd())
    }
}

impl Cancel for Closer {
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

impl Drop for Closer {
    fn drop(&mut self) {
        if !self.0.core.process.is_here() {
            // In a forked child there is nobody to be told, and nothing of it is ours to free: a
            // thread that is not here to let go may have held any lock of it.
            return std::mem::forget(self.0.clone());
        }
        self.0.core.deadlines.close();
        self.0.completions.close();
        if let Some(inbox) = &self.0.inbox {
            inbox.close();
        }
    }
}
