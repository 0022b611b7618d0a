//! Telling the program that a request, or a whole list, is done.
//!
//! Whoever finishes a request is its owner: the caller itself, for what is done within the call, or
//! the keeper, or the herald, who starts the threads of SIGEV_THREAD.
//!
//! ```text
//!   keeper, herald:  done, told by T ─ own notice ─ the list's, if it was the last ─ T: over
//!   caller:          done ─ own notice ─ the list's, if it was the last
//! ```
//! A handler that runs before T is over waits for that in aio_error(3): keeper and herald take no
//! signals, so they never are the thread that the handler interrupted. The caller is, so it has no T.
//! The block itself is never touched after a notice: whoever got that may have freed it.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::abi::{NotifyFunction, Sigevent, Sigval};
use crate::notification_slot::NotificationSlot;
use crate::process_state::ProcessState;
use crate::request::Request;
use crate::sys::{signal, thread};
use crate::wait;

/// How the program wants to be told.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Not at all.
    Silent,
    /// By a queued signal.
    Signal(c_int, Sigval),
    /// By a function on a thread of its own, with attributes that stay the program's.
    Thread(NotifyFunction, Sigval, Attributes),
}

/// The attributes that the program gave; null for none.
#[derive(Clone, Copy, Debug)]
pub struct Attributes(*const libc::pthread_attr_t);

// SAFETY: Assumption: the program keeps the attributes until it was told, as with glibc.
unsafe impl Send for Attributes {}
// SAFETY: as above; they are only read.
unsafe impl Sync for Attributes {}

const SIGNALS: c_int = 64;

