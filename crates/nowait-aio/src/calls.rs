//! The functions of <aio.h>, as C calls them. On 64-bit Linux the ones with 64 in their names are the
//! same functions.
//!
//! All but aio_suspend(3) run with cancellation off: POSIX has no cancellation points in them, and the
//! calls they make have. None of them lets a panic out: `extern "C"` ends the process instead.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::abi::{
    AIO_ALLDONE, AIO_LISTIO_MAX, AIO_NOTCANCELED, Aiocb, LIO_NOP, LIO_NOWAIT, LIO_READ, LIO_WAIT,
    LIO_WRITE, Sigevent,
};
use crate::attempt::{Attempt, attempt};
use crate::control_block::{ControlBlock, Fields, Status};
use crate::counters::increment;
use crate::notify::{Notification, RequestList};
use crate::process_state::ProcessState;
use crate::queue::{FileRef, Submission, SubmissionQueue};
use crate::request::{Opcode, Outcome, Request};
use crate::sys::errno::fail;
use crate::sys::futex::{self, NEVER};
use crate::sys::signal;
use crate::wait::{self, Wakeup};

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// Runs with cancellation off.
fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: only sets a flag of the calling thread; turning cancellation on again acts on nothing
    // by itself, as deferred cancellation waits for a cancellation point.
    unsafe {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before);
        let result = work();
        pthread_setcancelstate(before, std::ptr::null_mut());
        result
    }
}

fn to_c(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}

/// Submits a read: aio_read(3).
///
/// # Safety
/// As aio_read(3) says of the block and its buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_read(block: *mut Aiocb) -> c_int {
    // SAFETY: the caller's promise.
    to_c(uncancelled(|| unsafe { submit_one(block, Opcode::Read) }))
}

/// Submits a write: aio_write(3).
///
/// # Safety
/// As aio_write(3) says of the block and its buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_write(block: *mut Aiocb) -> c_int {
    // SAFETY: the caller's promise.
    to_c(uncancelled(|| unsafe { submit_one(block, Opcode::Write) }))
}

/// Submits an fsync(2) or fdatasync(2): aio_fsync(3).
///
/// # Safety
/// As aio_fsync(3) says of the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync(op: c_int, block: *mut Aiocb) -> c_int {
    let opcode = match op {
        libc::O_SYNC => Opcode::Sync,
        libc::O_DSYNC => Opcode::DataSync,
        _ => return fail(Errno::INVAL),
    };
    // SAFETY: the caller's promise.
    to_c(uncancelled(|| unsafe { submit_one(block, opcode) }))
}

/// How a request is: aio_error(3). -1 is no request's error: it says that there is no such request.
/// Async-signal-safe.
///
/// # Safety
/// The block must be one that the program may read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_error(block: *const Aiocb) -> c_int {
    match ControlBlock::new(block).map(settled) {
        Some(Status::Done(errno)) => errno,
        Some(Status::NotSubmitted) | None => fail(Errno::INVAL),
        Some(_) => libc::EINPROGRESS,
    }
}

/// What a request that is done returns: aio_return(3). It may be asked again. Async-signal-safe.
///
/// # Safety
/// As for aio_error(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_return(block: *mut Aiocb) -> isize {
    let Some(block) = ControlBlock::new(block) else {
        return fail(Errno::INVAL) as isize;
    };
    match settled(block) {
        Status::Done(0) => block.return_value(),
        Status::Done(errno) => fail(Errno::from_raw_os_error(errno)) as isize,
        Status::NotSubmitted => fail(Errno::INVAL) as isize,
        // Not done. POSIX leaves open what this does. With glibc errno stays as it is, and there are
        // programs that look at nothing else.
        _ => -1,
    }
}

fn generation() -> u64 {
    ProcessState::get().map_or(0, ProcessState::generation)
}

/// How far a block is, when its notification is not just being sent. One that has to wait is not waited
/// for: its request is in progress until the program was told.
fn settled(block: ControlBlock) -> Status {
    let generation = generation();
    let now = || block.status(generation);
    if now() == Status::Notifying {
        wait::uninterrupted(|| now() != Status::Notifying);
    }
    now()
}

