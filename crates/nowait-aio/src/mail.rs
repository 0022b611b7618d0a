//! How an open file gets from the program's descriptor table to the keeper's: as a letter, a message
//! of a socket pair with the descriptor in it (unix(7), SCM_RIGHTS).
//!
//! From the moment it is sent the letter holds the file: what the program then does with its
//! descriptor touches nothing. Nothing is duplicated in the program's table, and nothing is closed
//! there, so that its fcntl(2) locks stay. The one descriptor that the program's table gets is the
//! outbox; it has a high number, and should the program close it or give its number to another file,
//! that is seen before anything is sent there.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::sys::descriptor_table;

/// The letter that only wakes the keeper.
const WAKE: u64 = 0;

/// The program's end.
#[derive(Clone, Copy, Debug)]
pub struct Outbox {
    number: RawFd,
    identity: Identity,
}

/// What tells the socket from whatever else may have its number one day.
type Identity = (u64, u64);

/// The keeper's end.
#[derive(Debug)]
pub struct Inbox(OwnedFd);

/// What a letter held.
#[derive(Debug)]
pub enum Letter {
    /// Nothing but the sound of it.
    Wake,
    /// An open file, and the number its request knows it by. No descriptor: there was none left for
    /// it in the keeper's table.
    File(u64, Option<OwnedFd>),
    /// The program's end is closed.
    Closed,
}

/// Makes both ends. The inbox is the program's too until the keeper has taken it into its own table.
pub fn open(generation: u64) -> Result<(Outbox, Inbox), Errno> {
    close_inherited(generation);
    let (inbox, outbox) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Programs count on the lowest numbers, and some close everything below a certain one.
    let outbox = rustix::io::fcntl_dupfd_cloexec(&outbox, high_number()).unwrap_or(outbox);
    let identity = identity(outbox.as_fd())?;
    let outbox = Outbox {
        // Never closed by us: some day the number may be another file's.
        number: outbox.into_raw_fd(),
        identity,
    };
    remember(&outbox, generation);
    Ok((outbox, Inbox(inbox)))
}

/// The generation of the process that made the outbox that was made last, and what it is: also known to
/// forked children, which may have their parent's pid in a namespace of their own.
static LAST: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn remember(outbox: &Outbox, generation: u64) {
    let (dev, ino) = outbox.identity;
    for (word, value) in LAST
        .iter()
        .zip([generation, outbox.number as u64, dev, ino])
    {
        word.store(value, Relaxed);
    }
}

/// A forked child has its parent's outbox, which is of no use to it.
fn close_inherited(generation: u64) {
    let [maker, number, dev, ino] = LAST.each_ref().map(|word| word.load(Relaxed));
    let outbox = Outbox {
        number: number as RawFd,
        identity: (dev, ino),
    };
    if maker != 0 && maker != generation && outbox.is_whole() {
        // SAFETY: it is a copy of the parent's, as was just seen, and nobody in this process sends
        // to it.
        unsafe { libc::close(outbox.number) };
    }
}

/// A number above what programs use, as far as the limit has room for one.
fn high_number() -> RawFd {
    let numbers = descriptor_table::limit().map_or(1024, |limit| limit.min(1024)) as RawFd;
    numbers - numbers / 16
}

fn identity(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Outbox {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: Assumption: the number is used for calls that say EBADF if it is no descriptor
        // any more, and nothing is sent before `is_whole` has seen whose it is.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// Whether the number is still the outbox's.
    pub fn is_whole(&self) -> bool {
        identity(self.fd()) == Ok(self.identity)
    }

    /// Sends the open file that the program knows by this number. When this returns it is held.
    pub fn send(&self, id: u64, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut enclosed = SendAncillaryBuffer::new(&mut room);
        let fds = [fd];
        enclosed.push(SendAncillaryMessage::ScmRights(&fds));
        self.post(id, &mut enclosed)
    }

    /// Wakes the keeper. EPIPE if the program has closed this end, as from `send`.
    pub fn wake(&self) -> Result<(), Errno> {
        self.post(WAKE, &mut SendAncillaryBuffer::default())
    }

    /// Closes it, if nobody but its maker knows of it.
    pub fn close(&self) {
        if self.is_whole() {
            // SAFETY: it is ours, as was just seen.
            unsafe { libc::close(self.number) };
        }
    }

    fn post(&self, id: u64, enclosed: &mut SendAncillaryBuffer<'_, '_, '_>) -> Result<(), Errno> {
        match identity(self.fd()) {
            Ok(identity) if identity == self.identity => {}
            Ok(_) | Err(Errno::BADF) => return Err(Errno::PIPE),
            Err(errno) => return Err(errno),
        }
        let bytes = id.to_ne_bytes();
        loop {
            match sendmsg(
                self.fd(),
                &[IoSlice::new(&bytes)],
                enclosed,
                SendFlags::NOSIGNAL,
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Inbox {
    /// Its number, in whatever table this thread has.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next letter, if there is one.
    pub fn next(&self) -> Option<Letter> {
        let mut id = [0u8; 8];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut enclosed = RecvAncillaryBuffer::new(&mut room);
        let got = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut id)],
            &mut enclosed,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        match got {
            Ok(got) if got.bytes == 0 => Some(Letter::Closed),
            Ok(_) => {
                let fd = enclosed.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                    _ => None,
                });
                Some(match u64::from_ne_bytes(id) {
                    WAKE => Letter::Wake,
                    id => Letter::File(id, fd),
                })
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(Letter::Closed),
        }
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
