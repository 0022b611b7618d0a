//! The slots of a ring. A slot holds one request from its submission until its last completion.

use crate::engine::request::Request;
use crate::sys::cast::to_u32;

/// The slots of a ring. They never move, so pointers in submission queue entries stay valid.
pub(super) struct Slots {
    all: Box<[Slot]>,
    free: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Slot {
    pub(super) request: Option<Request>,
    /// The flush that submits the request.
    pub(super) flush: u64,
    /// The number of the operation's submission queue entry.
    pub(super) entry: u64,
    /// True if the submitting call itself does not look into the page cache: with IOSQE_ASYNC and
    /// with SQPOLL.
    pub(super) is_async: bool,
    /// The number of times that the operation returned EINTR.
    pub(super) interrupted: u32,
    /// True if the ring tries the request without a file. Its result is not that of the operation.
    pub(super) is_probe: bool,
}

impl Slots {
    pub(super) fn new(depth: usize) -> Slots {
        Slots {
            all: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..to_u32(depth)).rev().collect(),
        }
    }

    /// The number of requests in slots.
    pub(super) fn held(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Puts a request into a free slot, and returns the slot's number. Returns the request if no
    /// slot is free.
    #[inline]
    pub(super) fn insert(&mut self, request: Request) -> Result<u32, Request> {
        let Some(index) = self.free.pop() else {
            return Err(request);
        };
        self.all[index as usize].request = Some(request);
        Ok(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.all[index as usize]
    }

    /// Takes the request out of a slot, which is then free.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<Request> {
        self.free.push(index);
        let slot = &mut self.all[index as usize];
        slot.interrupted = 0;
        slot.is_probe = false;
        slot.request.take()
    }

    /// The requests in slots, with the slots' numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Request)> {
        let slots = (0..).zip(&mut self.all);
        slots.filter_map(|(index, slot)| Some((index, slot.request.as_mut()?)))
    }

    /// The slots of the requests whose entry has this number or a greater one.
    pub(super) fn since_entry(&self, entry: u64) -> Vec<u32> {
        let slots = (0..).zip(&self.all);
        let later = slots.filter(|(_, slot)| slot.entry >= entry && slot.request.is_some());
        later.map(|(index, _)| index).collect()
    }

    /// Leaks the requests.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.all));
    }
}
