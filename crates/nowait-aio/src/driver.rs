//! The driver: the one thread that has the open files of requests in flight, in a descriptor table
//! of its own, and drives the engine.
//!
//! ```text
//!   queue ─► accept ─► scheduler ─► finished ─► complete
//! ```
//! A request is completed in this order: close its file if no other request uses it, count the
//! request as no longer in flight, set the result in the control block, notify the program. So the
//! library has no reference to the file once aio_error(3) says that the request is done.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::fd_passing::FdReceiver;
use crate::notification_slot::NotificationSlot;
use crate::queue::{Cancellation, FileRef, Message, Submission, SubmissionQueue};
use crate::wait;

mod cancel;
mod completion;
mod engine;
mod file_table;
mod in_flight;
mod inode;
mod open_file;
mod operation;
mod passed_files;
mod poller;
mod requests;
mod scheduler;
mod stream;
mod sync_barrier;

use completion::complete;
use in_flight::InFlight;
use inode::Inode;
use open_file::Direction;
use passed_files::PassedFiles;
use poller::{Event, Poller};
use scheduler::Scheduler;

/// The length of a sleep that nothing can end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct Driver {
    passed_files: PassedFiles,
    scheduler: Scheduler,
    /// An idle slot for the next notification.
    slot: &'static NotificationSlot,
}

impl Driver {
    /// Makes the driver, in the descriptor table of the calling thread.
    pub fn new(receiver: FdReceiver) -> Result<Driver, Errno> {
        let poller = Poller::new()?;
        poller.add_receiver(&receiver)?;
        Ok(Driver {
            passed_files: PassedFiles::new(receiver),
            scheduler: Scheduler::new(poller)?,
            slot: NotificationSlot::new(),
        })
    }

    /// Runs until the queue is discarded.
    pub fn run(mut self, queue: &'static SubmissionQueue) {
        loop {
            while self.step(queue) {}
            if self.passed_files.is_closed() && queue.is_discarded() {
                return;
            }
            queue.sleep_if_empty(|| self.sleep());
        }
    }

    /// Takes messages, submits, reaps, completes. Returns false if there was nothing to do.
    fn step(&mut self, queue: &'static SubmissionQueue) -> bool {
        let mut was_busy = false;
        while let Some(message) = queue.pop() {
            was_busy = true;
            match message {
                Message::Submit(submission) => self.accept(queue, submission),
                Message::Cancel(cancellation) => self.cancel(queue, &cancellation),
            }
        }
        self.scheduler.submit();
        was_busy |= self.scheduler.reap();
        was_busy |= !self.scheduler.finished.is_empty();
        self.complete_finished(queue);
        was_busy
    }

    /// Accepts a request, with its file.
    fn accept(&mut self, queue: &SubmissionQueue, submission: Submission) {
        let Submission {
            request,
            file_flags,
            file,
        } = submission;
        let file = match file {
            FileRef::Open(id) => Ok(id),
            FileRef::Passed(message) => self.take_file(queue, message, request.fildes),
        };
        match file {
            Ok(id) => self.scheduler.add(InFlight::new(request, file_flags, id)),
            Err(errno) => {
                queue.release();
                complete(request, Err(errno), &mut self.slot, &queue.notifier);
                wait::wake_all();
            }
        }
    }

    /// The ID of a file that was passed: a new file, or one that the driver has already.
    fn take_file(
        &mut self,
        queue: &SubmissionQueue,
        message: u64,
        fildes: RawFd,
    ) -> Result<u64, Errno> {
        let fd = self.passed_files.take(message, &self.scheduler.poller)?;
        let inode = Inode::of(fd.as_fd())?;
        if let Some(id) = self.scheduler.files.find(fd.as_fd(), inode) {
            queue.open_files().add_request(id, fildes);
            return Ok(id);
        }
        let number = fd.as_raw_fd();
        let id = self.scheduler.files.insert(fd, inode)?;
        queue.open_files().insert(id, number, fildes);
        Ok(id)
    }

    /// Completes the requests that are done, after it has closed the files that no request uses.
    fn complete_finished(&mut self, queue: &'static SubmissionQueue) {
        if self.scheduler.finished.is_empty() {
            return;
        }
        let mut unused_files = Vec::new();
        {
            let mut open_files = queue.open_files();
            for (request, _) in &self.scheduler.finished {
                if open_files.remove_request(request.file) {
                    unused_files.push(request.file);
                }
            }
        }
        for id in unused_files {
            self.scheduler.close(id);
        }
        for (request, outcome) in self.scheduler.finished.drain(..) {
            queue.release();
            complete(request.request, outcome, &mut self.slot, &queue.notifier);
        }
        wait::wake_all();
    }

    fn cancel(&mut self, queue: &'static SubmissionQueue, cancellation: &Cancellation) {
        let answer = self.scheduler.cancel(cancellation);
        // After aio_cancel(3) has returned, aio_error(3) says ECANCELED.
        self.complete_finished(queue);
        cancellation.set_answer(answer);
    }

    /// Sleeps until there is a message, a completion, or a stream that is ready.
    fn sleep(&mut self) {
        // A closed sender cannot wake the driver, but the queue may have messages.
        let timeout = self.passed_files.is_closed().then_some(POLL_INTERVAL);
        let events = match self.scheduler.poller.wait(timeout) {
            Ok(events) => events,
            Err(Errno::INTR) => return,
            Err(_) => return self.sleep_without_epoll(),
        };
        for event in events {
            match event {
                Event::Message => {
                    self.passed_files.receive(&self.scheduler.poller);
                }
                Event::Completions => self.scheduler.set_has_completions(),
                Event::Ready {
                    file,
                    readable,
                    writable,
                } => {
                    if readable {
                        self.scheduler.advance_stream(file, Direction::Read);
                    }
                    if writable {
                        self.scheduler.advance_stream(file, Direction::Write);
                    }
                }
            }
        }
    }

    /// Sleeps for a short time, then looks at everything: a sandbox has denied epoll_wait(2).
    fn sleep_without_epoll(&mut self) {
        std::thread::sleep(POLL_INTERVAL);
        self.scheduler.set_has_completions();
        self.scheduler.advance_all_streams();
    }
}
