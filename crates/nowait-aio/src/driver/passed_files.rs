//! Files that were passed to the driver and whose requests are still in the queue.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::driver::poller::Poller;
use crate::fd_passing::{FdMessage, FdReceiver};

pub struct PassedFiles {
    receiver: FdReceiver,
    /// By the ID of the message. The descriptor is missing if the table had no room for it.
    files: HashMap<u64, Option<OwnedFd>>,
    is_closed: bool,
}

impl PassedFiles {
    pub fn new(receiver: FdReceiver) -> PassedFiles {
        PassedFiles {
            receiver,
            files: HashMap::new(),
            is_closed: false,
        }
    }

    /// True if the program has closed the sender.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Receives one message. Returns false if there is none.
    pub fn receive(&mut self, poller: &Poller) -> bool {
        match self.receiver.receive() {
            Some(FdMessage::Wake) => true,
            Some(FdMessage::File { id, fd }) => {
                self.files.insert(id, fd);
                true
            }
            Some(FdMessage::Closed) => {
                if !self.is_closed {
                    self.is_closed = true;
                    poller.remove_receiver(&self.receiver);
                }
                false
            }
            None => false,
        }
    }

    /// Takes the file of the message with this ID. EAGAIN if the descriptor table had no room for
    /// it.
    ///
    /// The message was sent before its request was queued. Not more messages than needed are
    /// received: each file that waits here takes a descriptor.
    pub fn take(&mut self, id: u64, poller: &Poller) -> Result<OwnedFd, Errno> {
        while !self.files.contains_key(&id) && self.receive(poller) {}
        self.files.remove(&id).flatten().ok_or(Errno::AGAIN)
    }
}
