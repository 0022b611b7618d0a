//! fadvise: tells the kernel how a file will be read.

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered};
use crate::handle::Handle;
use crate::sys::Errno;

/// The advice of [`Fadvise`]: `POSIX_FADV_*` of posix_fadvise(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// No advice: the default readahead.
    Normal,
    /// The file is read from start to end: twice the readahead.
    Sequential,
    /// The file is read at random offsets: no readahead.
    Random,
    /// The data is read once.
    NoReuse,
    /// The range is read soon: starts readahead.
    WillNeed,
    /// The range is not read soon: drops its clean pages from the page cache.
    DontNeed,
}

impl Advice {
    fn kernel(self) -> rustix::fs::Advice {
        match self {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::NoReuse => rustix::fs::Advice::NoReuse,
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
        }
    }
}

/// Advises the kernel on a range of a file: posix_fadvise(2). `WillNeed` starts readahead;
/// `DontNeed` drops clean cached pages.
#[derive(Debug)]
pub struct Fadvise {
    handle: Handle,
    offset: u64,
    len: u64,
    advice: Advice,
}

impl Fadvise {
    /// Advises on `len` bytes from `offset` on. A length of 0 means up to the end of the file.
    pub fn new(handle: &Handle, offset: u64, len: u64, advice: Advice) -> Fadvise {
        Fadvise {
            handle: handle.clone(),
            offset,
            len,
            advice,
        }
    }
}

impl Operation for Fadvise {
    const OPCODE: u8 = opcode::Fadvise::CODE;
    const NAME: &'static str = "fadvise";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        // The ring's length has 32 bits. Engines give a longer range to a worker.
        let len = i64::from(i32::try_from(self.len).unwrap_or(0));
        opcode::Fadvise::new(known.fd(&self.handle), len, self.advice.kernel() as i32)
            .offset(self.offset)
            .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let len = NonZeroU64::new(self.len);
        rustix::fs::fadvise(self.handle.as_fd(), self.offset, len, self.advice.kernel()).map(|()| 0)
    }
}

impl Fadvise {
    /// Returns true if the length fits into the ring's 32 bits.
    pub(crate) fn fits_ring(&self) -> bool {
        i32::try_from(self.len).is_ok()
    }
}
