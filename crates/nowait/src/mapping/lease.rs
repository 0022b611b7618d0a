//! The thread that holds leases. The kernel sends it a signal before a leased file changes.
//!
//! ```text
//!  another process: truncate(2) ─► signal to this thread ─► no window can be borrowed any more
//!         waits …                                         ─► borrowed windows are copied and exchanged
//!         goes on ◄─────────────── lease given back ◄────────┘
//! ```
//! Signals are blocked in this thread, which waits for them, so none reaches the program.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::thread::Pid;

use super::frames::Frames;
use super::protection::{self, Unavailable};
use super::windows::Windows;
use crate::sys::lease::{self, Event};
use crate::sys::mapping::Spare;
use crate::sys::process::{Owner, PerProcess};
use crate::sys::sync::{Condvar, Mutex, lock, spawn, wait};

/// The time after which memory for copies is asked for again, or copies are looked at.
const AGAIN: Duration = Duration::from_millis(20);
/// The longest time after which copies are looked at, if they are borrowed for long.
const AT_MOST: Duration = Duration::from_secs(1);

/// A file with a lease, and its windows.
#[derive(Debug)]
pub(super) struct Leased {
    /// A description of its own: the lease belongs to it.
    fd: OwnedFd,
    frames: Arc<Frames>,
    windows: Arc<Windows>,
    process: Owner,
}

impl AsFd for Leased {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        // A forked child must not give back the lease of its parent.
        if !self.process.is_here() {
            return;
        }
        // Before the number can be that of another file. A forked child may keep the description
        // open, so the lease would not end with this descriptor.
        if let Some(leases) = LEASES.known() {
            lock(&leases.files).remove(&self.fd.as_raw_fd());
            lease::give_back(self.fd.as_fd());
        }
    }
}

/// Takes a lease of a file that was opened for it.
pub(super) fn take(
    fd: OwnedFd,
    frames: &Arc<Frames>,
    windows: &Arc<Windows>,
) -> Result<Arc<Leased>, Unavailable> {
    let leases = LEASES.get_or_make(|| Ok::<_, Unavailable>(Leases::default()))?;
    let thread = leases.thread().ok_or(Unavailable::Unsupported)?;
    let leased = Arc::new(Leased {
        fd,
        frames: frames.clone(),
        windows: windows.clone(),
        process: Owner::current(),
    });
    // A break may come at once.
    let number = leased.fd.as_raw_fd();
    lock(&leases.files).insert(number, Arc::downgrade(&leased));
    lease::take(leased.fd.as_fd(), thread).map_err(protection::refused)?;
    Ok(leased)
}

static LEASES: PerProcess<Leases> = PerProcess::new();

/// The leased files of this process, and the thread.
#[derive(Debug, Default)]
struct Leases {
    /// By descriptor.
    files: Mutex<HashMap<RawFd, Weak<Leased>>>,
    thread: Mutex<Thread>,
    started: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
enum Thread {
    #[default]
    None,
    Starting,
    Waits(Pid),
    /// It cannot wait for signals here.
    Denied,
}

impl Leases {
    /// The thread, which is started on first use. `None` if it cannot be started, or cannot wait
    /// for signals.
    fn thread(&'static self) -> Option<Pid> {
        let mut thread = lock(&self.thread);
        loop {
            match *thread {
                Thread::Waits(pid) => return Some(pid),
                Thread::Denied => return None,
                Thread::Starting => thread = wait(&self.started, thread),
                Thread::None => {
                    spawn(c"nowait-leases", || self.run()).ok()?;
                    *thread = Thread::Starting;
                }
            }
        }
    }

    fn run(&self) {
        let denied = lease::wait(Some(Duration::ZERO)) == Event::Denied;
        *lock(&self.thread) = match denied {
            true => Thread::Denied,
            false => Thread::Waits(lease::this_thread()),
        };
        self.started.notify_all();
        if !denied {
            self.give_back();
        }
    }

    /// Waits for lease breaks, and gives leases back, without end.
    fn give_back(&self) {
        // malloc(3) maps memory when a thread first calls it, which may not be possible later.
        let mut breaking: Vec<Arc<Leased>> = Vec::with_capacity(4);
        let mut copied: Vec<Arc<Frames>> = Vec::new();
        let mut again = AGAIN;
        let mut spare = None;
        loop {
            // The process may have too many mappings at the next break.
            spare = spare.or_else(|| Spare::new().ok());
            let busy = !breaking.is_empty() || !copied.is_empty();
            let event = lease::wait(busy.then_some(again));
            again = match event {
                Event::Nothing if breaking.is_empty() => AT_MOST.min(again * 2),
                _ => AGAIN,
            };
            match event {
                Event::Break(fd) => breaking.extend(self.broken(|number| number == fd)),
                Event::Any => breaking.extend(self.broken(|_| true)),
                Event::Nothing => {}
                // A filter that came later.
                Event::Denied => std::thread::sleep(AGAIN),
            }
            breaking.retain(|leased| {
                let left = leased
                    .frames
                    .close(leased.as_fd(), &leased.windows, &mut spare);
                let waits = left > 0;
                if !waits {
                    lease::give_back(leased.as_fd());
                    copied.retain(|frames| !Arc::ptr_eq(frames, &leased.frames));
                    copied.push(leased.frames.clone());
                }
                waits
            });
            copied.retain(|frames| frames.sweep() > 0);
        }
    }

    /// The files among these whose lease is being broken.
    fn broken(&self, which: impl Fn(RawFd) -> bool) -> Vec<Arc<Leased>> {
        let among = |(number, leased): (&RawFd, &Weak<Leased>)| match which(*number) {
            true => leased.upgrade(),
            false => None,
        };
        // A `Leased` takes the lock when it is dropped.
        let mut leased: Vec<_> = lock(&self.files).iter().filter_map(among).collect();
        // A signal may be late, and its number that of another file by now.
        leased.retain(|leased| !lease::is_held(leased.as_fd()));
        leased
    }
}
