//! The requests of one lio_listio(3), for a notification when all of them are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::notify::notification::Notification;

#[derive(Debug)]
pub struct RequestList {
    /// Requests in flight, and one more while the list is being submitted.
    in_flight: AtomicUsize,
    notification: Notification,
}

impl RequestList {
    /// A list that is being submitted.
    pub fn new(notification: Notification) -> Arc<RequestList> {
        Arc::new(RequestList {
            in_flight: AtomicUsize::new(1),
            notification,
        })
    }

    pub fn notification(&self) -> &Notification {
        &self.notification
    }

    /// Counts a request that is submitted.
    pub fn add(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that is done, or the end of the submission. True if it was the last: the
    /// caller sends the notification.
    pub fn remove(&self) -> bool {
        self.in_flight.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
