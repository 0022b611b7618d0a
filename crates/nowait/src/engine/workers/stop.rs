//! Reads that a worker can stop.
//!
//! A worker that reads a pipe does not sleep in read(2), because only data ends that sleep. It
//! tries without waiting, then waits in poll(2) for the file and for an eventfd of this read.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};

use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::op::Kind;
use crate::sys::Errno;
use crate::sys::eventfd::{eventfd, notify};
use crate::sys::sync::{Mutex, lock};

/// The means to stop a read that a worker carries out.
#[derive(Debug, Default)]
pub(super) struct Stop(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    why: Option<ErrorKind>,
    /// The eventfd that the worker waits for, while it waits.
    event: Option<Arc<OwnedFd>>,
}

/// The number of attempts that may fail with EAGAIN although poll(2) reported the file as readable.
/// After that an ordinary read is made: the file's driver has no poll.
const MAX_EAGAIN: usize = 64;

impl Stop {
    /// Asks the read to stop.
    pub(super) fn ask(&self, why: ErrorKind) {
        let mut state = lock(&self.0);
        state.why.get_or_insert(why);
        if let Some(event) = &state.event {
            notify(event);
        }
    }

    /// The reason for the stop, if it was requested.
    pub(super) fn why(&self) -> Option<ErrorKind> {
        lock(&self.0).why
    }

    /// Runs the system call of a read. Returns ECANCELED if the read is stopped before there is
    /// data.
    pub(super) fn run(&self, kind: &mut Kind) -> Result<usize, Errno> {
        if kind.handle().is_some_and(Handle::is_nonblocking) {
            return kind.run();
        }
        for _ in 0..MAX_EAGAIN {
            if self.why().is_some() {
                return Err(Errno::CANCELED);
            }
            match kind.run_at_once() {
                Some(Err(Errno::AGAIN)) => {}
                Some(Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)) | None => {
                    return self.run_in_turn(kind);
                }
                Some(result) => return result,
            }
            self.wait(kind.handle())?;
        }
        kind.run()
    }

    /// Waits for data, then reads a file that does not support NOWAIT. One worker reads at a time:
    /// it could otherwise take the data that poll(2) has reported to another, whose read then waits
    /// and cannot be stopped. Another process can still do that.
    fn run_in_turn(&self, kind: &mut Kind) -> Result<usize, Errno> {
        let Some(file) = kind.handle().cloned() else {
            return kind.run();
        };
        loop {
            self.wait(Some(&file))?;
            let _alone = file.lock_poll();
            let now = Timespec::default();
            if poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&now)) != Ok(0) {
                return kind.run();
            }
        }
    }

    /// Waits until the file is readable. Returns ECANCELED if the read is stopped first.
    fn wait(&self, file: Option<&Handle>) -> Result<(), Errno> {
        let Some(file) = file else { return Ok(()) };
        let event = eventfd(EventfdFlags::NONBLOCK).ok().map(Arc::new);
        lock(&self.0).event.clone_from(&event);
        let ended = self.wait_for(file, event.as_deref());
        lock(&self.0).event = None;
        ended
    }

    /// The same with the eventfd of [`ask`](Stop::ask). Without one, because there are too many open
    /// files, it looks from time to time if the read is to be stopped.
    fn wait_for(&self, file: &Handle, event: Option<&OwnedFd>) -> Result<(), Errno> {
        const PAUSE: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let stop = event.map_or(file.as_fd(), AsFd::as_fd);
        let mut both = [file.as_fd(), stop].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let (count, limit) = match event {
            Some(_) => (2, None),
            None => (1, Some(&PAUSE)),
        };
        loop {
            if self.why().is_some() {
                return Err(Errno::CANCELED);
            }
            let polled = poll(&mut both[..count], limit);
            let is_over = !matches!(polled, Ok(0) | Err(Errno::INTR));
            if is_over && both[1].revents().is_empty() {
                return Ok(());
            }
        }
    }
}
