//! The events that wake the driver: epoll(7).

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::driver::open_file::OpenFile;
use crate::fd_passing::FdReceiver;
use crate::sys;

pub struct Poller {
    epoll: OwnedFd,
}

/// The data of events that are not about an open file, whose data is its ID.
const RECEIVER: u64 = u64::MAX;
const ENGINE: u64 = u64::MAX - 1;

pub enum Event {
    /// The receiver has a message.
    Message,
    /// The engine has completions.
    Completions,
    /// The open file with this ID is ready.
    Ready {
        file: u64,
        readable: bool,
        writable: bool,
    },
}

impl Event {
    fn new(event: libc::epoll_event) -> Event {
        let flags = EventFlags::from_bits_retain(event.events);
        match event.u64 {
            RECEIVER => Event::Message,
            ENGINE => Event::Completions,
            file => {
                let has_ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                Event::Ready {
                    file,
                    readable: has_ended || flags.contains(EventFlags::IN),
                    writable: has_ended || flags.contains(EventFlags::OUT),
                }
            }
        }
    }
}

impl Poller {
    pub fn new() -> Result<Poller, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll })
    }

    pub fn add_receiver(&self, receiver: &FdReceiver) -> Result<(), Errno> {
        let data = EventData::new_u64(RECEIVER);
        epoll::add(&self.epoll, receiver, data, EventFlags::IN)
    }

    pub fn remove_receiver(&self, receiver: &FdReceiver) {
        let _ = epoll::delete(&self.epoll, receiver);
    }

    /// Adds the eventfd of the engine.
    pub fn add_engine(&self, eventfd: impl AsFd) -> Result<(), Errno> {
        let data = EventData::new_u64(ENGINE);
        epoll::add(&self.epoll, eventfd, data, EventFlags::IN)
    }

    /// Changes the events that are reported for a file.
    pub fn watch(&self, id: u64, file: &mut OpenFile, events: EventFlags) -> Result<(), Errno> {
        let data = EventData::new_u64(id);
        match (file.watched.is_empty(), events.is_empty()) {
            (true, _) => epoll::add(&self.epoll, &*file, data, events),
            (_, true) => epoll::delete(&self.epoll, &*file),
            _ => epoll::modify(&self.epoll, &*file, data, events),
        }?;
        file.watched = events;
        Ok(())
    }

    /// Removes a file before it is closed. Closing alone is not enough: the program may still have
    /// it open.
    pub fn remove_file(&self, file: &OpenFile) {
        if !file.watched.is_empty() {
            let _ = epoll::delete(&self.epoll, file);
        }
    }

    /// Waits for events, or until the time is up.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
    ) -> Result<impl Iterator<Item = Event> + use<>, Errno> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let count = sys::epoll::wait(self.epoll.as_fd(), &mut events, timeout)?;
        Ok(events.into_iter().take(count).map(Event::new))
    }
}
