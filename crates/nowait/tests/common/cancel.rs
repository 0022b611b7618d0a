//! Cancelling through [`Drive`].

use nowait::Ticket;

use super::drive::Drive;
use super::either::on_either;

pub trait Cancel: Drive {
    fn cancel(&mut self, ticket: Ticket) {
        on_either!(self.engine_mut(), cancel(ticket));
    }
}

impl<D: Drive + ?Sized> Cancel for D {}
