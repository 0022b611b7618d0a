//! The order of synchronisations (aio_fsync(3)) and transfers on one inode: a synchronisation
//! starts when all transfers that were submitted before it are done.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub struct SyncBarrier {
    /// The number of synchronisations so far. The transfers between two of them are an epoch.
    epoch: u64,
    /// The number of transfers in flight in each epoch that has some, oldest first.
    in_flight: VecDeque<(u64, usize)>,
    /// Waiting synchronisations, each with the last epoch that it waits for.
    syncs: VecDeque<(u64, usize)>,
}

impl SyncBarrier {
    /// Counts a transfer, and returns its epoch.
    pub fn begin_transfer(&mut self) -> u64 {
        match self.in_flight.back_mut() {
            Some((epoch, count)) if *epoch == self.epoch => *count += 1,
            _ => self.in_flight.push_back((self.epoch, 1)),
        }
        self.epoch
    }

    /// Counts a transfer as done.
    pub fn end_transfer(&mut self, epoch: u64) {
        if let Some(at) = self.in_flight.iter().position(|(e, _)| *e == epoch) {
            self.in_flight[at].1 -= 1;
            if self.in_flight[at].1 == 0 {
                self.in_flight.remove(at);
            }
        }
    }

    /// Adds a synchronisation, which waits for all transfers so far.
    pub fn add_sync(&mut self, user_data: usize) {
        self.syncs.push_back((self.epoch, user_data));
        self.epoch += 1;
    }

    /// Takes the next synchronisation that waits for no transfer.
    pub fn next_sync(&mut self) -> Option<usize> {
        let (epoch, user_data) = *self.syncs.front()?;
        if self
            .in_flight
            .front()
            .is_some_and(|(oldest, _)| *oldest <= epoch)
        {
            return None;
        }
        self.syncs.pop_front();
        Some(user_data)
    }

    /// Removes waiting synchronisations.
    pub fn retain_syncs(&mut self, mut keep: impl FnMut(usize) -> bool) {
        self.syncs.retain(|(_, user_data)| keep(*user_data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronisation_waits_for_transfers_before_it_only() {
        let mut barrier = SyncBarrier::default();
        let (first, second) = (barrier.begin_transfer(), barrier.begin_transfer());
        barrier.add_sync(1);
        let later = barrier.begin_transfer();
        barrier.add_sync(2);
        assert_eq!(barrier.next_sync(), None);
        barrier.end_transfer(first);
        assert_eq!(barrier.next_sync(), None);
        barrier.end_transfer(second);
        assert_eq!(barrier.next_sync(), Some(1));
        assert_eq!(barrier.next_sync(), None);
        barrier.end_transfer(later);
        assert_eq!(barrier.next_sync(), Some(2));
        assert_eq!(barrier.next_sync(), None);
    }
}
