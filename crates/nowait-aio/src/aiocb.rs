//! The control block: what the program fills in, and the words of ours that say how far it is.
//!
//! glibc's `struct aiocb` has private fields behind the public ones. These are ours as long as a request
//! lives, and after:
//!
//! ```text
//!   __next_prio          tag       the process: a block that it has never submitted has another
//!   __abs_prio, …        teller    who tells the program that it is done; null if nobody need be asked
//!   __error_code         state     EINPROGRESS ─► the error, or 0
//!   __return_value       returned  set before the state says that it is done
//!   __glibc_reserved     place     where the block was when it was submitted: a copy is elsewhere
//! ```
//! A copy has the status that its original had when it was copied, and can be submitted.
//!
//! They are atomics and nothing else: aio_error(3) and aio_return(3) may run in a signal handler.
//!
//! Once the program was told of a request, its block may be gone, or submitted again. So all words have
//! their last values before it is told, and that the telling is over is said elsewhere, by the [`Teller`].

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use rustix::io::Errno;

/// What a notification carries back to the program: `union sigval`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Notify(pub *mut c_void);

// SAFETY: a number that only the program knows the meaning of.
unsafe impl Send for Notify {}
// SAFETY: as above.
unsafe impl Sync for Notify {}

/// What SIGEV_THREAD calls. It may end its thread by pthread_exit(3), hence the unwinding.
pub type Function = unsafe extern "C-unwind" fn(Notify);

/// `struct sigevent` of 64-bit Linux.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sigevent {
    pub(crate) value: Notify,
    pub(crate) signo: c_int,
    pub(crate) notify: c_int,
    pub(crate) function: Option<Function>,
    pub(crate) attributes: *const libc::pthread_attr_t,
    rest: [u64; 4],
}

/// `struct aiocb`, and `struct aiocb64`, which is the same on 64-bit Linux.
#[repr(C)]
pub struct Aiocb {
    pub(crate) fildes: c_int,
    pub(crate) lio_opcode: c_int,
    pub(crate) reqprio: c_int,
    pub(crate) buf: *mut u8,
    pub(crate) nbytes: usize,
    pub(crate) sigevent: Sigevent,
    tag: AtomicU64,
    teller: AtomicPtr<Teller>,
    state: AtomicI32,
    returned: AtomicI64,
    pub(crate) offset: i64,
    place: AtomicPtr<Aiocb>,
    reserved: [u8; 24],
}

// The layout is glibc's: what the libc crate knows of it is where it has it.
const _: () = {
    assert!(size_of::<Aiocb>() == size_of::<libc::aiocb>());
    assert!(size_of::<Sigevent>() == size_of::<libc::sigevent>());
    assert!(offset_of!(Aiocb, buf) == offset_of!(libc::aiocb, aio_buf));
    assert!(offset_of!(Aiocb, nbytes) == offset_of!(libc::aiocb, aio_nbytes));
    assert!(offset_of!(Aiocb, sigevent) == offset_of!(libc::aiocb, aio_sigevent));
    assert!(offset_of!(Aiocb, offset) == offset_of!(libc::aiocb, aio_offset));
    assert!(offset_of!(Aiocb, place) == offset_of!(Aiocb, offset) + size_of::<i64>());
    assert!(offset_of!(Sigevent, notify) == offset_of!(libc::sigevent, sigev_notify));
};

/// Queued, or being carried out.
const IN_PROGRESS: i32 = libc::EINPROGRESS;

/// The block that the program is being told of, and whether the notification is just being sent or
/// has to wait: one word, so that both are read at once.
#[derive(Debug, Default)]
pub struct Teller(AtomicPtr<Aiocb>);

impl Teller {
    /// One that lives as long as the process: blocks point to it.
    pub fn new() -> &'static Teller {
        Box::leak(Box::default())
    }

    /// The notification is being sent. A block is aligned: the lowest bit of its address is free.
    pub fn send(&self) {
        self.mark(false);
    }

    /// The notification can't be sent now. Threads that wait for that are to be woken by
    /// `wait::announce`.
    pub fn pause(&self) {
        self.mark(true);
    }

    fn mark(&self, paused: bool) {
        let block = self.0.load(Ordering::Relaxed);
        let marked = block.map_addr(|address| address & !1 | usize::from(paused));
        self.0.store(marked, Ordering::SeqCst);
    }

    /// The program was told. Threads that wait for that are to be woken by `wait::announce`.
    pub fn over(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// How far a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// This process has not submitted it.
    Unknown,
    /// Queued, or being carried out.
    InProgress,
    /// A copy of one that was: nothing changes it any more.
    CopyInProgress,
    /// Done; its teller is sending the notification, with all signals blocked, and says that it is over
    /// right after.
    Notifying,
    /// Done; the notification can't be sent now, and is tried again later.
    Untold,
    /// Done, with this error or 0.
    Done(i32),
}

