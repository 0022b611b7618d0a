//! A control block of the program (`struct aiocb`) and the state of its request.
//!
//! The state is kept in private fields of the block, while the request is in flight and after that:
//!
//! ```text
//!   generation         the process that submitted the block; any other value: not submitted
//!   error_code         EINPROGRESS ─► the error, or 0
//!   return_value       set before the error code
//!   notification_slot  the slot of the request's notification; null if there is none
//!   address            the block's address at submission; a copy of the block has another address
//! ```
//! A copy of a block keeps the state that the block had when it was copied. A copy can be
//! submitted.
//!
//! The fields are atomics, so that aio_error(3) and aio_return(3) can run in a signal handler.
//!
//! The program may free or resubmit a block as soon as it is notified. So all fields get their last
//! value before the notification. The [`NotificationSlot`] changes when the notification was sent.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::abi::{Aiocb, Sigevent};
use crate::notification_slot::{NotificationSlot, Progress};

/// The error code of a request that is queued or being carried out.
const IN_PROGRESS: i32 = libc::EINPROGRESS;

/// The state of a control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// This process has not submitted the block.
    NotSubmitted,
    /// The request is queued or being carried out.
    InProgress,
    /// The block is a copy of one that was in progress. Its state no longer changes.
    CopyInProgress,
    /// The request is done. A thread that has all signals blocked is sending its notification.
    Notifying,
    /// The request is done. Its notification cannot be sent now, and is tried again later.
    NotificationDelayed,
    /// The request is done, with this error or 0.
    Done(i32),
}

impl Status {
    /// True until the program was notified: aio_suspend(3) waits for such a request.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            Status::InProgress | Status::Notifying | Status::NotificationDelayed
        )
    }

    /// True if the program must not submit the block again. It may do so while it is being
    /// notified.
    pub fn is_in_flight(self) -> bool {
        matches!(self, Status::InProgress | Status::NotificationDelayed)
    }
}

/// A pointer to a control block of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControlBlock(NonNull<Aiocb>);

// SAFETY: Assumption: as POSIX demands, the program keeps a block where it is until its request is
// done. Threads of the library access its atomics only.
unsafe impl Send for ControlBlock {}
// SAFETY: as above.
unsafe impl Sync for ControlBlock {}

impl ControlBlock {
    /// Takes a pointer that the program passed; `None` if it is null.
    pub fn new(raw: *const Aiocb) -> Option<ControlBlock> {
        NonNull::new(raw.cast_mut()).map(ControlBlock)
    }

    /// Copies the fields that the program has set.
    ///
    /// # Safety
    /// The program must have passed the block to the call that is being carried out: POSIX leaves a
    /// bad pointer undefined.
    pub unsafe fn fields(self) -> Fields {
        let raw = self.0.as_ptr();
        // SAFETY: the caller's promise. The fields are copied one by one: no reference is made to
        // memory that the program may write to.
        unsafe {
            Fields {
                fildes: (*raw).fildes,
                opcode: (*raw).lio_opcode,
                reqprio: (*raw).reqprio,
                buf: (*raw).buf,
                nbytes: (*raw).nbytes,
                offset: (*raw).offset,
                sigevent: (*raw).sigevent,
            }
        }
    }

    fn generation(self) -> &'static AtomicU64 {
        // SAFETY: Assumption: the block lives as long as a request or a call of the program uses it
        // (see `Send` above). The reference is to the atomic alone.
        unsafe { &(*self.0.as_ptr()).generation }
    }

    fn notification_slot(self) -> &'static AtomicPtr<NotificationSlot> {
        // SAFETY: as for `generation`.
        unsafe { &(*self.0.as_ptr()).notification_slot }
    }

    fn error_code(self) -> &'static AtomicI32 {
        // SAFETY: as for `generation`.
        unsafe { &(*self.0.as_ptr()).error_code }
    }

    fn return_value_field(self) -> &'static AtomicI64 {
        // SAFETY: as for `generation`.
        unsafe { &(*self.0.as_ptr()).return_value }
    }

    fn address(self) -> &'static AtomicPtr<Aiocb> {
        // SAFETY: as for `generation`.
        unsafe { &(*self.0.as_ptr()).address }
    }

    /// The state of the block, in the process of this generation (0: a process without requests).
    pub fn status(self, generation: u64) -> Status {
        if generation == 0 || self.generation().load(Ordering::Relaxed) != generation {
            return Status::NotSubmitted;
        }
        match self.error_code().load(Ordering::Acquire) {
            IN_PROGRESS if self.address().load(Ordering::Relaxed) == self.0.as_ptr() => {
                Status::InProgress
            }
            IN_PROGRESS => Status::CopyInProgress,
            errno => match self.notification_progress() {
                Progress::Sending => Status::Notifying,
                Progress::Delayed => Status::NotificationDelayed,
                Progress::Finished => Status::Done(errno),
            },
        }
    }

    /// The state of the notification of a request that is done.
    fn notification_progress(self) -> Progress {
        let slot = self.notification_slot().load(Ordering::Relaxed);
        // SAFETY: Assumption: the generation says that this process wrote the private fields. So
        // the pointer is null or comes from `NotificationSlot::new`.
        match unsafe { slot.as_ref() } {
            Some(slot) => slot.progress(self.0.as_ptr().addr()),
            None => Progress::Finished,
        }
    }

    /// Marks the request as in progress.
    pub fn begin(self, generation: u64) {
        self.return_value_field().store(-1, Ordering::Relaxed);
        self.error_code().store(IN_PROGRESS, Ordering::Relaxed);
        self.address().store(self.0.as_ptr(), Ordering::Relaxed);
        self.generation().store(generation, Ordering::Release);
    }

    /// Marks the request as done. There is no notification to wait for. The program may free the
    /// block from here on, so the library does not access it again.
    pub fn complete(self, result: Result<usize, Errno>) {
        self.set_result(result, null_mut());
    }

    /// Marks the request as done, and its notification as being sent, until the slot changes. The
    /// library does not access the block again.
    pub fn complete_and_notify(
        self,
        result: Result<usize, Errno>,
        slot: &'static NotificationSlot,
    ) {
        slot.begin(self.0.as_ptr().addr());
        self.set_result(result, std::ptr::from_ref(slot).cast_mut());
    }

    fn set_result(self, result: Result<usize, Errno>, slot: *mut NotificationSlot) {
        let (return_value, errno) = match result {
            Ok(n) => (n as i64, 0),
            Err(errno) => (-1, errno.raw_os_error()),
        };
        self.notification_slot().store(slot, Ordering::Relaxed);
        self.return_value_field()
            .store(return_value, Ordering::Relaxed);
        self.error_code().store(errno, Ordering::Release);
    }

    /// The value that aio_return(3) returns for a request that is done.
    pub fn return_value(self) -> isize {
        self.return_value_field().load(Ordering::Relaxed) as isize
    }
}

/// A copy of the fields that the program has set.
#[derive(Clone, Copy)]
pub struct Fields {
    pub fildes: c_int,
    pub opcode: c_int,
    pub reqprio: c_int,
    pub buf: *mut u8,
    pub nbytes: usize,
    pub offset: i64,
    pub sigevent: Sigevent,
}
