//! The desk: where callers hand in requests that are not done at once, and what they and the keeper
//! share.
//!
//! ```text
//!   caller                                              keeper
//!   is the file kept already? ──yes─► one more use ┐
//!        └─no─► a letter with the file in it ──────┤
//!                                                  └─► queue ─► takes it, with its file
//! ```
//! A request is queued after its file is held, so the keeper takes requests in the order in which
//! their threads submitted them, and never waits for a letter.
//!
//! # No wake-up is lost, and none is sent twice
//! ```text
//!   keeper:  asleep := true ─ fence ─ queue empty? ─ epoll_wait ─ asleep := false
//!   caller:  push ─ fence ─ asleep? ─ claim it (asleep := false) ─ wake
//! ```
//! Of the two fences one is first. If it is the caller's, the keeper sees what was pushed. If it is the
//! keeper's, the caller sees `asleep`, or finds it claimed by another caller, who has not sent its
//! wake-up yet or whose wake-up the keeper has not taken yet: the keeper wakes either way, and looks.
//!
//! A letter wakes the keeper as well, so its sender claims `asleep` before it sends. When it then queues
//! its request, the keeper either is still on its way (nothing to do), or has already found nothing and
//! gone back to sleep: then `asleep` is true again, and it is woken as by any other caller.
//!
//! # What is held while a handler runs: nothing
//! aio_suspend(3) may wait in a signal handler, for requests that the keeper is to finish. So a thread
//! that takes a lock of ours, or has claimed a wake-up, has its signals blocked until it is done with
//! that ([`signal::with_all_blocked`]). The handler may have interrupted the program's malloc(3) too, so
//! ours is another ([`crate::heap`]).

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};

use crossbeam_queue::SegQueue;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::control_block::ControlBlock;
use crate::fd_passing::{self, FdSender};
use crate::keeper::Keeper;
use crate::notify::Notifier;
use crate::request::Request;
use crate::sys::open_file::DescriptorOf;
use crate::sys::{descriptor_table, open_file, signal, thread};
use crate::wait;

/// One per process, from its first request that is not done at once.
#[derive(Debug)]
pub struct Desk {
    sender: FdSender,
    /// The keeper's thread, whose descriptor table kept files are in.
    keeper: i32,
    pub queue: SegQueue<Message>,
    /// The keeper sleeps, or is about to, and nobody has claimed it yet.
    pub asleep: AtomicBool,
    kept: Mutex<Kept>,
    letters: AtomicU64,
    in_flight: AtomicUsize,
    depth: usize,
    /// The program has closed the sender: this desk takes nothing in any more.
    lost: AtomicBool,
    /// Nobody ever used it.
    abandoned: AtomicBool,
    pub notifier: Notifier,
}

/// What callers send.
#[derive(Debug)]
pub enum Message {
    Submit(Submitted),
    Cancel(Arc<Cancel>),
}

/// A request that was handed in.
#[derive(Debug)]
pub struct Submitted {
    pub request: Request,
    /// Flags of the open file when it was submitted.
    pub flags: OFlags,
    pub file: FileAt,
}

/// Where a request's file is.
#[derive(Clone, Copy, Debug)]
pub enum FileAt {
    /// The keeper has it, and counts this request's use of it.
    Kept(u64),
    /// In the letter with this number.
    Letter(u64),
}

/// Files that the keeper has, as callers know them.
#[derive(Debug, Default)]
pub struct Kept {
    /// Which file a descriptor of the program's was when it was last asked about.
    by_number: HashMap<RawFd, u64>,
    files: HashMap<u64, Use>,
}

#[derive(Debug)]
struct Use {
    /// Its number in the keeper's table.
    number: RawFd,
    /// By the program.
    fildes: RawFd,
    requests: usize,
}

impl Kept {
    /// A request has brought a file that the keeper did not have.
    pub fn add(&mut self, id: u64, number: RawFd, fildes: RawFd) {
        self.by_number.insert(fildes, id);
        let kept = Use {
            number,
            fildes,
            requests: 1,
        };
        self.files.insert(id, kept);
    }