/// Waits until one of the requests is done: aio_suspend(3). A cancellation point; async-signal-safe.
///
/// # Safety
/// `list` must have `count` entries, each null or a block of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn aio_suspend(
    list: *const *const Aiocb,
    count: c_int,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: acts on the calling thread only. No frame from here to the caller has a destructor.
    unsafe { pthread_testcancel() };
    // SAFETY: the caller's promise.
    let (list, timeout) = unsafe {
        match entries(list, count) {
            Ok(list) => (list, timeout.as_ref()),
            Err(errno) => return fail(errno),
        }
    };
    let generation = generation();
    let mut any = false;
    for block in list.iter().filter_map(|raw| ControlBlock::new(*raw)) {
        if !is_pending(block, generation) {
            return 0;
        }
        any = true;
    }
    if !any {
        return 0;
    }
    let end = match timeout.map(wait::deadline_after) {
        None => NEVER,
        Some(Ok(end)) => end,
        Some(Err(errno)) => return fail(errno),
    };
    let ready = || {
        let mut blocks = list.iter().filter_map(|raw| ControlBlock::new(*raw));
        blocks.any(|block| !is_pending(block, generation))
    };
    match wait::until(ready, &end, cancellable) {
        Wakeup::Ready => 0,
        Wakeup::Interrupted => fail(Errno::INTR),
        Wakeup::TimedOut => fail(Errno::AGAIN),
    }
}

fn is_pending(block: ControlBlock, generation: u64) -> bool {
    matches!(
        block.status(generation),
        Status::InProgress | Status::Notifying | Status::NotificationDelayed
    )
}

/// Whether its words are not ours to change. Those of one that the program is just being told of are:
/// the program may submit it again as soon as it was told.
fn is_in_flight(block: ControlBlock, process: &ProcessState) -> bool {
    matches!(
        block.status(process.generation()),
        Status::InProgress | Status::NotificationDelayed
    )
}

/// The sleep of a cancellation point: a cancelled thread unwinds from within.
extern "C-unwind" fn cancellable(word: &AtomicU32, value: u32, end: &libc::timespec) -> c_int {
    let mut before = 0;
    // SAFETY: acts on the calling thread only. While it may be cancelled at any instruction it is
    // in a system call and what leads there, and holds nothing.
    unsafe {
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut before);
        let woken = futex::wait(word, value, end);
        pthread_setcanceltype(before, std::ptr::null_mut());
        woken
    }
}

/// Cancels a request, or all of a file: aio_cancel(3).
///
/// # Safety
/// The block must be null or one of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_cancel(fildes: c_int, block: *mut Aiocb) -> c_int {
    // SAFETY: the caller's promise.
    match uncancelled(|| unsafe { cancel(fildes, ControlBlock::new(block)) }) {
        Ok(answer) => answer,
        Err(errno) => fail(errno),
    }
}

unsafe fn cancel(fildes: RawFd, block: Option<ControlBlock>) -> Result<c_int, Errno> {
    flags_of(fildes)?;
    let generation = generation();
    let in_progress = |block: ControlBlock| block.status(generation) == Status::InProgress;
    if let Some(block) = block {
        // SAFETY: the caller's promise.
        if unsafe { block.fields() }.fildes != fildes {
            return Err(Errno::INVAL);
        }
        match block.status(generation) {
            Status::InProgress => {}
            // No request has this block.
            Status::CopyInProgress => return Err(Errno::INVAL),
            _ => return Ok(AIO_ALLDONE),
        }
    }
    let Some(queue) = ProcessState::get().and_then(ProcessState::queue) else {
        return Ok(match block {
            Some(block) if in_progress(block) => AIO_NOTCANCELED,
            _ => AIO_ALLDONE,
        });
    };
    if queue.is_disconnected() {
        return Ok(AIO_NOTCANCELED);
    }
    match (queue.cancel(fildes, block), block) {
        // Another thread is still submitting it.
        (AIO_ALLDONE, Some(block)) if in_progress(block) => Ok(AIO_NOTCANCELED),
        (answer, _) => Ok(answer),
    }
}

