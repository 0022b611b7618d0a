//! Reads that a worker can be stopped in.
//!
//! A worker that reads a pipe does not sleep in read(2), where nothing but data ends its wait. It
//! tries without waiting, and waits in poll(2) for the file and for an eventfd of the read's own.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};

use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::op::Kind;
use crate::sync::{Mutex, lock};
use crate::sys::Errno;
use crate::sys::eventfd::{eventfd, notify};

/// How a read that a worker carries out is told to stop.
#[derive(Debug, Default)]
pub(super) struct Stop(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    why: Option<ErrorKind>,
    /// What the worker waits for, while it waits.
    event: Option<Arc<OwnedFd>>,
}

/// After so many polls in vain a file that says it can be read, and says EAGAIN to the read, is
/// read plainly: its driver has no poll.
const IN_VAIN: usize = 64;

impl Stop {
    /// Asks the read to stop.
    pub(super) fn ask(&self, why: ErrorKind) {
        let mut state = lock(&self.0);
        state.why.get_or_insert(why);
        if let Some(event) = &state.event {
            notify(event);
        }
    }

    /// Why it is to stop, if it is.
    pub(super) fn why(&self) -> Option<ErrorKind> {
        lock(&self.0).why
    }

    /// Makes a read's call, once; ECANCELED if it is stopped before there is something to read.
    pub(super) fn run(&self, kind: &mut Kind) -> Result<usize, Errno> {
        if kind.handle().is_some_and(Handle::is_nonblocking) {
            return kind.run();
        }
        for _ in 0..IN_VAIN {
            if self.why().is_some() {
                return Err(Errno::CANCELED);
            }
            match kind.run_at_once() {
                Some(Err(Errno::AGAIN)) => {}
                // The file takes no NOWAIT: it is read once there is something to read.
                Some(Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)) | None => {
                    self.wait(kind.handle())?;
                    return kind.run();
                }
                Some(result) => return result,
            }
            self.wait(kind.handle())?;
        }
        kind.run()
    }

    /// Waits until the file can be read; ECANCELED if the read is stopped first.
    fn wait(&self, file: Option<&Handle>) -> Result<(), Errno> {
        let Some(file) = file else { return Ok(()) };
        let Ok(event) = eventfd(EventfdFlags::NONBLOCK) else {
            // No descriptor left: this wait can't be stopped.
            return Ok(());
        };
        let event = Arc::new(event);
        lock(&self.0).event = Some(event.clone());
        let ended = loop {
            if self.why().is_some() {
                break Err(Errno::CANCELED);
            }
            let mut both = [
                PollFd::new(file, PollFlags::IN),
                PollFd::new(&*event, PollFlags::IN),
            ];
            let polled = poll(&mut both, None);
            if polled != Err(Errno::INTR) && both[1].revents().is_empty() {
                break Ok(());
            }
        };
        lock(&self.0).event = None;
        ended
    }
}
