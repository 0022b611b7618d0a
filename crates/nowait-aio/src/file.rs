//! A file that the keeper has while requests on it are in flight, and the lanes in which they wait.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nowait::Handle;
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// One open file. Two descriptors of the program's that share it are one; two opens of a name are two.
pub struct File {
    handle: Handle,
    inode: Inode,
    positional_calls: bool,
    /// Positional requests, which may overtake each other.
    pub positional: VecDeque<usize>,
    /// Writes with O_APPEND, one at a time.
    pub appends: VecDeque<usize>,
    /// The engine has one of them.
    pub appending: bool,
    /// What has no offsets is read and written in the order submitted: the first of each lane is
    /// tried when the file is ready for it.
    pub reads: VecDeque<usize>,
    pub writes: VecDeque<usize>,
    /// What epoll watches it for.
    pub watched: EventFlags,
    /// How many of its operations the engine has.
    pub at_engine: usize,
    /// It waits for its turn at the engine.
    pub queued: bool,
}

/// Which way a stream request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

/// Which file of which filesystem an open file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode(u64, u64);

impl Inode {
    /// Asks fstat(2).
    pub fn of(fd: BorrowedFd<'_>) -> Result<Inode, Errno> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Inode(stat.st_dev, stat.st_ino))
    }
}

impl File {
    /// Takes it in.
    pub fn new(fd: OwnedFd, inode: Inode) -> Result<File, Errno> {
        let handle =
            Handle::new(fd).map_err(|e| e.errno().map_or(Errno::IO, Errno::from_raw_os_error))?;
        // The kernel says so before it looks at the file: no pieces of memory, no read.
        let refused = rustix::io::preadv(&handle, &mut [], 0) == Err(Errno::SPIPE);
        Ok(File {
            positional_calls: handle.is_seekable() && !refused,
            handle,
            inode,
            positional: VecDeque::new(),
            appends: VecDeque::new(),
            appending: false,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            watched: EventFlags::empty(),
            at_engine: 0,
            queued: false,
        })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// True if it takes pread(2) and pwrite(2). Any other is read and written by read(2) and write(2):
    /// pipes, sockets and terminals, and what has a position but no use for it, such as eventfd(2).
    pub fn takes_positional_calls(&self) -> bool {
        self.positional_calls
    }

    /// Tells if there is a way to read it, or to write it: the error of read(2) or write(2) otherwise, which
    /// the kernel says before it looks at the file.
    pub fn takes(&self, direction: Direction) -> Result<(), Errno> {
        match direction {
            Direction::In => rustix::io::readv(&self.handle, &mut []),
            Direction::Out => rustix::io::writev(&self.handle, &[]),
        }
        .map(drop)
    }

    /// Tells if read(2), or write(2), would not wait now: poll(2). What can't be waited for is ready.
    pub fn is_ready(&self, direction: Direction) -> bool {
        let event = match direction {
            Direction::In => PollFlags::IN,
            Direction::Out => PollFlags::OUT,
        };
        let mut polled = [PollFd::new(&self.handle, event)];
        poll(&mut polled, Some(&Timespec::default())) != Ok(0)
    }

    pub fn inode(&self) -> Inode {
        self.inode
    }

    /// The next request for the engine.
    pub fn next(&mut self) -> Option<usize> {
        if !self.appending
            && let Some(token) = self.appends.pop_front()
        {
            self.appending = true;
            return Some(token);
        }
        self.positional.pop_front()
    }

    /// Whether there is one.
    pub fn has_next(&self) -> bool {
        !self.positional.is_empty() || !self.appending && !self.appends.is_empty()
    }

    /// The lane of one direction.
    pub fn lane(&mut self, direction: Direction) -> &mut VecDeque<usize> {
        match direction {
            Direction::In => &mut self.reads,
            Direction::Out => &mut self.writes,
        }
    }

    /// All lanes.
    pub fn lanes(&mut self) -> [&mut VecDeque<usize>; 4] {
        [
            &mut self.positional,
            &mut self.appends,
            &mut self.reads,
            &mut self.writes,
        ]
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