/// Submits a list: lio_listio(3).
///
/// # Safety
/// `list` must have `count` entries, each null or a block as for aio_read(3); `event` must be null or
/// a `sigevent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut Aiocb,
    count: c_int,
    event: *const Sigevent,
) -> c_int {
    // SAFETY: the caller's promise.
    to_c(uncancelled(|| unsafe {
        let list = entries(list.cast::<*const Aiocb>(), count)?;
        match mode {
            LIO_WAIT => {
                let submitted = submit_list(list, None);
                wait_for(list)?;
                submitted?;
                // SAFETY: as above.
                failed_ones(list)
            }
            LIO_NOWAIT => {
                let notice = event
                    .as_ref()
                    .map_or(Ok(Notification::None), Notification::new)?;
                // The list is on the heap.
                signal::with_all_blocked(|| {
                    let together = (!notice.is_none()).then(|| RequestList::new(notice));
                    let submitted = submit_list(list, together.as_ref());
                    if let Some(together) = together
                        && together.remove()
                    {
                        raise_in_caller(together.notification());
                    }
                    submitted
                })
            }
            _ => Err(Errno::INVAL),
        }
    }))
}

/// Accepts hints that nothing here has a use for: aio_init(3).
#[unsafe(no_mangle)]
pub extern "C" fn aio_init(_hints: *const c_void) {}

/// The program's array of blocks.
///
/// # Safety
/// It must have `count` entries.
unsafe fn entries<'a>(
    list: *const *const Aiocb,
    count: c_int,
) -> Result<&'a [*const Aiocb], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    match (count, list.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::INVAL),
        (n, _) if n > AIO_LISTIO_MAX => Err(Errno::INVAL),
        // SAFETY: the caller's promise.
        (n, false) => Ok(unsafe { std::slice::from_raw_parts(list, n) }),
    }
}

/// The flags of an open file; EBADF of what is none.
fn flags_of(fildes: RawFd) -> Result<OFlags, Errno> {
    if fildes < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number may be anything: the call says EBADF of what is no descriptor.
    rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fildes) })
}

/// The flags of an open file that this may be done to; EBADF of any other.
fn checked_flags(fildes: RawFd, opcode: Opcode) -> Result<OFlags, Errno> {
    let flags = flags_of(fildes)?;
    let access = flags & OFlags::RWMODE;
    let allowed = match opcode {
        Opcode::Read => access != OFlags::WRONLY,
        Opcode::Write => access != OFlags::RDONLY,
        Opcode::Sync | Opcode::DataSync => true,
    };
    if allowed && !flags.contains(OFlags::PATH) {
        Ok(flags)
    } else {
        Err(Errno::BADF)
    }
}

