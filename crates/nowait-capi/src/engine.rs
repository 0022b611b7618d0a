//! nw_engine: operations are submitted to it, and their completions are reaped.

mod completion;
mod op;
mod options;
mod read_file;
mod stats;

pub use completion::nw_completion;
pub use op::*;
pub use options::*;
pub use read_file::nw_read_file;
pub use stats::nw_stats;

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int, c_uint};
use std::os::fd::AsRawFd;
use std::thread::{LocalKey, ThreadId};
use std::time::Duration;

use libc::{size_t, ssize_t, timespec};
use nowait::engine::{Backend, Engine, LocalEngine, Submit, Wait};
use nowait::op::Op;
use nowait::{Completion, Mode, Ticket};

use crate::guard::{Outcome, copy_in, copy_out, failed, get, get_mut, guard, guard_or};
use crate::handle::{self, Closed, Slot};

/// The operation is done: *completion has its result.
pub const NW_DONE: c_int = 0;
/// The operation is queued: nw_reap will return its completion. Its ticket is in
/// completion->ticket.
pub const NW_QUEUED: c_int = 1;
/// The engine is full: reap, then submit the operation again.
pub const NW_FULL: c_int = 2;

/// An engine. A shared engine may be used by all threads, a local one by the thread that made it.
pub struct nw_engine(());

struct Inner {
    engine: Kind,
    /// The reason for the backend.
    why: CString,
    mode: Mode,
    /// The most bytes that the calling thread copies from the page cache. `None` if it never tries.
    copy_limit: Option<usize>,
}

enum Kind {
    Shared(Engine),
    Local(Box<Local>),
}

struct Local {
    engine: RefCell<LocalEngine>,
    thread: ThreadId,
}

impl handle::Handle for Inner {
    type InC = nw_engine;

    fn closed() -> &'static Closed<Inner> {
        static CLOSED: Closed<Inner> = Closed::new();
        &CLOSED
    }
}

thread_local! {
    /// The completions of one nw_reap, before they are converted. The list keeps its memory.
    static REAPED: Cell<Vec<Completion>> = const { Cell::new(Vec::new()) };
    /// The operations of one nw_submit_batch. The list keeps its memory.
    static OPS: Cell<Vec<Op>> = const { Cell::new(Vec::new()) };
}

impl Inner {
    /// An engine that the calling thread may use. EPERM for a local engine of another thread, which
    /// nothing of it may touch.
    ///
    /// # Safety
    /// As [`Slot::get`].
    unsafe fn get<'a>(engine: *const nw_engine) -> Outcome<&'a Inner> {
        // SAFETY: the caller's promise.
        let engine = unsafe { Slot::<Inner>::get(engine)? };
        engine.check_thread()?;
        Ok(engine)
    }

    fn check_thread(&self) -> Outcome<()> {
        match &self.engine {
            Kind::Local(local) if std::thread::current().id() != local.thread => Err(libc::EPERM),
            _ => Ok(()),
        }
    }

    /// Submits an operation. Returns NW_DONE, NW_QUEUED or NW_FULL.
    fn submit(&self, op: Op, place: &mut nw_completion) -> c_int {
        let submitted = match &self.engine {
            Kind::Shared(engine) => engine.submit(op),
            Kind::Local(local) => local.engine.borrow_mut().submit(op),
        };
        match submitted {
            Submit::Done(done) => {
                *place = nw_completion::of(done);
                NW_DONE
            }
            Submit::Queued(ticket) => {
                *place = nw_completion::default();
                place.ticket = ticket.0;
                NW_QUEUED
            }
            Submit::Full(op) => {
                op::give_back(op);
                NW_FULL
            }
        }
    }

    /// The number of operations in flight, and of completions that are not reaped.
    fn in_flight(&self) -> usize {
        match &self.engine {
            Kind::Shared(engine) => engine.in_flight(),
            Kind::Local(local) => local.engine.borrow().in_flight(),
        }
    }
}

/// Makes an engine. `options` may be null. Returns 0 or −errno. See nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_create(
    options: *const nw_engine_options,
    engine: *mut *mut nw_engine,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let place = unsafe { get_mut(engine)? };
        let asked = if options.is_null() {
            nw_engine_options::default()
        } else {
            // SAFETY: as above.
            unsafe { copy_in(options)? }
        };
        let (options, mode, copy_limit) = (asked.options()?, asked.mode(), asked.copy_limit()?);
        let (engine, why) = if asked.is_local() {
            let engine = options.build_local().map_err(failed)?;
            let why = engine.why().to_owned();
            let local = Local {
                engine: RefCell::new(engine),
                thread: std::thread::current().id(),
            };
            (Kind::Local(Box::new(local)), why)
        } else {
            let engine = options.build().map_err(failed)?;
            let why = engine.why().to_owned();
            (Kind::Shared(engine), why)
        };
        let why = CString::new(why).unwrap_or_default();
        *place = Slot::open(Inner {
            engine,
            why,
            mode,
            copy_limit,
        });
        Ok(0)
    })
}