    /// A request has brought one that it has.
    pub fn join(&mut self, id: u64, fildes: RawFd) {
        self.by_number.insert(fildes, id);
        if let Some(kept) = self.files.get_mut(&id) {
            kept.requests += 1;
        }
    }

    /// A request on it is done; says whether it was the last, and the file is to go.
    pub fn leave(&mut self, id: u64) -> bool {
        let Some(kept) = self.files.get_mut(&id) else {
            return false;
        };
        kept.requests -= 1;
        let last = kept.requests == 0;
        if last {
            if self.by_number.get(&kept.fildes) == Some(&id) {
                self.by_number.remove(&kept.fildes);
            }
            self.files.remove(&id);
        }
        last
    }
}

/// A wish that requests be cancelled, and the answer to it.
#[derive(Debug)]
pub struct Cancel {
    /// The caller's thread, in whose table `fildes` is.
    pub thread: i32,
    pub fildes: RawFd,
    /// One request, or all of the file's.
    pub block: Option<ControlBlock>,
    answer: AtomicI32,
}

const UNANSWERED: i32 = -1;

impl Cancel {
    /// Says how it went, with one of the constants of <aio.h>.
    pub fn answer(&self, answer: i32) {
        self.answer.store(answer, Ordering::Release);
        wait::wake_all();
    }
}

/// How many requests may be in flight where NOWAIT_AIO_DEPTH does not say.
const DEPTH: usize = 32_768;

/// How far a new keeper is.
enum Progress {
    /// It has a descriptor table of its own.
    Moved(i32),
    /// It is at work.
    Ready,
    Failed(Errno),
}