/// EBADF for a synchronisation of what is no open file; EINVAL for one of a pipe or a socket, which it
/// would wait for the readers of.
fn sync_is_possible(fildes: RawFd, opcode: Opcode) -> Result<(), Errno> {
    if !matches!(opcode, Opcode::Sync | Opcode::DataSync) {
        return Ok(());
    }
    flags_of(fildes)?;
    // SAFETY: as in `flags_of`.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fildes) })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// Completes a request in its caller.
fn finish_in_caller(request: &Request, outcome: Outcome) {
    request.block.complete(outcome);
    wait::wake_all();
    raise_in_caller(&request.notification);
    if let Some(list) = &request.list
        && list.remove()
    {
        raise_in_caller(list.notification());
    }
}

/// Sends a notification from a call of the program. If that is not possible now (the signal queue is full, or
/// no thread can be started), the notifier sends it: the call must not wait.
fn raise_in_caller(notification: &Notification) {
    if notification.send() != Err(Errno::AGAIN) {
        return;
    }
    // The driver needs the notifier's lock too.
    signal::with_all_blocked(|| {
        if let Ok(queue) = ProcessState::get_or_init().and_then(ProcessState::queue_or_start_driver)
            && queue.notifier.ensure_started().is_ok()
        {
            queue
                .notifier
                .add(None, [*notification, Notification::None]);
        }
    });
}

/// Submits one request.
///
/// # Safety
/// As for aio_read(3).
unsafe fn submit_one(block: *mut Aiocb, opcode: Opcode) -> Result<(), Errno> {
    let block = ControlBlock::new(block).ok_or(Errno::INVAL)?;
    let process = ProcessState::get_or_init()?;
    // SAFETY: the caller's promise.
    let fields = unsafe { block.fields() };
    let request = begin(process, block, &fields, opcode, None)?;
    sync_is_possible(request.fildes, opcode).inspect_err(|errno| block.complete(Err(*errno)))?;
    submit(process, request)
}

/// Checks a request and marks it as in progress.
fn begin(
    process: &ProcessState,
    block: ControlBlock,
    fields: &Fields,
    opcode: Opcode,
    list: Option<Arc<RequestList>>,
) -> Result<Request, Errno> {
    if is_in_flight(block, process) {
        return Err(Errno::INVAL);
    }
    let request = Request::new(block, fields, opcode, list);
    block.begin(process.generation());
    request.inspect_err(|errno| block.complete(Err(*errno)))
}

/// Does a request that the page cache can serve, or that can't be done; hands in any other. Of a
/// descriptor that is not open, or not for this, the request itself tells.
fn submit(process: &ProcessState, request: Request) -> Result<(), Errno> {
    let counters = process.counters.of(request.opcode);
    let flags = match checked_flags(request.fildes, request.opcode) {
        Ok(_) if request.buf.is_null() => Err(Errno::FAULT),
        flags => flags,
    };
    let flags = match flags {
        Ok(flags) => flags,
        Err(errno) => {
            finish_in_caller(&request, Err(errno));
            return Ok(());
        }
    };
    // SAFETY: Assumption: the number was an open file a moment ago. Should the program close it
    // meanwhile, on another thread, calls say EBADF or see the file that has it now, as with any
    // other call that is made while another thread closes its file.
    let fd = unsafe { BorrowedFd::borrow_raw(request.fildes) };
    if request.opcode == Opcode::Read
        && let Attempt::Done(outcome) = attempt(fd, flags, &request, counters)
    {
        finish_in_caller(&request, outcome);
        return Ok(());
    }
    increment(&counters.handoffs);
    hand_in(process, fd, request, flags)
}

/// Hands a request in, with signals blocked: a handler that waits for the keeper must not have
/// interrupted who holds what the keeper needs.
fn hand_in(
    process: &ProcessState,
    fd: BorrowedFd<'_>,
    request: Request,
    flags: OFlags,
) -> Result<(), Errno> {
    signal::with_all_blocked(|| match hold(process, fd, &request) {
        Ok((queue, file)) => {
            queue.submit(Submission {
                request,
                file_flags: flags,
                file,
            });
            Ok(())
        }
        // It was closed a moment ago.
        Err(Errno::BADF) => {
            finish_in_caller(&request, Err(Errno::BADF));
            Ok(())
        }
        Err(errno) => {
            request.block.complete(Err(errno));
            Err(errno)
        }
    })
}

/// Has the queue hold the file, and a place for the request.
fn hold(
    process: &ProcessState,
    fd: BorrowedFd<'_>,
    request: &Request,
) -> Result<(&'static SubmissionQueue, FileRef), Errno> {
    loop {
        let held = process.queue_or_start_driver().and_then(|queue| {
            let told = !request.notification.is_none() || request.list.is_some();
            if told {
                queue.notifier.ensure_started()?;
            }
            Ok((queue, queue.reserve(fd)?))
        });
        // The program had closed the way to that queue; the next one has its own.
        if !matches!(held, Err(Errno::PIPE)) {
            return held;
        }
    }
}

/// Submits each request of a list; one that fails does not keep the others.
///
/// # Safety
/// As for aio_read(3), of each.
unsafe fn submit_list(
    list: &[*const Aiocb],
    together: Option<&Arc<RequestList>>,
) -> Result<(), Errno> {
    let process = ProcessState::get_or_init()?;
    let mut result = Ok(());
    for block in list.iter().filter_map(|raw| ControlBlock::new(*raw)) {
        // SAFETY: the caller's promise.
        match unsafe { submit_entry(process, block, together) } {
            Ok(()) => {}
            // That there was no room for all says more than that one was wrong.
            Err(Errno::AGAIN) => result = Err(Errno::AGAIN),
            Err(_) => result = result.and(Err(Errno::IO)),
        }
    }
    result
}

/// Submits one request of a list.
///
/// # Safety
/// As for aio_read(3).
unsafe fn submit_entry(
    process: &ProcessState,
    block: ControlBlock,
    together: Option<&Arc<RequestList>>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let fields = unsafe { block.fields() };
    let opcode = match fields.opcode {
        LIO_READ => Ok(Opcode::Read),
        LIO_WRITE => Ok(Opcode::Write),
        LIO_NOP => return Ok(()),
        _ => Err(Errno::INVAL),
    };
    let request = match opcode {
        Ok(opcode) => begin(process, block, &fields, opcode, together.cloned())?,
        Err(errno) => {
            if !is_in_flight(block, process) {
                block.begin(process.generation());
                block.complete(Err(errno));
            }
            return Err(errno);
        }
    };
    if let Some(list) = together {
        list.add();
    }
    let submitted = submit(process, request);
    if let (Err(_), Some(list)) = (&submitted, together) {
        // It counts no more; the list itself still holds one.
        list.remove();
    }
    submitted
}

/// Waits for all requests of a list. EINTR after a signal handler; they go on.
fn wait_for(list: &[*const Aiocb]) -> Result<(), Errno> {
    let generation = generation();
    let all_done = || {
        let mut blocks = list.iter().filter_map(|raw| ControlBlock::new(*raw));
        !blocks.any(|block| is_pending(block, generation))
    };
    match wait::until(all_done, &NEVER, wait::sleep) {
        Wakeup::Interrupted => Err(Errno::INTR),
        Wakeup::Ready | Wakeup::TimedOut => Ok(()),
    }
}

/// EIO if a request of the list has failed.
///
/// # Safety
/// As for lio_listio(3).
unsafe fn failed_ones(list: &[*const Aiocb]) -> Result<(), Errno> {
    let generation = generation();
    let failed = list
        .iter()
        .filter_map(|raw| ControlBlock::new(*raw))
        .any(|block| {
            // SAFETY: the caller's promise.
            let nop = unsafe { block.fields() }.opcode == LIO_NOP;
            !nop && !matches!(block.status(generation), Status::Done(0))
        });
    if failed { Err(Errno::IO) } else { Ok(()) }
}

/// The same functions by their other names.
macro_rules! also_named {
    ($($name:ident = $same:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(#[doc = concat!("The same as [`", stringify!($same), "`].")]
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { $same($($arg),*) }
        })*
    };
}

also_named! {
    aio_read64 = aio_read(block: *mut Aiocb) -> c_int;
    aio_write64 = aio_write(block: *mut Aiocb) -> c_int;
    aio_fsync64 = aio_fsync(op: c_int, block: *mut Aiocb) -> c_int;
    aio_error64 = aio_error(block: *const Aiocb) -> c_int;
    aio_return64 = aio_return(block: *mut Aiocb) -> isize;
    aio_suspend64 = aio_suspend(
        list: *const *const Aiocb, count: c_int, timeout: *const libc::timespec
    ) -> c_int;
    aio_cancel64 = aio_cancel(fildes: c_int, block: *mut Aiocb) -> c_int;
    lio_listio64 = lio_listio(
        mode: c_int, list: *const *mut Aiocb, count: c_int, event: *const Sigevent
    ) -> c_int;
}
