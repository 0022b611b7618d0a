//! The submission queue: callers hand requests to the driver, together with their open files.
//!
//! ```text
//!   caller                                                     driver
//!   does the driver have the file? ─yes─► count the request ┐
//!        └─no─► pass the file (`fd_passing`) ───────────────┤
//!                                                           └─► queue ─► takes the request and its file
//! ```
//! A request is queued after its file was counted or passed. So the driver takes requests in the
//! order in which their threads submitted them, and never waits for a file.
//!
//! # No wake-up is lost, and none is sent twice
//! ```text
//!   driver:  asleep := true ─ fence ─ queue empty? ─ epoll_wait ─ asleep := false
//!   caller:  push ─ fence ─ asleep? ─ claim the wake-up (asleep := false) ─ send it
//! ```
//! One of the two fences comes first. If it is the caller's, the driver sees the message. If it is
//! the driver's, the caller sees `asleep`, or another caller has claimed the wake-up and not sent
//! it yet, or the driver has not received it yet. In each case the driver wakes up and looks at the
//! queue.
//!
//! Passing a file wakes the driver as well, so the caller claims the wake-up before that. When it
//! then queues its request, the driver is either still awake, and nothing needs to be done, or has
//! found nothing and gone back to sleep. Then `asleep` is true again, and the driver is woken as by
//! any other caller.
//!
//! # Nothing is held while a signal handler runs
//! aio_suspend(3) may wait in a signal handler, for requests that the driver is to complete. So a
//! thread that takes a lock of the library, or has claimed a wake-up, has its signals blocked until
//! it is done ([`signal::with_all_blocked`]). This holds for the heap's lock too (`allocator.rs`).

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_queue::SegQueue;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::control_block::ControlBlock;
use crate::fd_passing::FdSender;
use crate::notify::Notifier;
use crate::request::Request;
use crate::sys::open_file::DescriptorOf;
use crate::sys::{open_file, signal, thread};

mod cancellation;
mod open_files;

pub use cancellation::Cancellation;
pub use open_files::OpenFiles;

/// A message to the driver.
#[derive(Debug)]
pub enum Message {
    Submit(Submission),
    Cancel(Arc<Cancellation>),
}

/// A request that is handed to the driver.
#[derive(Debug)]
pub struct Submission {
    pub request: Request,
    /// The flags of the open file at submission.
    pub file_flags: OFlags,
    pub file: FileRef,
}

/// The open file of a submission.
#[derive(Clone, Copy, Debug)]
pub enum FileRef {
    /// The driver has the file with this ID, and the request is counted.
    Open(u64),
    /// The file was passed in the message with this ID.
    Passed(u64),
}

/// The queue of a process, and the other things that callers and the driver share. It is made with
/// the first request that is not done within the call, and never freed.
#[derive(Debug)]
pub struct SubmissionQueue {
    sender: FdSender,
    /// The driver's thread. The descriptors of open files are in its table.
    driver_thread: i32,
    messages: SegQueue<Message>,
    /// The driver sleeps, or is about to, and no caller has claimed the wake-up.
    asleep: AtomicBool,
    open_files: Mutex<OpenFiles>,
    next_message_id: AtomicU64,
    in_flight: AtomicUsize,
    max_in_flight: usize,
    /// The program has closed the sender. The queue takes no more requests.
    is_disconnected: AtomicBool,
    is_discarded: AtomicBool,
    pub notifier: Notifier,
}

/// The number of requests that may be in flight if NOWAIT_AIO_DEPTH is not set.
const DEFAULT_MAX_IN_FLIGHT: usize = 32_768;