impl Desk {
    /// Opens one: makes the sender and starts the keeper. It stays for as long as the process.
    pub fn open(generation: u64) -> Result<&'static Desk, Errno> {
        let (sender, receiver) = fd_passing::channel(generation)?;
        let number = receiver.number();
        let (tell, progress) = mpsc::channel();
        let (give, desk) = mpsc::channel();
        thread::start_with_signals_blocked(move || {
            // Threads that it starts have its name.
            let _ = rustix::thread::set_name(c"nowait-aio");
            let moved = descriptor_table::unshare(number).inspect(|()| {
                let _ = tell.send(Progress::Moved(thread::id()));
            });
            let alone = moved.and_then(|()| descriptor_table::close_all_but(number));
            match alone.and_then(|()| Keeper::new(receiver)) {
                Ok(keeper) => {
                    let _ = tell.send(Progress::Ready);
                    // Without a desk nobody wants it.
                    if let Ok(desk) = desk.recv() {
                        keeper.keep(desk);
                    }
                }
                Err(errno) => {
                    let _ = tell.send(Progress::Failed(errno));
                }
            }
        })
        .inspect_err(|_| {
            sender.close();
        })?;
        let mut keeper = 0;
        loop {
            match progress.recv() {
                Ok(Progress::Moved(thread)) => {
                    keeper = thread;
                    // SAFETY: the receiver is in the keeper's table now; this is the copy of it that
                    // was made with it in the program's.
                    unsafe { libc::close(number) };
                }
                Ok(Progress::Ready) => break,
                Ok(Progress::Failed(errno)) => {
                    sender.close();
                    return Err(errno);
                }
                Err(_) => {
                    sender.close();
                    return Err(Errno::AGAIN);
                }
            }
        }
        let desk: &'static Desk = Box::leak(Box::new(Desk {
            sender,
            keeper,
            queue: SegQueue::new(),
            asleep: AtomicBool::new(false),
            kept: Mutex::default(),
            letters: AtomicU64::new(1),
            in_flight: AtomicUsize::new(0),
            depth: depth(),
            lost: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            notifier: Notifier::default(),
        }));
        let _ = give.send(desk);
        Ok(desk)
    }

    /// Closes one that was opened for nothing: its keeper ends.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.sender.close();
    }

    /// Whether its keeper may end.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Whether it takes nothing in any more.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Takes a place, and has the file held. EAGAIN if there is none. With signals blocked.
    pub fn hold(&self, fd: BorrowedFd<'_>) -> Result<FileAt, Errno> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.depth {
            self.leave();
            return Err(Errno::AGAIN);
        }
        self.hold_file(fd).inspect_err(|_| self.leave())
    }

    fn hold_file(&self, fd: BorrowedFd<'_>) -> Result<FileAt, Errno> {
        if let Some(id) = self.use_kept(fd.as_raw_fd()) {
            return Ok(FileAt::Kept(id));
        }
        let id = self.letters.fetch_add(1, Ordering::Relaxed);
        // The letter wakes the keeper.
        let claimed = self.claim();
        let sent = self.sender.send(id, fd);
        if sent.is_err() && claimed {
            self.wake();
        }
        match sent {
            Ok(()) => Ok(FileAt::Letter(id)),
            Err(Errno::PIPE) => {
                self.lost.store(true, Ordering::Release);
                Err(Errno::PIPE)
            }
            Err(Errno::BADF) => Err(Errno::BADF),
            // Too many letters on their way, no memory: later it may work.
            Err(_) => Err(Errno::AGAIN),
        }
    }

    /// Counts one more use of the file if the keeper has it. The kernel says whether the number still
    /// is that file's; while the lock is held the keeper lets none go.
    fn use_kept(&self, fildes: RawFd) -> Option<u64> {
        let mut kept = self.kept();
        let id = *kept.by_number.get(&fildes)?;
        let file = kept.files.get_mut(&id)?;
        let same = open_file::is_same_across_threads(
            DescriptorOf {
                thread: thread::id(),
                number: fildes,
            },
            DescriptorOf {
                thread: self.keeper,
                number: file.number,
            },
        );
        (same == Some(true)).then(|| {
            file.requests += 1;
            id
        })
    }

    /// Hands in a request for which `hold` has taken a place. With signals blocked.
    pub fn submit(&self, submitted: Submitted) {
        self.send(Message::Submit(submitted));
    }

    /// Asks for requests to be cancelled, and waits for the answer, in which time handlers may run.
    pub fn cancel(&self, fildes: RawFd, block: Option<ControlBlock>) -> i32 {
        let cancel = signal::with_all_blocked(|| {
            let cancel = Arc::new(Cancel {
                thread: thread::id(),
                fildes,
                block,
                answer: AtomicI32::new(UNANSWERED),
            });
            self.send(Message::Cancel(cancel.clone()));
            cancel
        });
        let answered = || cancel.answer.load(Ordering::Acquire);
        wait::uninterrupted(|| answered() != UNANSWERED);
        let answer = answered();
        signal::with_all_blocked(|| drop(cancel));
        answer
    }

    fn send(&self, message: Message) {
        self.queue.push(message);
        // Pairs with the keeper's fence between "I sleep" and its last look at the queue.
        fence(Ordering::SeqCst);
        if self.claim() {
            self.wake();
        }
    }

    /// Whether the keeper sleeps and is now the calling thread's to wake.
    fn claim(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
    }

    fn wake(&self) {
        let Err(errno) = self.sender.wake() else {
            return;
        };
        // The keeper wakes up for a closed sender, and then looks by itself. The next caller opens a new
        // desk.
        if errno != Errno::PIPE {
            self.sender.close();
        }
        self.lost.store(true, Ordering::Release);
    }

    /// Files that are kept, for as long as the lock is held.
    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Gives a place back.
    pub fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many requests may be in flight.
fn depth() -> usize {
    std::env::var("NOWAIT_AIO_DEPTH")
        .ok()
        .and_then(|depth| depth.parse().ok())
        .filter(|depth| *depth > 0)
        .unwrap_or(DEPTH)
}
