//! An open file of the driver, and the lanes in which its requests wait.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nowait::Handle;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::driver::inode::Inode;

/// An open file description. Descriptors of the program that share one share this; two opens of a
/// path are two.
pub struct OpenFile {
    handle: Handle,
    inode: Inode,
    is_positional: bool,
    /// Positional requests and synchronisations. They may overtake each other.
    pub positional: VecDeque<usize>,
    /// Writes with O_APPEND: the engine gets one at a time.
    pub appends: VecDeque<usize>,
    /// The engine has an append.
    pub is_appending: bool,
    /// Reads and writes of a stream, in the order of submission. The first of each lane is tried
    /// when the file is ready for it.
    pub reads: VecDeque<usize>,
    pub writes: VecDeque<usize>,
    /// The events that epoll reports for the file.
    pub watched: EventFlags,
    /// The number of its operations that the engine has.
    pub in_engine: usize,
    /// The file is in the scheduler's queue of files with requests for the engine.
    pub is_scheduled: bool,
}

/// The direction of a transfer on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

impl OpenFile {
    pub fn new(fd: OwnedFd, inode: Inode) -> Result<OpenFile, Errno> {
        let handle =
            Handle::new(fd).map_err(|e| e.errno().map_or(Errno::IO, Errno::from_raw_os_error))?;
        // preadv(2) of no buffers reads nothing, and fails with ESPIPE where pread(2) would.
        let is_refused = rustix::io::preadv(&handle, &mut [], 0) == Err(Errno::SPIPE);
        Ok(OpenFile {
            is_positional: handle.is_seekable() && !is_refused,
            handle,
            inode,
            positional: VecDeque::new(),
            appends: VecDeque::new(),
            is_appending: false,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            watched: EventFlags::empty(),
            in_engine: 0,
            is_scheduled: false,
        })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    pub fn inode(&self) -> Inode {
        self.inode
    }

    /// True if the file takes pread(2) and pwrite(2). Any other file is a stream, used by read(2)
    /// and write(2): pipes, sockets and terminals, and files that are seekable but have no offsets,
    /// such as eventfd(2).
    pub fn is_positional(&self) -> bool {
        self.is_positional
    }

    /// Fails with the error that read(2) or write(2) would have for this file: readv(2), writev(2)
    /// of no buffers.
    pub fn check_access(&self, direction: Direction) -> Result<(), Errno> {
        match direction {
            Direction::Read => rustix::io::readv(&self.handle, &mut []),
            Direction::Write => rustix::io::writev(&self.handle, &[]),
        }
        .map(drop)
    }

    /// True if read(2) or write(2) would not wait now: poll(2). A file that cannot be polled is
    /// ready.
    pub fn is_ready(&self, direction: Direction) -> bool {
        let event = match direction {
            Direction::Read => PollFlags::IN,
            Direction::Write => PollFlags::OUT,
        };
        let mut polled = [PollFd::new(&self.handle, event)];
        poll(&mut polled, Some(&Timespec::default())) != Ok(0)
    }

    /// The next request for the engine.
    pub fn next_for_engine(&mut self) -> Option<usize> {
        if !self.is_appending
            && let Some(user_data) = self.appends.pop_front()
        {
            self.is_appending = true;
            return Some(user_data);
        }
        self.positional.pop_front()
    }

    pub fn has_next_for_engine(&self) -> bool {
        !self.positional.is_empty() || !self.is_appending && !self.appends.is_empty()
    }

    /// A stream's lane.
    pub fn lane(&mut self, direction: Direction) -> &mut VecDeque<usize> {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    /// Removes requests from all lanes.
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for lane in [
            &mut self.positional,
            &mut self.appends,
            &mut self.reads,
            &mut self.writes,
        ] {
            lane.retain(|user_data| keep(*user_data));
        }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
