//! The eventfd of an engine through [`Drive`].

use std::os::fd::BorrowedFd;

use super::drive::Drive;
use super::either::on_either;

pub trait EventFd: Drive {
    fn event_fd(&mut self) -> nowait::Result<BorrowedFd<'_>> {
        on_either!(self.engine_mut(), event_fd())
    }
}

impl<D: Drive + ?Sized> EventFd for D {}