/// Frees an engine. Returns 0, −EBUSY while operations are in flight or completions are not reaped,
/// −EPERM for a local engine of another thread. See nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_destroy(engine: *mut nw_engine) -> c_int {
    let close = |engine: Inner| {
        let idle = |()| match engine.in_flight() {
            0 => Ok(()),
            _ => Err(libc::EBUSY),
        };
        match engine.check_thread().and_then(idle) {
            Ok(()) => Ok(()),
            Err(errno) => Err((errno, engine)),
        }
    };
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe { Slot::<Inner>::close(engine, close) }.map(|()| 0))
}

/// Submits one operation. Returns NW_DONE, NW_QUEUED or NW_FULL, or −errno if the operation is
/// invalid. Its memory belongs to the engine until its completion. See nw_submit(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_submit(
    engine: *const nw_engine,
    op: *const nw_op,
    completion: *mut nw_completion,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let (engine, op, place) = unsafe { (Inner::get(engine)?, get(op)?, get_mut(completion)?) };
        // SAFETY: as above.
        let op = unsafe { op.convert()? };
        Ok(engine.submit(op, place))
    })
}

/// Submits operations in their order, with one system call if possible, until the engine is full or
/// an operation is invalid. Returns the number of operations that were taken, or −errno if the
/// first one is invalid. nw_reap returns the completion of each, also of those that are done at
/// once. See nw_submit(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_submit_batch(
    engine: *const nw_engine,
    ops: *const nw_op,
    count: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let engine = unsafe { Inner::get(engine)? };
        if count == 0 {
            return Ok(0);
        }
        if ops.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: as above.
        let ops = unsafe { std::slice::from_raw_parts(ops, count as usize) };
        let submit = |list: &mut Vec<Op>| {
            for op in ops {
                // SAFETY: as above.
                match unsafe { op.convert() } {
                    Ok(op) => list.push(op),
                    Err(errno) if list.is_empty() => return Err(errno),
                    Err(_) => break,
                }
            }
            let taken = match &engine.engine {
                Kind::Shared(engine) => engine.submit_batch(list),
                Kind::Local(local) => local.engine.borrow_mut().submit_batch(list),
            };
            list.drain(..).for_each(op::give_back);
            Ok(taken as c_int)
        };
        with_list(&OPS, submit)
    })
}

/// Runs a closure with a list of the calling thread.
fn with_list<T, R>(
    of_thread: &'static LocalKey<Cell<Vec<T>>>,
    run: impl FnOnce(&mut Vec<T>) -> R,
) -> R {
    let mut list = of_thread.take();
    let result = run(&mut list);
    list.clear();
    of_thread.set(list);
    result
}

/// Takes completions. Waits until `wait_for` of them are there, nothing is in flight, or the time
/// is up. If `wait_for` is greater than 1, it also waits after that time for a first one. A null
/// timeout is no limit. Returns their number, which may be 0, or −errno. See nw_reap(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_reap(
    engine: *const nw_engine,
    completions: *mut nw_completion,
    count: c_uint,
    wait_for: c_uint,
    timeout: *const timespec,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let engine = unsafe { Inner::get(engine)? };
        if count == 0 || wait_for > count {
            return Err(libc::EINVAL);
        }
        if completions.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: as above.
        let timeout = unsafe { timeout.as_ref() }.map(duration).transpose()?;
        // SAFETY: as above. All bit patterns are valid completions.
        let room = unsafe { std::slice::from_raw_parts_mut(completions, count as usize) };
        let wait = condition(wait_for as usize, timeout);
        with_list(&REAPED, |reaped| {
            let taken = match &engine.engine {
                Kind::Shared(engine) => engine.reap_at_most(room.len(), reaped, wait),
                Kind::Local(local) => {
                    let mut engine = local.engine.borrow_mut();
                    engine.reap_at_most(room.len(), reaped, wait)
                }
            };
            let taken = taken.map_err(failed)?;
            for (place, completion) in room.iter_mut().zip(reaped.drain(..)) {
                *place = nw_completion::of(completion);
            }
            Ok(taken as c_int)
        })
    })
}

/// The condition until which a reap waits.
fn condition(wanted: usize, timeout: Option<Duration>) -> Wait {
    match (wanted, timeout) {
        (0, _) => Wait::No,
        (_, Some(time)) if time.is_zero() => Wait::No,
        (_, None) => Wait::For(wanted),
        (1, Some(time)) => Wait::UpTo(time),
        (count, Some(within)) => Wait::Batch { count, within },
    }
}

