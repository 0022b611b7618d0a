//! Chains at the ring: linked entries, and the handling of links that the kernel has cut.
//! `engine/chain.rs` gives the reasons.
#![allow(unsafe_code)]

use io_uring::squeue;

use super::Ring;
use super::out::Out;
use super::setup::ENTRIES;
use crate::engine::chain::LinkState;
use crate::engine::request::Request;
use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::op::Step;
use crate::provenance::Arrival;
use crate::retry;
use crate::sys::Errno;

impl Ring {
    /// Queues a chain. Returns it if there are not enough free slots, or it is longer than the
    /// submission queue.
    #[must_use]
    pub(crate) fn push_chain(&mut self, requests: Vec<Request>) -> Option<Vec<Request>> {
        let room = self.ring.submission().capacity();
        if self.broken || requests.len() > self.free.len().min(room) {
            return Some(requests);
        }
        let id = self.next_chain;
        self.next_chain = self.next_chain.wrapping_add(1);
        let mut state = LinkState::default();
        for (request, index) in requests
            .into_iter()
            .zip(std::iter::from_fn(|| self.free.pop()))
        {
            let slot = &mut self.slots[index as usize];
            slot.request = Some(request);
            slot.chain = Some(id);
            state.members.push_back(index);
        }
        self.chains.insert(id, state);
        if self.begin_chain(id) {
            return None;
        }
        let members = self.chains.remove(&id)?.members;
        Some(
            members
                .into_iter()
                .filter_map(|index| self.release(index))
                .collect(),
        )
    }

    /// Puts the remaining members of a chain into the submission queue, all together: the kernel
    /// ends a chain at the last entry that it sees. Returns false if that is impossible. The kernel
    /// then sees none of them.
    fn begin_chain(&mut self, id: u32) -> bool {
        let Some(state) = self.chains.get_mut(&id) else {
            return false;
        };
        state.out = state.members.len();
        state.first = state.members.front().copied();
        let members = state.members.clone();
        let last = members.len() - 1;
        let entries: Vec<_> = members
            .into_iter()
            .enumerate()
            .filter_map(|(at, index)| {
                let entry = self.entry(index)?;
                let link = if at < last {
                    squeue::Flags::IO_LINK
                } else {
                    squeue::Flags::empty()
                };
                Some(entry.flags(link))
            })
            .collect();
        self.linked = true;
        loop {
            // SAFETY: Assumption: the same as in `enqueue`.
            let pushed = unsafe { self.ring.submission().push_multiple(&entries) };
            if pushed.is_ok() {
                return true;
            }
            if !self.enter(ENTRIES) {
                return false;
            }
        }
    }

    /// Handles the result of a chain's member. A member that the kernel has cut off waits until no
    /// member of the chain is at the kernel. The rest of the chain is then submitted again, or
    /// ends.
    pub(super) fn complete_member(
        &mut self,
        id: u32,
        index: u32,
        result: Result<usize, Errno>,
        arrival: Arrival,
        out: &mut (impl FnMut(Out) + ?Sized),
    ) {
        let slot = &mut self.slots[index as usize];
        let (Some(state), Some(request)) = (self.chains.get_mut(&id), &slot.request) else {
            return;
        };
        state.out -= 1;
        let kind = &request.op.body.kind;
        let cut_off = state.first != Some(index);
        let goes_on = match result {
            Err(Errno::CANCELED) => cut_off && request.op.body.progress.stopped.is_none(),
            Err(Errno::INTR) => {
                slot.interrupted += 1;
                request.op.body.progress.stopped.is_none()
                    && kind.may_repeat()
                    && slot.interrupted < retry::MAX_ATTEMPTS
            }
            // For a pipe with O_NONBLOCK, EAGAIN is the result.
            Err(Errno::AGAIN) if kind.handle().is_none_or(Handle::is_seekable) => {
                kind.may_block() && !std::mem::replace(&mut slot.asynchronous, true)
            }
            _ => false,
        };
        if !goes_on && let Step::Done(result) = self.step(index, result, arrival) {
            if let Some(state) = self.chains.get_mut(&id) {
                state.members.retain(|member| *member != index);
                state.failed |= result.is_err();
            }
            self.done(index, result, out);
        }
        self.go_on(id, out);
    }

    /// Continues or ends a chain that has no member at the kernel.
    fn go_on(&mut self, id: u32, out: &mut (impl FnMut(Out) + ?Sized)) {
        let Some(state) = self.chains.get(&id).filter(|state| state.out == 0) else {
            return;
        };
        let stopped = |index: &u32| {
            let request = self.slots[*index as usize].request.as_ref();
            request.is_some_and(|request| request.op.body.progress.stopped.is_some())
        };
        let over = state.failed || self.broken || state.members.front().is_none_or(stopped);
        if !over && self.begin_chain(id) {
            return;
        }
        for index in self.chains.remove(&id).into_iter().flat_map(|h| h.members) {
            if let Some(request) = self.release(index) {
                let ended = if over {
                    ErrorKind::Cancelled
                } else {
                    ErrorKind::NeedsRing
                };
                let why = request.op.body.progress.stopped.unwrap_or(ended);
                let (request, outcome) = request.stop(why);
                out(Out::Done(request, outcome));
            }
        }
    }
}
