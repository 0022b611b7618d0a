//! Polling a descriptor.

use std::os::fd::AsFd;

/// Returns true if a descriptor is readable now, or at its end.
pub fn readable(fd: impl AsFd) -> bool {
    let mut poll = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    let now = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut poll, Some(&now)).unwrap() == 1
}