impl SubmissionQueue {
    pub fn new(sender: FdSender, driver_thread: i32) -> &'static SubmissionQueue {
        Box::leak(Box::new(SubmissionQueue {
            sender,
            driver_thread,
            messages: SegQueue::new(),
            asleep: AtomicBool::new(false),
            open_files: Mutex::default(),
            next_message_id: AtomicU64::new(1),
            in_flight: AtomicUsize::new(0),
            max_in_flight: max_in_flight(),
            is_disconnected: AtomicBool::new(false),
            is_discarded: AtomicBool::new(false),
            notifier: Notifier::default(),
        }))
    }

    /// Closes a queue that was never used. Its driver ends.
    pub fn discard(&self) {
        self.is_discarded.store(true, Ordering::Release);
        self.sender.close();
    }

    pub fn is_discarded(&self) -> bool {
        self.is_discarded.load(Ordering::Acquire)
    }

    /// True if the program has closed the sender. The next request needs a new queue.
    pub fn is_disconnected(&self) -> bool {
        self.is_disconnected.load(Ordering::Acquire)
    }

    /// The number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight, and passes its file if the driver does not have it. EAGAIN if
    /// too many requests are in flight, EPIPE if the queue is disconnected. To be called with
    /// signals blocked.
    pub fn reserve(&self, fd: BorrowedFd<'_>) -> Result<FileRef, Errno> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.max_in_flight {
            self.release();
            return Err(Errno::AGAIN);
        }
        self.count_or_pass_file(fd).inspect_err(|_| self.release())
    }

    /// Counts a request as no longer in flight.
    pub fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    fn count_or_pass_file(&self, fd: BorrowedFd<'_>) -> Result<FileRef, Errno> {
        if let Some(id) = self.count_if_open(fd.as_raw_fd()) {
            return Ok(FileRef::Open(id));
        }
        let id = self.next_message_id.fetch_add(1, Ordering::Relaxed);
        // The message wakes the driver.
        let claimed = self.claim_wakeup();
        let sent = self.sender.send(id, fd);
        if sent.is_err() && claimed {
            self.wake_driver();
        }
        match sent {
            Ok(()) => Ok(FileRef::Passed(id)),
            Err(Errno::PIPE) => {
                self.is_disconnected.store(true, Ordering::Release);
                Err(Errno::PIPE)
            }
            Err(Errno::BADF) => Err(Errno::BADF),
            // The socket is full, or there is no memory. A later try may succeed.
            Err(_) => Err(Errno::AGAIN),
        }
    }

    /// Counts a request on the file if the driver has it. The kernel tells whether the descriptor
    /// still refers to that file. The driver closes no file while the lock is held.
    fn count_if_open(&self, fildes: RawFd) -> Option<u64> {
        self.open_files().add_request_by_fildes(fildes, |number| {
            let of_program = DescriptorOf {
                thread: thread::id(),
                number: fildes,
            };
            let of_driver = DescriptorOf {
                thread: self.driver_thread,
                number,
            };
            open_file::is_same_across_threads(of_program, of_driver) == Some(true)
        })
    }

    /// Queues a request after `reserve`. To be called with signals blocked.
    pub fn submit(&self, submission: Submission) {
        self.push(Message::Submit(submission));
    }

    /// Cancels requests: queues the cancellation and waits for the answer, a constant of <aio.h>.
    /// Signal handlers may run meanwhile.
    pub fn cancel(&self, fildes: RawFd, block: Option<ControlBlock>) -> c_int {
        let cancellation = signal::with_all_blocked(|| {
            let cancellation = Arc::new(Cancellation::new(fildes, block));
            self.push(Message::Cancel(cancellation.clone()));
            cancellation
        });
        let answer = cancellation.wait_for_answer();
        signal::with_all_blocked(|| drop(cancellation));
        answer
    }

    fn push(&self, message: Message) {
        self.messages.push(message);
        // Pairs with the fence in `sleep_if_empty`.
        fence(Ordering::SeqCst);
        if self.claim_wakeup() {
            self.wake_driver();
        }
    }

    /// True if the driver sleeps and the calling thread is to wake it.
    fn claim_wakeup(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
    }

    fn wake_driver(&self) {
        let Err(errno) = self.sender.wake() else {
            return;
        };
        // A closed sender wakes the driver, which then looks at the queue without being woken. The
        // next caller makes a new queue.
        if errno != Errno::PIPE {
            self.sender.close();
        }
        self.is_disconnected.store(true, Ordering::Release);
    }

    /// The open files of the driver. The driver closes none while the lock is held.
    pub fn open_files(&self) -> MutexGuard<'_, OpenFiles> {
        self.open_files.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The next message, for the driver.
    pub fn pop(&self) -> Option<Message> {
        self.messages.pop()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Runs `sleep` unless the queue has a message. For the driver: a message that comes later ends
    /// the sleep.
    pub fn sleep_if_empty(&self, sleep: impl FnOnce()) {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `push`.
        fence(Ordering::SeqCst);
        if self.is_empty() {
            sleep();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

fn max_in_flight() -> usize {
    std::env::var("NOWAIT_AIO_DEPTH")
        .ok()
        .and_then(|depth| depth.parse().ok())
        .filter(|depth| *depth > 0)
        .unwrap_or(DEFAULT_MAX_IN_FLIGHT)
}