fn duration(time: &timespec) -> Outcome<Duration> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    match u32::try_from(time.tv_nsec) {
        Ok(nanoseconds @ 0..1_000_000_000) => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(libc::EINVAL),
    }
}

/// An eventfd that is readable while there is something to reap, for poll(2) and epoll(7). It
/// belongs to the engine: the program neither reads nor closes it. Returns −errno if there is none.
/// See nw_reap(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_event_fd(engine: *const nw_engine) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let engine = unsafe { Inner::get(engine)? };
        let number = match &engine.engine {
            Kind::Shared(engine) => engine.event_fd().map(|fd| fd.as_raw_fd()),
            Kind::Local(local) => {
                let mut engine = local.engine.borrow_mut();
                engine.event_fd().map(|fd| fd.as_raw_fd())
            }
        };
        number.map_err(failed)
    })
}

/// Asks the engine to stop an operation. It has exactly one completion in any case, with −ECANCELED
/// if it was stopped in time. Returns 0 or −errno. See nw_submit(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_cancel(engine: *const nw_engine, ticket: u64) -> c_int {
    guard(|| {
        let ticket = Ticket(ticket);
        // SAFETY: the C program's promise: the manual page.
        match &unsafe { Inner::get(engine)? }.engine {
            Kind::Shared(engine) => engine.cancel(ticket),
            Kind::Local(local) => local.engine.borrow_mut().cancel(ticket),
        }
        Ok(0)
    })
}

/// The number of operations in flight, and of completions that are not reaped; or −errno. See
/// nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_in_flight(engine: *const nw_engine) -> ssize_t {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let engine = unsafe { Inner::get(engine)? };
        Ok(engine.in_flight() as ssize_t)
    })
}

/// NW_BACKEND_URING or NW_BACKEND_THREADS, or −errno. See nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_backend(engine: *const nw_engine) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let backend = match &unsafe { Inner::get(engine)? }.engine {
            Kind::Shared(engine) => engine.backend(),
            Kind::Local(local) => local.engine.borrow().backend(),
        };
        Ok(match backend {
            Backend::Uring => NW_BACKEND_URING,
            Backend::Threads => NW_BACKEND_THREADS,
        } as c_int)
    })
}

/// The reason for the backend, until the engine is destroyed. Null if the handle is not an engine.
/// See nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_why(engine: *const nw_engine) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: the C program's promise: the manual page.
        unsafe { Slot::<Inner>::get(engine) }.map_or(std::ptr::null(), |engine| engine.why.as_ptr())
    })
}

/// The counters of an engine. stats->size is set by the program to sizeof(struct nw_stats). Returns
/// 0 or −errno. See nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_stats(engine: *const nw_engine, stats: *mut nw_stats) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let counted = match &unsafe { Inner::get(engine)? }.engine {
            Kind::Shared(engine) => engine.stats(),
            Kind::Local(local) => local.engine.borrow().stats(),
        };
        // SAFETY: as above.
        unsafe { copy_out(&nw_stats::of(&counted), stats) }.map(|()| 0)
    })
}

/// Copies the reason why an optional feature of the ring is missing, such as "polled" or
/// "registered files", into `buf`, with a NUL at the end. Returns 0 if the engine has the feature,
/// 1 if it is missing, or −errno: −ENOENT for an unknown name. If the engine has no ring,
/// `nw_engine_why` has the reason. See nw_engine(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_engine_feature(
    engine: *const nw_engine,
    name: *const c_char,
    buf: *mut c_char,
    len: size_t,
) -> c_int {
    use nowait::engine::Feature;
    use nowait::support::Support;
    guard(|| {
        if name.is_null() || (buf.is_null() && len > 0) {
            return Err(libc::EFAULT);
        }
        // SAFETY: the C program's promise: the manual page.
        let (engine, name) =
            unsafe { (Slot::<Inner>::get(engine)?, std::ffi::CStr::from_ptr(name)) };
        let feature = Feature::ALL
            .into_iter()
            .find(|feature| feature.to_string().as_bytes() == name.to_bytes())
            .ok_or(libc::ENOENT)?;
        let support = match &engine.engine {
            Kind::Shared(engine) => engine.support(feature),
            Kind::Local(local) => local.engine.borrow().support(feature),
        };
        let why = match support {
            Support::No(_) => support.to_string(),
            Support::Yes | Support::Untried => String::new(),
        };
        if len > 0 {
            let n = why.len().min(len - 1);
            // SAFETY: as above: the buffer has `len` bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(why.as_ptr(), buf.cast(), n);
                *buf.add(n) = 0;
            }
        }
        Ok(c_int::from(!support.is_yes()))
    })
}
