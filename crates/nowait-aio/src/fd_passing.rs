//! Passes an open file from the program's descriptor table to the driver's: a message on a socket
//! pair that carries the descriptor (unix(7), SCM_RIGHTS).
//!
//! The message holds the open file from the moment it is sent: the program may then close its
//! descriptor. Nothing is duplicated or closed in the program's table, so that its fcntl(2) locks
//! stay.
//!
//! The sender is the only descriptor of the library in the program's table. It has a high number.
//! If the program closes it, or gives its number to another file, the next send fails with EPIPE.

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

/// The ID of a message without a file, which wakes the driver.
const WAKE: u64 = 0;

/// The end in the program's descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct FdSender {
    number: RawFd,
    identity: Identity,
}

/// Device and inode of the socket. They tell it from another file that has its number later.
type Identity = (u64, u64);

/// The end in the driver's descriptor table.
#[derive(Debug)]
pub struct FdReceiver(OwnedFd);

/// A received message.
#[derive(Debug)]
pub enum FdMessage {
    /// A wake-up of the driver, without a file.
    Wake,
    /// An open file. The descriptor is missing if the driver's table has no room for it.
    File { id: u64, fd: Option<OwnedFd> },
    /// The sender is closed.
    Closed,
}

/// Makes both ends. The receiver is in the program's table until the driver has a table of its own.
pub fn channel(generation: u64) -> Result<(FdSender, FdReceiver), Errno> {
    close_inherited_sender(generation);
    let (receiver, sender) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Programs rely on getting the lowest numbers, and some close all numbers below a certain one.
    let sender = rustix::io::fcntl_dupfd_cloexec(&sender, high_number()).unwrap_or(sender);
    let identity = identity(sender.as_fd())?;
    let sender = FdSender {
        // Not owned: the program may close the number or give it to another file.
        number: sender.into_raw_fd(),
        identity,
    };
    store_last_sender(&sender, generation);
    Ok((sender, FdReceiver(receiver)))
}

/// The sender that was made last, for a forked child: the generation of its process, its number,
/// device and inode. A pid would not do, because a child in another namespace may have its
/// parent's.
static LAST_SENDER: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn store_last_sender(sender: &FdSender, generation: u64) {
    let (dev, ino) = sender.identity;
    for (word, value) in LAST_SENDER
        .iter()
        .zip([generation, sender.number as u64, dev, ino])
    {
        word.store(value, Relaxed);
    }
}

/// Closes the sender that a forked child has inherited. The child cannot use it.
fn close_inherited_sender(generation: u64) {
    let [maker, number, dev, ino] = LAST_SENDER.each_ref().map(|word| word.load(Relaxed));
    let sender = FdSender {
        number: number as RawFd,
        identity: (dev, ino),
    };
    if maker != 0 && maker != generation {
        // No thread of this process sends on it.
        sender.close();
    }
}

/// A number above those that programs use, if the limit allows one.
fn high_number() -> RawFd {
    let numbers = descriptor_table::limit().map_or(1024, |limit| limit.min(1024)) as RawFd;
    numbers - numbers / 16
}

fn identity(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl FdSender {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: Assumption: the number is used for calls that fail with EBADF if it is not a
        // descriptor, and nothing is sent before the file's identity was compared.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// True if the number still belongs to the sender.
    fn is_open(&self) -> bool {
        identity(self.fd()) == Ok(self.identity)
    }

    /// Sends an open file. The message holds the file when this returns. EPIPE if the program has
    /// closed the sender.
    pub fn send(&self, id: u64, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        self.send_message(id, &mut ancillary)
    }

    /// Wakes the driver. EPIPE if the program has closed the sender.
    pub fn wake(&self) -> Result<(), Errno> {
        self.send_message(WAKE, &mut SendAncillaryBuffer::default())
    }

    /// Closes the sender, if the program has not done so. No other thread may be sending.
    pub fn close(&self) {
        if self.is_open() {
            // SAFETY: the number belongs to the sender, as `is_open` has checked.
            unsafe { libc::close(self.number) };
        }
    }

    fn send_message(
        &self,
        id: u64,
        ancillary: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> Result<(), Errno> {
        match identity(self.fd()) {
            Ok(identity) if identity == self.identity => {}
            Ok(_) | Err(Errno::BADF) => return Err(Errno::PIPE),
            // A sandbox denies fstat(2), or there is no memory. The number is taken for the
            // sender's, because a driver that is not woken would leave the request undone.
            Err(_) => {}
        }
        let bytes = id.to_ne_bytes();
        loop {
            match sendmsg(
                self.fd(),
                &[IoSlice::new(&bytes)],
                ancillary,
                SendFlags::NOSIGNAL,
            ) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl FdReceiver {
    /// The number of the descriptor, which is the same in the program's and in the driver's table.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Receives the next message, if there is one. Does not wait.
    pub fn receive(&self) -> Option<FdMessage> {
        let mut id = [0u8; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut id)],
            &mut ancillary,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        match received {
            Ok(received) if received.bytes == 0 => Some(FdMessage::Closed),
            Ok(_) => {
                let fd = ancillary.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                    _ => None,
                });
                Some(match u64::from_ne_bytes(id) {
                    WAKE => FdMessage::Wake,
                    id => FdMessage::File { id, fd },
                })
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(FdMessage::Closed),
        }
    }
}

impl AsFd for FdReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
