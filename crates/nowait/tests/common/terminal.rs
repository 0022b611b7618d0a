//! Pseudoterminals.

use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

/// Both ends of a pseudoterminal: the master and the program's end.
pub fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let hardware = openpt(flags).unwrap();
    grantpt(&hardware).unwrap();
    unlockpt(&hardware).unwrap();
    let programs = ioctl_tiocgptpeer(&hardware, flags).unwrap();
    (hardware, programs)
}