impl Notice {
    /// What a `sigevent` asks for; EINVAL for what there is not.
    pub fn new(event: &Sigevent) -> Result<Notice, Errno> {
        match (event.notify, event.signo) {
            (libc::SIGEV_NONE, _) => Ok(Notice::Silent),
            // A block of zeroes asks for signal 0, which is none.
            (libc::SIGEV_SIGNAL, 0) => Ok(Notice::Silent),
            (libc::SIGEV_SIGNAL, 1..=SIGNALS) => Ok(Notice::Signal(event.signo, event.value)),
            (libc::SIGEV_THREAD, _) => {
                let function = event.notify_function.ok_or(Errno::INVAL)?;
                let attributes = Attributes(event.notify_attributes);
                Ok(Notice::Thread(function, event.value, attributes))
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Whether there is nothing to tell.
    pub fn is_silent(&self) -> bool {
        matches!(self, Notice::Silent)
    }

    /// Whether it takes a thread of the program's.
    fn is_thread(&self) -> bool {
        matches!(self, Notice::Thread(..))
    }

    /// Tells the program. EAGAIN if the signal can't be queued or the thread not be started now.
    pub fn raise(&self) -> Result<(), Errno> {
        match *self {
            Notice::Silent => Ok(()),
            Notice::Signal(signo, value) => {
                wait::count_signal(signo, || signal::queue(signo, value))
            }
            Notice::Thread(function, value, attributes) => start(function, value, attributes),
        }
    }
}

/// What a new thread is to call.
struct Call {
    function: NotifyFunction,
    value: Sigval,
}

unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

/// Starts a thread of the program's.
fn start(function: NotifyFunction, value: Sigval, attributes: Attributes) -> Result<(), Errno> {
    let call = Box::into_raw(Box::new(Call { function, value }));
    let mut detached = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: attributes are the program's, or initialised here and destroyed after use; the new
    // thread owns `call`.
    let errno = unsafe {
        if attributes.0.is_null() {
            libc::pthread_attr_init(detached.as_mut_ptr());
            libc::pthread_attr_setdetachstate(detached.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
            let errno = pthread_create(&raw mut thread, detached.as_ptr(), called, call.cast());
            libc::pthread_attr_destroy(detached.as_mut_ptr());
            errno
        } else {
            pthread_create(&raw mut thread, attributes.0, called, call.cast())
        }
    };
    if errno != 0 {
        // SAFETY: no thread was started that could own it.
        drop(unsafe { Box::from_raw(call) });
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(())
}

/// Such a thread's life. It begins with the mask of whoever started it, and the program's function is
/// to have an empty one. The function may unwind through here (pthread_exit(3)).
unsafe extern "C-unwind" fn called(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `start` gave it away for this.
    let Call { function, value } = *unsafe { Box::from_raw(argument.cast::<Call>()) };
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set; the function is the program's, called as it asked.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        function(value);
    }
    std::ptr::null_mut()
}

/// Requests that were submitted together, when the program wants to be told of the last one.
#[derive(Debug)]
pub struct List {
    /// Requests that are not done, and one more while the list is still being submitted.
    left: AtomicUsize,
    notice: Notice,
}

impl List {
    /// One that is being submitted.
    pub fn new(notice: Notice) -> Arc<List> {
        Arc::new(List {
            left: AtomicUsize::new(1),
            notice,
        })
    }

    /// How it is told.
    pub fn notice(&self) -> &Notice {
        &self.notice
    }

    /// Another request belongs to it.
    pub fn add(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them is done (or all are submitted); says whether it was the last.
    pub fn one_less(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// What came of a request.
pub type Outcome = Result<usize, Errno>;

/// Finishes a request in its caller.
pub fn finish_in_caller(request: &Request, outcome: Outcome) {
    request.block.complete(outcome);
    wait::wake_all();
    raise_in_caller(&request.notice);
    if let Some(list) = &request.list
        && list.one_less()
    {
        raise_in_caller(&list.notice);
    }
}

/// Tells the program from within its own call. What can't be had for the moment (no place in the
/// signal queue, no thread) is the herald's: the caller must not wait for it.
pub fn raise_in_caller(notice: &Notice) {
    if notice.raise() != Err(Errno::AGAIN) {
        return;
    }
    // The keeper needs the herald's lock too.
    signal::with_all_blocked(|| {
        if let Ok(desk) = ProcessState::get_or_init().and_then(ProcessState::desk)
            && desk.herald.be_there().is_ok()
        {
            desk.herald.take(None, [*notice, Notice::Silent]);
        }
    });
}

/// For how long a notice that can't be sent is tried again: one that is lost leaves a program waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after one try comes the next.
const PAUSE: Duration = Duration::from_millis(10);
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Notices that are still to be sent, and the slot whose telling is over when they are.
#[derive(Debug)]
struct Untold {
    slot: Option<&'static NotificationSlot>,
    notices: [Notice; 2],
    /// When it is given up.
    end: Instant,
}

impl Untold {
    /// Tries to tell the program; says whether that is over. While the queue of signals is full none is
    /// tried, so that they stay in order.
    fn tell(&mut self, queue_is_full: &mut bool) -> bool {
        let expired = Instant::now() >= self.end;
        let waits = |notice: &Notice| matches!(notice, Notice::Silent | Notice::Signal(..));
        if *queue_is_full && !expired && self.notices.iter().all(waits) {
            return false;
        }
        if let Some(slot) = self.slot {
            slot.set_sending();
        }
        for notice in &mut self.notices {
            let is_signal = matches!(notice, Notice::Signal(..));
            if is_signal && *queue_is_full {
                continue;
            }
            if notice.raise() == Err(Errno::AGAIN) {
                *queue_is_full |= is_signal;
            } else {
                *notice = Notice::Silent;
            }
        }
        let over = expired || self.notices.iter().all(Notice::is_silent);
        if let Some(slot) = self.slot {
            if over {
                slot.set_finished();
            } else {
                slot.set_delayed();
            }
            wait::wake_all();
        }
        over
    }
}

/// Finishes a request on the keeper, which has a slot of its own. The caller of this announces it.
pub fn finish_in_keeper(
    request: Request,
    outcome: Outcome,
    slot: &mut &'static NotificationSlot,
    herald: &Herald,
) {
    if request.notice.is_silent() && request.list.is_none() {
        return request.block.complete(outcome);
    }
    request.block.complete_and_notify(outcome, slot);
    let last = request.list.as_ref().filter(|list| list.one_less());
    let of_list = last.map_or(Notice::Silent, |list| list.notice);
    // What takes a thread, or can't be queued now, is not for the keeper: all others wait for it.
    let notices = [request.notice, of_list].map(|notice| {
        if notice.is_thread() || notice.raise() == Err(Errno::AGAIN) {
            notice
        } else {
            Notice::Silent
        }
    });
    if notices.iter().all(Notice::is_silent) {
        return slot.set_finished();
    }
    slot.set_delayed();
    let busy = std::mem::replace(slot, herald.idle_slot());
    herald.take(Some(busy), notices);
}

/// The thread that starts the program's threads, and sends signals for which there was no place in the
/// queue. The keeper can't start threads: they would share its descriptor table, which is not the
/// program's.
#[derive(Debug, Default)]
pub struct Herald {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    untold: Vec<Untold>,
    /// Slots whose telling is over.
    idle: Vec<&'static NotificationSlot>,
    started: bool,
}

impl Herald {
    /// Starts its thread, the first time. To be called on a thread of the program's.
    pub fn be_there(&'static self) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        if !state.started {
            thread::start_with_signals_blocked(move || self.tell())?;
            state.started = true;
        }
        Ok(())
    }

    fn idle_slot(&self) -> &'static NotificationSlot {
        let idle = lock(&self.state).idle.pop();
        idle.unwrap_or_else(NotificationSlot::new)
    }

    fn take(&self, slot: Option<&'static NotificationSlot>, notices: [Notice; 2]) {
        lock(&self.state).untold.push(Untold {
            slot,
            notices,
            end: Instant::now() + PATIENCE,
        });
        self.news.notify_one();
    }

    /// The thread's life: rounds, in which each notice that is left is tried once.
    fn tell(&self) {
        let mut left = Vec::new();
        loop {
            let mut state = lock(&self.state);
            if state.untold.is_empty() {
                // What is left is tried again after a pause.
                let pause = if left.is_empty() { FOREVER } else { PAUSE };
                let woken = self.news.wait_timeout(state, pause);
                state = woken.map_or_else(|e| e.into_inner().0, |(state, _)| state);
            }
            left.append(&mut state.untold);
            drop(state);
            let mut queue_is_full = false;
            let mut idle = Vec::new();
            left.retain_mut(|untold| {
                let over = untold.tell(&mut queue_is_full);
                if over {
                    idle.extend(untold.slot);
                }
                !over
            });
            lock(&self.state).idle.append(&mut idle);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