/// A control block of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(NonNull<Aiocb>);

// SAFETY: Assumption: as POSIX demands, the program leaves a block where it is until its request is
// done, and two threads of ours touch only its atomics.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Takes a pointer that the program passed; `None` if it is null.
    pub fn new(raw: *const Aiocb) -> Option<Block> {
        NonNull::new(raw.cast_mut()).map(Block)
    }

    /// What the program has filled in.
    ///
    /// # Safety
    /// The program must have passed it to the call that is being carried out: POSIX leaves a bad
    /// pointer undefined.
    pub unsafe fn asked(self) -> Asked {
        let raw = self.0.as_ptr();
        // SAFETY: the caller's promise. Fields are copied one by one: no reference is made to
        // memory that the program may write to.
        unsafe {
            Asked {
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

    fn tag(self) -> &'static AtomicU64 {
        // SAFETY: the block lives as long as whoever holds this copy of its address may ask (see
        // `Send` above), and the reference is to the atomic alone.
        unsafe { &(*self.0.as_ptr()).tag }
    }

    fn teller(self) -> &'static AtomicPtr<Teller> {
        // SAFETY: as for `tag`.
        unsafe { &(*self.0.as_ptr()).teller }
    }

    fn state(self) -> &'static AtomicI32 {
        // SAFETY: as for `tag`.
        unsafe { &(*self.0.as_ptr()).state }
    }

    fn returned(self) -> &'static AtomicI64 {
        // SAFETY: as for `tag`.
        unsafe { &(*self.0.as_ptr()).returned }
    }

    fn place(self) -> &'static AtomicPtr<Aiocb> {
        // SAFETY: as for `tag`.
        unsafe { &(*self.0.as_ptr()).place }
    }

    /// How far it is, in the process with this generation (0: nothing was ever submitted here).
    pub fn status(self, generation: u64) -> Status {
        if generation == 0 || self.tag().load(Ordering::Relaxed) != generation {
            return Status::Unknown;
        }
        let own = self.0.as_ptr();
        match self.state().load(Ordering::Acquire) {
            IN_PROGRESS if self.place().load(Ordering::Relaxed) == own => Status::InProgress,
            IN_PROGRESS => Status::CopyInProgress,
            errno => match self.told_now() {
                told if told == own => Status::Notifying,
                told if told == own.map_addr(|address| address | 1) => Status::Untold,
                _ => Status::Done(errno),
            },
        }
    }

    /// What its teller, if it is done and has one, is telling of.
    fn told_now(self) -> *mut Aiocb {
        let teller = self.teller().load(Ordering::Relaxed);
        // SAFETY: Assumption: the words are as this process left them, which the tag stands for. So it
        // is null or one of `Teller::new`.
        match unsafe { teller.as_ref() } {
            Some(teller) => teller.0.load(Ordering::Acquire),
            None => std::ptr::null_mut(),
        }
    }

    /// Marks it as in progress.
    pub fn begin(self, generation: u64) {
        self.returned().store(-1, Ordering::Relaxed);
        self.state().store(IN_PROGRESS, Ordering::Relaxed);
        self.place().store(self.0.as_ptr(), Ordering::Relaxed);
        self.tag().store(generation, Ordering::Release);
    }

    /// It is done, and nobody is told. From here on the program may free it, so nothing of ours may
    /// touch it again.
    pub fn done(self, result: Result<usize, Errno>) {
        self.settle(result, std::ptr::null_mut());
    }

    /// It is done, and the program is told of it from here on until that is `over`. Nothing of ours may
    /// touch it again.
    pub fn done_and_told_by(self, teller: &'static Teller, result: Result<usize, Errno>) {
        teller.0.store(self.0.as_ptr(), Ordering::Relaxed);
        self.settle(result, std::ptr::from_ref(teller).cast_mut());
    }

    fn settle(self, result: Result<usize, Errno>, teller: *mut Teller) {
        let (returned, errno) = match result {
            Ok(n) => (n as i64, 0),
            Err(errno) => (-1, errno.raw_os_error()),
        };
        self.teller().store(teller, Ordering::Relaxed);
        self.returned().store(returned, Ordering::Relaxed);
        self.state().store(errno, Ordering::Release);
    }

    /// What aio_return(3) returns of one that is done.
    pub fn count(self) -> isize {
        self.returned().load(Ordering::Relaxed) as isize
    }
}

/// A copy of what the program has filled in.
#[derive(Clone, Copy)]
pub struct Asked {
    pub fildes: c_int,
    pub opcode: c_int,
    pub reqprio: c_int,
    pub buf: *mut u8,
    pub nbytes: usize,
    pub offset: i64,
    pub sigevent: Sigevent,
}
